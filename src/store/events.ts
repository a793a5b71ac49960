// Records events and their webhook deliveries in the same transaction as the change itself.

import { and, asc, eq, gt, isNull, sql } from 'drizzle-orm';
import {
  addKey,
  type EventSubject,
  type EventType,
  eventBody,
  notifiableTypeOf,
} from '../contract/events.ts';
import { type Db, insertInto, prepared } from './database/db.ts';
import { deliveries, events, notifications } from './database/schema.ts';
import { SealedValueError } from './database/vault.ts';
import { bareKeyOf, findProject, storedProjectRecord } from './projects.ts';
import { recordReports, reportsOf } from './statuses.ts';

type Event = typeof events.$inferSelect;

const insertEvent = insertInto(events);
const insertDelivery = insertInto(deliveries);
const receivers = prepared(db =>
  db.orm
    .select({
      id: notifications.id,
      type: notifications.notifiableType,
      enabled: notifications.enabled,
      options: notifications.statusOptions,
    })
    .from(notifications)
    .where(and(eq(notifications.projectId, sql.placeholder('projectId')), isNull(notifications.deletedAt)))
    .orderBy(notifications.id)
    .prepare(),
);

/**
 * Records an event of a project, which streams send, and its deliveries to all receivers, to none (`streams`) or to one.
 * Returns the ID of the event.
 */
export function recordEvent(
  db: Db,
  projectId: bigint,
  type: EventType,
  resourceId: bigint,
  subject?: { kind: EventSubject; record: unknown },
  to: 'all' | 'streams' | bigint = 'all',
): bigint | undefined {
  return db.write(() => {
    const project = findProject(db, projectId);
    if (!project) return undefined;
    const id = db.newId();
    const createdAt = db.now();
    const body = eventBody({
      id,
      type,
      createdAt,
      project: storedProjectRecord(db, project),
      ...(subject && { subject }),
    });
    insertEvent(db, { id, projectId, type, resourceId, body, createdAt });
    const isReceiver = (one: { id: bigint; type: string; enabled: boolean; options: unknown }) =>
      to === 'all' ? one.type === notifiableTypeOf(type) && (one.enabled || one.options) : one.id === to;
    const receiving = to === 'streams' ? [] : receivers(db).all({ projectId }).filter(isReceiver);
    const reports = receiving.some(({ options }) => options)
      ? reportsOf(db, projectId, type, resourceId)
      : [];
    for (const { id: notificationId, enabled, options } of receiving)
      if (options)
        recordReports(db, { id: notificationId, enabled, options }, { id, type, createdAt }, reports);
      else
        insertDelivery(db, {
          id: db.newId(),
          notificationId,
          eventId: id,
          eventType: type,
          resourceId,
          state: 'pending',
          attempts: 0,
          responseStatus: null,
          responseMs: null,
          responseExcerpt: null,
          lastError: null,
          nextAttemptAt: createdAt,
          createdAt,
          status: null,
          resentAt: null,
        });
    db.touch(`events:${projectId}`);
    if (receiving.length > 0) db.touch('deliveries');
    return id;
  });
}

/** Returns a function that adds the project's SSH key to stored bodies. Without a readable key, events are still sent. */
export function createBodyRenderer(db: Db, projectId: bigint): (stored: string) => string {
  const project = findProject(db, projectId);
  let key: string | undefined;
  try {
    key = project && bareKeyOf(db, project);
  } catch (error) {
    if (!(error instanceof SealedValueError)) throw error;
  }
  return stored => addKey(stored, key);
}

const newer = prepared(db =>
  db.orm
    .select()
    .from(events)
    .where(and(eq(events.projectId, sql.placeholder('projectId')), gt(events.id, sql.placeholder('after'))))
    .orderBy(asc(events.id))
    .limit(sql.placeholder('limit'))
    .prepare(),
);

/** Events with their bodies as they are sent. */
export function listEvents(db: Db, projectId: bigint, after: bigint, limit: number): Event[] {
  const rows = newer(db).all({ projectId, after, limit });
  const bodyOf = createBodyRenderer(db, projectId);
  return rows.map(event => ({ ...event, body: bodyOf(event.body) }));
}

const newest = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint], bigint | null>('SELECT max(id) FROM events WHERE project_id = ?').pluck(),
);

/** The newest event of a project: where a stream without replay starts. */
export const lastEventId = (db: Db, projectId: bigint): bigint => newest(db).get(projectId) ?? 0n;
