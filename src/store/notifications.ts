// Notifications and their deliveries, as callers see them. outbox.ts is the view of the deliverer.

import { and, desc, eq, isNull } from 'drizzle-orm';
import type { NotifiableType } from '../contract/events.ts';
import type { Db } from './database/db.ts';
import { limitWithNext, olderThan, type Page } from './database/page.ts';
import { deliveries, notifications } from './database/schema.ts';
import { recordEvent } from './events.ts';

export type Notification = typeof notifications.$inferSelect;
export type Delivery = typeof deliveries.$inferSelect;

const secretCell = (row: bigint) => ({ table: 'notifications', column: 'signing_secret', row });

export function listNotifications(db: Db, projectId: bigint, page: Page): Notification[] {
  return db.orm
    .select()
    .from(notifications)
    .where(
      and(
        eq(notifications.projectId, projectId),
        olderThan(notifications.id, page),
        isNull(notifications.deletedAt),
      ),
    )
    .orderBy(desc(notifications.id))
    .limit(limitWithNext(page))
    .all();
}

export function findNotification(db: Db, projectId: bigint, id: bigint): Notification | undefined {
  return db.orm
    .select()
    .from(notifications)
    .where(
      and(eq(notifications.id, id), eq(notifications.projectId, projectId), isNull(notifications.deletedAt)),
    )
    .get();
}

export function createNotification(
  db: Db,
  notification: {
    projectId: bigint;
    name: string;
    notifiableType: NotifiableType;
    url: string;
    signingSecret: string;
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

/** Enables a notification that was disabled because its receiver answered 410. */
export function enableNotification(db: Db, id: bigint): Notification {
  return db.write(() =>
    db.orm.update(notifications).set({ enabled: true }).where(eq(notifications.id, id)).returning().get(),
  ) as Notification;
}

/** Sends a `ping` event to this one receiver. */
export function pingNotification(db: Db, notification: Notification): Delivery {
  return db.write(() => {
    recordEvent(db, notification.projectId, 'ping', notification.id, undefined, notification.id);
    return db.orm
      .select()
      .from(deliveries)
      .where(eq(deliveries.notificationId, notification.id))
      .orderBy(desc(deliveries.id))
      .limit(1)
      .get() as Delivery;
  });
}

export function listDeliveries(db: Db, notificationId: bigint, page: Page): Delivery[] {
  return db.orm
    .select()
    .from(deliveries)
    .where(and(eq(deliveries.notificationId, notificationId), olderThan(deliveries.id, page)))
    .orderBy(desc(deliveries.id))
    .limit(limitWithNext(page))
    .all();
}

export function findDelivery(db: Db, notificationId: bigint, id: bigint): Delivery | undefined {
  return db.orm
    .select()
    .from(deliveries)
    .where(and(eq(deliveries.id, id), eq(deliveries.notificationId, notificationId)))
    .get();
}

/** Resends a delivery at once, with the same id and body. */
export function redeliver(db: Db, delivery: Delivery): Delivery {
  return db.write(() => {
    db.touch('deliveries');
    return db.orm
      .update(deliveries)
      .set({ state: 'pending', attempts: 0, nextAttemptAt: db.now(), lastError: null })
      .where(eq(deliveries.id, delivery.id))
      .returning()
      .get() as Delivery;
  });
}
