// The outbox as the deliverer sees it: which deliveries are due for which receiver, and the results of attempts. The
// events of one resource for one receiver form a chain. Only the oldest pending delivery of a chain is sent; a delivery
// behind it is blocked (no next_attempt_at) until the one before it is finished. statuses.ts supersedes all but the newest
// delivery of a commit status, so that its chain has one that waits.

import { eq, sql } from 'drizzle-orm';
import type { StatusOptions } from '../domain/commit-status.ts';
import type { AttemptResult } from '../domain/webhook/delivery.ts';
import { retryDelayMs, retryDelaysMs } from '../domain/webhook/retry.ts';
import { type Db, prepared } from './database/db.ts';
import { deliveries, events, notifications } from './database/schema.ts';
import { createBodyRenderer } from './events.ts';
import { type Notification, signingSecretOf } from './notifications.ts';

/** A due delivery, and the head of its chain: the same row unless it is blocked. */
export type Due = { id: bigint; resourceId: bigint; attempts: number; headId: bigint };

// Skips from receiver to receiver in the index, however many rows each has.
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

/** The receivers with pending deliveries, and when the first is due. */
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

/** The due deliveries of a receiver, longest due first. */
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

/** When the receiver's next delivery becomes due. */
export function findNextDueAt(db: Db, notificationId: bigint): number | undefined {
  const at = later(db).get(notificationId, BigInt(db.now()));
  return at === null || at === undefined ? undefined : Number(at);
}

/** A notification as it is called. `secret` is the signing secret of a webhook, or the token of commit statuses. */
export type Target = { url: string; secret: string; statusOptions: StatusOptions | null; enabled: boolean };

export function getTarget(db: Db, notificationId: bigint): Target {
  const row = db.orm
    .select()
    .from(notifications)
    .where(eq(notifications.id, notificationId))
    .get() as Notification;
  const { url, statusOptions, enabled } = row;
  return { url, secret: signingSecretOf(db, row), statusOptions, enabled };
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

/** What a delivery sends: the body of its event, the same bytes each time. Undefined if it was deleted meanwhile. */
export function findMessage(db: Db, id: bigint): { eventId: bigint; body: string } | undefined {
  const found = message(db).get({ id });
  return found && { eventId: found.eventId, body: createBodyRenderer(db, found.projectId)(found.body) };
}

const hold = prepared(db =>
  db.sqlite.prepare<[bigint]>(
    `UPDATE deliveries SET next_attempt_at = NULL WHERE id = ? AND state = 'pending'`,
  ),
);

/** Blocks deliveries behind another of their chain, so that they are not read again and again. */
export function blockDeliveries(db: Db, ids: readonly bigint[]): void {
  db.write(() => {
    for (const id of ids) hold(db).run(id);
  });
}

const updateAttempt = prepared(db =>
  db.sqlite.prepare<unknown[], { notificationId: bigint; resourceId: bigint }>(`
      UPDATE deliveries SET state = ?, attempts = ?, response_status = ?, response_ms = ?, response_excerpt = ?,
        last_error = ?, next_attempt_at = ?
      WHERE id = ? AND state = 'pending' AND attempts = ?
      RETURNING notification_id AS notificationId, resource_id AS resourceId`),
);

const unblock = prepared(db =>
  db.sqlite.prepare<[bigint, bigint, bigint]>(`
    UPDATE deliveries SET next_attempt_at = ?
    WHERE next_attempt_at IS NULL AND id = (
      SELECT min(id) FROM deliveries WHERE state = 'pending' AND notification_id = ? AND resource_id = ?
    )`),
);

const markDelivered = prepared(db =>
  db.sqlite.prepare<[number, number | null, bigint]>(`
    UPDATE deliveries SET state = 'delivered', attempts = ?, response_status = ?
    WHERE id = ? AND state = 'superseded'`),
);

/**
 * Records the result of an attempt. False if the delivery was deleted, reset or superseded meanwhile. A superseded one that
 * arrived is still recorded as delivered.
 */
export function recordAttempt(db: Db, id: bigint, outcome: AttemptResult): boolean {
  return db.write(() => {
    const updated = updateAttempt(db).get(
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
    if (!updated) {
      if (outcome.state === 'delivered') markDelivered(db).run(outcome.attempts, outcome.responseStatus, id);
      return false;
    }
    if (outcome.state !== 'pending')
      unblock(db).run(BigInt(db.now()), updated.notificationId, updated.resourceId);
    return true;
  });
}

export function disableNotification(db: Db, notificationId: bigint, because: string): void {
  db.write(() =>
    db.orm
      .update(notifications)
      .set({ enabled: false, disabledBecause: because })
      .where(eq(notifications.id, notificationId))
      .run(),
  );
}

/** Fails a batch of a receiver's pending deliveries. True if none is left. */
export function failSomeDeliveries(db: Db, notificationId: bigint, reason: string): boolean {
  const batchSize = 500;
  // Each chain from its end: after a crash the head of the rest is still scheduled.
  const { changes } = db.write(() =>
    db.sqlite
      .prepare(`
        UPDATE deliveries SET state = 'failed', last_error = ?, next_attempt_at = NULL WHERE id IN (
          SELECT id FROM deliveries WHERE state = 'pending' AND notification_id = ?
          ORDER BY resource_id DESC, id DESC LIMIT ${batchSize}
        )`)
      .run(reason, notificationId),
  );
  return changes < batchSize;
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
