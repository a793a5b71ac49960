// The outbox as the deliverer sees it: what is due for which receiver, and what became of it. Of one chain (the events
// of one resource for one receiver) only the oldest pending row is sent; a row that is held back behind it has no time
// of its own until the one before it is settled. What callers see of deliveries is in notifications.ts.

import { eq, sql } from 'drizzle-orm';
import type { AttemptResult } from '../domain/webhook/delivery.ts';
import { retryDelayMs, retryDelaysMs } from '../domain/webhook/retry.ts';
import { type Db, prepared } from './database/db.ts';
import { deliveries, events, notifications } from './database/schema.ts';
import { createBodyRenderer } from './events.ts';
import { type Notification, signingSecretOf } from './notifications.ts';

/** A row that is due, and the oldest pending one of its chain: the same where nothing holds it back. */
export type Due = { id: bigint; resourceId: bigint; attempts: number; headId: bigint };

// Steps from receiver to receiver in the index, over however many rows each has.
const waiting = prepared(db =>
  db.sqlite.prepare<[], { id: bigint; dueAt: bigint | null }>(`
    WITH RECURSIVE receiver (id) AS (
      SELECT min(notification_id) FROM deliveries WHERE state = 'pending'
      UNION ALL
      SELECT (SELECT min(notification_id) FROM deliveries WHERE state = 'pending' AND notification_id > receiver.id)
      FROM receiver WHERE receiver.id IS NOT NULL
    )
    SELECT id, (
      SELECT min(next_attempt_at) FROM deliveries WHERE state = 'pending' AND notification_id = receiver.id
    ) AS dueAt
    FROM receiver WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM notifications WHERE deleted_at IS NOT NULL)`),
);

/** The receivers for which something is pending, and when the first of it is due. */
export function listWaitingReceivers(db: Db): { notificationId: bigint; dueAt: number }[] {
  return waiting(db)
    .all()
    .map(row => ({ notificationId: row.id, dueAt: Number(row.dueAt) }));
}

const due = prepared(db =>
  db.sqlite.prepare<[bigint, bigint, number], { [name in keyof Due]: bigint }>(`
    SELECT id, resource_id AS resourceId, attempts, (
      SELECT min(id) FROM deliveries AS head
      WHERE state = 'pending' AND notification_id = row.notification_id AND resource_id = row.resource_id
    ) AS headId
    FROM deliveries AS row
    WHERE state = 'pending' AND notification_id = ? AND next_attempt_at <= ?
    ORDER BY next_attempt_at, id LIMIT ?`),
);

/** What is due for a receiver, longest due first. */
export function listDueDeliveries(db: Db, notificationId: bigint, limit: number): Due[] {
  return due(db)
    .all(notificationId, BigInt(db.now()), limit)
    .map(row => ({ ...row, attempts: Number(row.attempts) }));
}

const later = prepared(db =>
  db.sqlite
    .prepare<[bigint, bigint], bigint | null>(`
      SELECT min(next_attempt_at) FROM deliveries
      WHERE state = 'pending' AND notification_id = ? AND next_attempt_at > ?`)
    .pluck(),
);

/** When the next thing falls due for a receiver that is not due yet. */
export function findNextDueAt(db: Db, notificationId: bigint): number | undefined {
  const at = later(db).get(notificationId, BigInt(db.now()));
  return at === null || at === undefined ? undefined : Number(at);
}

/** Where a receiver is and what its webhooks are signed with. */
export function getReceiver(db: Db, notificationId: bigint): { url: string; secret: string } {
  const row = db.orm
    .select()
    .from(notifications)
    .where(eq(notifications.id, notificationId))
    .get() as Notification;
  return { url: row.url, secret: signingSecretOf(db, row) };
}

const receiverQuery = prepared(db =>
  db.sqlite
    .prepare<[bigint], bigint>('SELECT 1 FROM notifications WHERE id = ? AND deleted_at IS NULL')
    .pluck(),
);

export function receiverExists(db: Db, notificationId: bigint): boolean {
  return receiverQuery(db).get(notificationId) !== undefined;
}

const message = prepared(db =>
  db.orm
    .select({ eventId: events.id, projectId: events.projectId, body: events.body })
    .from(deliveries)
    .innerJoin(events, eq(events.id, deliveries.eventId))
    .where(eq(deliveries.id, sql.placeholder('id')))
    .prepare(),
);

/** What a delivery sends: the body of its event, the same bytes each time. Undefined where it was deleted meanwhile. */
export function findMessage(db: Db, id: bigint): { eventId: bigint; body: string } | undefined {
  const found = message(db).get({ id });
  return found && { eventId: found.eventId, body: createBodyRenderer(db, found.projectId)(found.body) };
}

const hold = prepared(db =>
  db.sqlite.prepare<[bigint]>(
    `UPDATE deliveries SET next_attempt_at = NULL WHERE id = ? AND state = 'pending'`,
  ),
);

/** Puts rows aside that are behind another one of their chain, so that they are not looked at over and over. */
export function blockDeliveries(db: Db, ids: readonly bigint[]): void {
  db.write(() => {
    for (const id of ids) hold(db).run(id);
  });
}

const settle = prepared(db =>
  db.sqlite.prepare<unknown[], { notificationId: bigint; resourceId: bigint }>(`
      UPDATE deliveries SET state = ?, attempts = ?, response_status = ?, response_ms = ?, response_excerpt = ?,
        last_error = ?, next_attempt_at = ?
      WHERE id = ? AND state = 'pending' AND attempts = ?
      RETURNING notification_id AS notificationId, resource_id AS resourceId`),
);

const release = prepared(db =>
  db.sqlite.prepare<[bigint, bigint, bigint]>(`
    UPDATE deliveries SET next_attempt_at = ?
    WHERE next_attempt_at IS NULL AND id = (
      SELECT min(id) FROM deliveries WHERE state = 'pending' AND notification_id = ? AND resource_id = ?
    )`),
);

/** Records what became of an attempt; false where the row is gone or was asked for anew meanwhile. */
export function recordAttempt(db: Db, id: bigint, outcome: AttemptResult): boolean {
  return db.write(() => {
    const settled = settle(db).get(
      outcome.state,
      outcome.attempts,
      outcome.responseStatus,
      outcome.responseMs,
      outcome.responseExcerpt,
      outcome.lastError,
      outcome.nextAttemptAt === null ? null : BigInt(outcome.nextAttemptAt),
      id,
      outcome.attempts - 1,
    );
    if (!settled) return false;
    if (outcome.state !== 'pending')
      release(db).run(BigInt(db.now()), settled.notificationId, settled.resourceId);
    return true;
  });
}

export function disableNotification(db: Db, notificationId: bigint): void {
  db.write(() =>
    db.orm.update(notifications).set({ enabled: false }).where(eq(notifications.id, notificationId)).run(),
  );
}

/** Gives up a part of what is pending for a receiver; true when nothing is left. */
export function failSomeDeliveries(db: Db, notificationId: bigint, reason: string): boolean {
  const most = 500;
  // Each chain from its end: whatever a crash leaves behind still begins with a row that has its time.
  const { changes } = db.write(() =>
    db.sqlite
      .prepare(`
        UPDATE deliveries SET state = 'failed', last_error = ?, next_attempt_at = NULL WHERE id IN (
          SELECT id FROM deliveries WHERE state = 'pending' AND notification_id = ?
          ORDER BY resource_id DESC, id DESC LIMIT ${most}
        )`)
      .run(reason, notificationId),
  );
  return changes < most;
}

/** Brings back what waits longer than its retry can be away: the clock was set back meanwhile. */
export function repairSchedule(db: Db): void {
  const longestMs = `CASE attempts ${retryDelaysMs
    .map((_, index) => `WHEN ${index + 1} THEN ${retryDelayMs(index + 1, 1)}`)
    .join(' ')} ELSE 0 END`;
  db.write(() =>
    db.sqlite
      .prepare(`
        UPDATE deliveries SET next_attempt_at = :now + ${longestMs}
        WHERE state = 'pending' AND next_attempt_at > :now + ${longestMs}`)
      .run({ now: BigInt(db.now()) }),
  );
}
