// Deletes projects, notifications and triggers, which may have millions of rows. They are marked as deleted first, and are invisible
// from then on. Their rows are then purged in batches, the marked row last.

import { eq } from 'drizzle-orm';
import { type Db, prepared } from '../database/db.ts';
import { collaborators, notifications, projects, triggers } from '../database/schema.ts';
import { unfinished } from '../database/unfinished.ts';

const ROWS_AT_ONCE = 100;
/** How long a batch may take, without the commit. Everything else waits meanwhile. */
const BATCH_MS = 3;

type Rows = [table: string, rows: string];

const FIRST_BUILDS = `SELECT id FROM builds WHERE project_id = ? ORDER BY id LIMIT ${ROWS_AT_ONCE}`;
/** Of the next builds only. To look for rows of all builds again and again would take hours with a million of them. */
const ofFirstBuilds = (table: string): Rows => [
  table,
  `SELECT child.rowid FROM (${FIRST_BUILDS}) AS first JOIN ${table} AS child ON child.build_id = first.id`,
];

/** Children before parents. A group is repeated until its last table has no more rows. */
const ofProject: readonly (Rows | readonly Rows[])[] = [
  ['events', 'SELECT id FROM events WHERE project_id = ?'],
  [
    'deliveries',
    'SELECT d.id FROM notifications n JOIN deliveries d ON d.notification_id = n.id WHERE n.project_id = ?',
  ],
  ['firings', 'SELECT f.id FROM triggers t JOIN firings f ON f.trigger_id = t.id WHERE t.project_id = ?'],
  ['deploys', 'SELECT id FROM deploys WHERE project_id = ?'],
  ['failure_lines', 'SELECT id FROM failure_lines WHERE project_id = ?'],
  [ofFirstBuilds('build_artifacts'), ofFirstBuilds('test_failures'), ['builds', FIRST_BUILDS]],
  ['tests', 'SELECT id FROM tests WHERE project_id = ?'],
  ['build_requests', 'SELECT id FROM build_requests WHERE project_id = ?'],
  ['commits', 'SELECT id FROM commits WHERE project_id = ?'],
  ['suites', 'SELECT id FROM suites WHERE project_id = ?'],
  ['snapshots', 'SELECT id FROM snapshots WHERE project_id = ?'],
  ['seen_refs', 'SELECT rowid FROM seen_refs WHERE project_id = ?'],
  ['projects', 'SELECT id FROM projects WHERE id = ?'],
];
const ofNotification: typeof ofProject = [
  ['deliveries', 'SELECT id FROM deliveries WHERE notification_id = ?'],
  ['notifications', 'SELECT id FROM notifications WHERE id = ?'],
];
const ofTrigger: typeof ofProject = [
  ['firings', 'SELECT id FROM firings WHERE trigger_id = ?'],
  ['triggers', 'SELECT id FROM triggers WHERE id = ?'],
];

const isGroup = (entry: Rows | readonly Rows[]): entry is readonly Rows[] => Array.isArray(entry[0]);

const purges = prepared(({ sqlite }) => {
  const prepareDelete = ([table, rows]: Rows) =>
    sqlite.prepare<[bigint]>(
      `DELETE FROM ${table} WHERE rowid IN (SELECT * FROM (${rows}) LIMIT ${ROWS_AT_ONCE})`,
    );
  const groupsOf = (tables: typeof ofProject) =>
    tables.map(entry => (isGroup(entry) ? entry : [entry]).map(prepareDelete));
  const firstOf = (table: string) =>
    sqlite.prepare<[], bigint>(`SELECT id FROM ${table} WHERE deleted_at IS NOT NULL LIMIT 1`).pluck();
  return [
    { first: firstOf('notifications'), groups: groupsOf(ofNotification) },
    { first: firstOf('triggers'), groups: groupsOf(ofTrigger) },
    { first: firstOf('projects'), groups: groupsOf(ofProject) },
  ];
});

type Deletion = { run(id: bigint): { changes: number } };

/** Deletes rows of the last table once those of the others are gone. Yields after each step. */
function* deleteRows(statements: readonly Deletion[], id: bigint): Generator<void> {
  const [parent, ...children] = statements.toReversed() as [Deletion, ...Deletion[]];
  for (;;) {
    for (const child of children) while (child.run(id).changes > 0) yield;
    if (parent.run(id).changes === 0) return;
    yield;
  }
}

/** Purges a batch of rows of a deleted project, notification or trigger. False if nothing is left. */
export function purgeSomeRows(db: Db, batchMs = BATCH_MS): boolean {
  return db.writeUnsynced(() => {
    for (const { first, groups } of purges(db)) {
      const id = first.get();
      if (id === undefined) continue;
      const endsAt = performance.now() + batchMs;
      for (const group of groups)
        for (const _ of deleteRows(group, id)) if (performance.now() >= endsAt) return true;
      return true;
    }
    return false;
  });
}

/** Each condition repeats the one of the table's index of unfinished rows, so that SQLite can use the index. */
const runningWork: readonly [table: string, isRunning: string][] = [
  ['builds', `${unfinished.build} AND build_state = 'running'`],
  ['build_requests', `${unfinished.request} AND build_state = 'fetching'`],
  ['deploys', `${unfinished.deploy} AND state = 'deploying'`],
];

/**
 * The project becomes invisible, none of its jobs starts, nothing more is sent, and its name is free again. Rows of running
 * jobs are deleted here; the queue stops a job whose row is gone.
 */
export function deleteProject(db: Db, id: bigint): void {
  db.write(() => {
    db.orm
      .update(projects)
      .set({ deletedAt: db.now(), name: '', nameKey: null })
      .where(eq(projects.id, id))
      .run();
    db.orm.update(notifications).set({ deletedAt: db.now() }).where(eq(notifications.projectId, id)).run();
    db.orm.update(triggers).set({ deletedAt: db.now() }).where(eq(triggers.projectId, id)).run();
    db.orm.delete(collaborators).where(eq(collaborators.projectId, id)).run();
    // A dependency that no other project uses can be deleted from now on.
    db.sqlite
      .prepare(
        'DELETE FROM suite_dependencies WHERE suite_id IN (SELECT id FROM suites WHERE project_id = ?)',
      )
      .run(id);
    for (const [table, isRunning] of runningWork)
      db.sqlite
        .prepare(`DELETE FROM ${table} INDEXED BY ${table}_unfinished WHERE project_id = ? AND ${isRunning}`)
        .run(id);
    for (const topic of [`project:${id}`, 'queue', 'deliveries', 'batches', 'triggers']) db.touch(topic);
  });
}

/** Nothing more is sent to the receiver. */
export function deleteNotification(db: Db, id: bigint): void {
  db.write(() => {
    db.orm.update(notifications).set({ deletedAt: db.now() }).where(eq(notifications.id, id)).run();
    db.touch('deliveries');
    db.touch('batches');
  });
}

/** It fires no more, and its name is free again. Build requests that it made stay. */
export function deleteTrigger(db: Db, { id, projectId }: { id: bigint; projectId: bigint }): void {
  db.write(() => {
    db.orm
      .update(triggers)
      .set({ deletedAt: db.now(), name: '', nameKey: null })
      .where(eq(triggers.id, id))
      .run();
    for (const topic of [`project:${projectId}`, 'triggers', 'batches']) db.touch(topic);
  });
}
