// Deletes what may be millions of rows in batches. A project or a notification is marked as deleted first, and is gone for
// everybody from then on; its rows follow, and the marked row itself is the last.

import { eq } from 'drizzle-orm';
import { type Db, prepared } from '../database/db.ts';
import { collaborators, notifications, projects } from '../database/schema.ts';

const ROWS_AT_ONCE = 100;
/** A batch takes about this long on any machine: everybody else waits meanwhile. */
const BATCH_MS = 8;

/** Children before parents. */
const ofProject: readonly [table: string, rows: string][] = [
  ['events', 'SELECT id FROM events WHERE project_id = ?'],
  [
    'deliveries',
    'SELECT d.id FROM notifications n JOIN deliveries d ON d.notification_id = n.id WHERE n.project_id = ?',
  ],
  ['deploys', 'SELECT id FROM deploys WHERE project_id = ?'],
  ['builds', 'SELECT id FROM builds WHERE project_id = ?'],
  ['build_requests', 'SELECT id FROM build_requests WHERE project_id = ?'],
  ['commits', 'SELECT id FROM commits WHERE project_id = ?'],
  ['suites', 'SELECT id FROM suites WHERE project_id = ?'],
  ['projects', 'SELECT id FROM projects WHERE id = ?'],
];
const ofNotification: typeof ofProject = [
  ['deliveries', 'SELECT id FROM deliveries WHERE notification_id = ?'],
  ['notifications', 'SELECT id FROM notifications WHERE id = ?'],
];

const purges = prepared(({ sqlite }) => {
  const statementsOf = (tables: typeof ofProject) =>
    tables.map(([table, rows]) =>
      sqlite.prepare<[bigint]>(`DELETE FROM ${table} WHERE id IN (${rows} LIMIT ${ROWS_AT_ONCE})`),
    );
  const firstOf = (table: string) =>
    sqlite.prepare<[], bigint>(`SELECT id FROM ${table} WHERE deleted_at IS NOT NULL LIMIT 1`).pluck();
  return [
    { first: firstOf('notifications'), statements: statementsOf(ofNotification) },
    { first: firstOf('projects'), statements: statementsOf(ofProject) },
  ];
});

/** Deletes a batch of rows of something that was deleted; false when nothing is left. */
export function purgeSomeRows(db: Db, batchMs = BATCH_MS): boolean {
  return db.write(() => {
    for (const { first, statements } of purges(db)) {
      const id = first.get();
      if (id === undefined) continue;
      const endsAt = performance.now() + batchMs;
      for (const statement of statements)
        while (statement.run(id).changes > 0) if (performance.now() >= endsAt) return true;
      return true;
    }
    return false;
  });
}

/** With the conditions of the indexes of unfinished rows. */
const underWay: readonly [table: string, isUnderWay: string][] = [
  ['builds', "build_state IN ('enqueued', 'running') AND build_state = 'running'"],
  ['build_requests', "build_state IN ('enqueued', 'fetching', 'building') AND build_state = 'fetching'"],
  ['deploys', "state IN ('enqueued', 'deploying') AND state = 'deploying'"],
];

/**
 * From now on nobody sees it, nothing of it starts, and nothing is sent of it; its name can be given again. What runs for
 * it is ended by the queue, which finds its row gone.
 */
export function deleteProject(db: Db, id: bigint): void {
  db.write(() => {
    db.orm
      .update(projects)
      .set({ deletedAt: db.now(), name: '', nameKey: null })
      .where(eq(projects.id, id))
      .run();
    db.orm.update(notifications).set({ deletedAt: db.now() }).where(eq(notifications.projectId, id)).run();
    db.orm.delete(collaborators).where(eq(collaborators.projectId, id)).run();
    // A dependency that no other project uses can be deleted at once.
    db.sqlite
      .prepare(
        'DELETE FROM suite_dependencies WHERE suite_id IN (SELECT id FROM suites WHERE project_id = ?)',
      )
      .run(id);
    // Each by its index of unfinished rows, however many others there are.
    for (const [table, isUnderWay] of underWay)
      db.sqlite
        .prepare(`DELETE FROM ${table} INDEXED BY ${table}_unfinished WHERE project_id = ? AND ${isUnderWay}`)
        .run(id);
    for (const topic of [`project:${id}`, 'queue', 'deliveries', 'batches']) db.touch(topic);
  });
}

/** From now on nothing more is sent to it. */
export function deleteNotification(db: Db, id: bigint): void {
  db.write(() => {
    db.orm.update(notifications).set({ deletedAt: db.now() }).where(eq(notifications.id, id)).run();
    db.touch('deliveries');
    db.touch('batches');
  });
}
