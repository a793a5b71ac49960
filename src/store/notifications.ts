// Notifications and their deliveries, as callers see them. outbox.ts is the view of the deliverer.

import { and, eq, isNull } from 'drizzle-orm';
import type { NotifiableType } from '../contract/events.ts';
import type { StatusOptions } from '../domain/commit-status.ts';
import { refusal } from '../domain/refusal.ts';
import { type Db, prepared } from './database/db.ts';
import { findIn, listPage, type Page } from './database/page.ts';
import { deliveries, notifications } from './database/schema.ts';
import { recordEvent } from './events.ts';
import { findNewest, resendFailed } from './statuses.ts';

export type Notification = typeof notifications.$inferSelect;
export type Delivery = typeof deliveries.$inferSelect;

const secretCell = (row: bigint) => ({ table: 'notifications', column: 'signing_secret', row });

export function listNotifications(db: Db, projectId: bigint, page: Page): Notification[] {
  return listPage(
    db,
    notifications,
    and(eq(notifications.projectId, projectId), isNull(notifications.deletedAt)),
    page,
  );
}

export const findNotification = findIn(
  notifications,
  notifications.projectId,
  isNull(notifications.deletedAt),
);

export function createNotification(
  db: Db,
  notification: {
    projectId: bigint;
    name: string;
    notifiableType: NotifiableType;
    url: string;
    /** The token, for commit statuses. */
    signingSecret: string;
    statusOptions?: StatusOptions;
  },
): Notification {
  return db.write(() => {
    const id = db.newId();
    return db.orm
      .insert(notifications)
      .values({
        ...notification,
        id,
        signingSecret: db.vault.seal(notification.signingSecret, secretCell(id)),
        enabled: true,
      })
      .returning()
      .get();
  });
}

export function signingSecretOf(db: Db, notification: Notification): string {
  return db.vault.open(notification.signingSecret, secretCell(notification.id));
}

/** Another receiver or secret enables the notification, because a response to the old one may have disabled it. */
export function updateNotification(
  db: Db,
  { id, url, statusOptions }: Notification,
  changes: { url: string; signingSecret?: string; statusOptions?: StatusOptions },
): Notification {
  const { signingSecret, ...others } = changes;
  const isElsewhere = changes.url !== url || changes.statusOptions?.repository !== statusOptions?.repository;
  return db.write(() => {
    db.touch('notifications');
    const updated = db.orm
      .update(notifications)
      .set({
        ...others,
        ...(signingSecret !== undefined && { signingSecret: db.vault.seal(signingSecret, secretCell(id)) }),
      })
      .where(eq(notifications.id, id))
      .returning()
      .get() as Notification;
    return isElsewhere || signingSecret !== undefined ? enableNotification(db, id) : updated;
  });
}

/** Enables a notification that was disabled because of a response. Commit statuses that were not sent are sent now. */
export function enableNotification(db: Db, id: bigint): Notification {
  return db.write(() => {
    resendFailed(db, id);
    db.touch('notifications');
    return db.orm
      .update(notifications)
      .set({ enabled: true, disabledBecause: null })
      .where(eq(notifications.id, id))
      .returning()
      .get();
  }) as Notification;
}

/** Sends a `ping` event to this one receiver. Refused if it reports commit statuses and there is none yet. */
export function pingNotification(db: Db, notification: Notification): Delivery {
  return db.write(() => {
    const { id, projectId } = notification;
    const eventId = recordEvent(db, projectId, 'ping', id, undefined, id);
    const delivery =
      eventId === undefined
        ? undefined
        : db.orm.select().from(deliveries).where(eq(deliveries.eventId, eventId)).limit(1).get();
    if (!delivery) throw refusal('resource_temporary_unavailable');
    return delivery;
  });
}

export function listDeliveries(db: Db, notificationId: bigint, page: Page): Delivery[] {
  return listPage(db, deliveries, eq(deliveries.notificationId, notificationId), page);
}

export const findDelivery = findIn(deliveries, deliveries.notificationId);

const firstOfChain = prepared(db =>
  db.sqlite
    .prepare<[bigint, bigint], bigint | null>(`
      SELECT min(id) FROM deliveries WHERE state = 'pending' AND notification_id = ? AND resource_id = ?`)
    .pluck(),
);

/** The earlier delivery about the same resource that a pending one waits for, because they are sent in order. */
export function findBlocking(
  db: Db,
  { id, notificationId, resourceId, state }: Delivery,
): bigint | undefined {
  const first = state === 'pending' ? firstOfChain(db).get(notificationId, resourceId) : null;
  return first === null || first === undefined || first === id ? undefined : first;
}

/** Resends a delivery at once, with the same id and body. Of a commit status, the newest of its context is sent. */
export function redeliver(db: Db, delivery: Delivery): Delivery {
  return db.write(() => {
    db.touch('deliveries');
    const { id } =
      (delivery.status && findNewest(db, delivery.notificationId, delivery.resourceId)) ?? delivery;
    return db.orm
      .update(deliveries)
      .set({ state: 'pending', attempts: 0, nextAttemptAt: db.now(), lastError: null, resentAt: db.now() })
      .where(eq(deliveries.id, id))
      .returning()
      .get() as Delivery;
  });
}
