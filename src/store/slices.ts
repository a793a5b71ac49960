// Takes away what may be millions of rows slice by slice, and lets others have their turn in between: in one transaction
// it would hold up the whole server for as long as it takes. The record they belong to goes afterwards, with the rest.

import { setImmediate } from 'node:timers/promises';
import type { Db } from './db.ts';

const ROWS_A_SLICE = 1_000;

/** What has come to an end, children before parents; what is under way goes with the project itself. */
const ofProject: readonly [table: string, rows: string][] = [
  ['events', 'SELECT id FROM events WHERE project_id = ?'],
  [
    'deliveries',
    'SELECT d.id FROM notifications n JOIN deliveries d ON d.notification_id = n.id WHERE n.project_id = ?',
  ],
  ['deploys', "SELECT id FROM deploys WHERE project_id = ? AND state NOT IN ('enqueued', 'deploying')"],
  ['builds', "SELECT id FROM builds WHERE project_id = ? AND build_state NOT IN ('enqueued', 'running')"],
  [
    'build_requests',
    `SELECT id FROM build_requests AS r
     WHERE project_id = ? AND build_state NOT IN ('enqueued', 'fetching', 'building')
       AND NOT EXISTS (SELECT 1 FROM builds WHERE build_request_id = r.id)`,
  ],
  [
    'commits',
    `SELECT id FROM commits AS c
     WHERE project_id = ?
       AND NOT EXISTS (SELECT 1 FROM build_requests WHERE commit_id = c.id)
       AND NOT EXISTS (SELECT 1 FROM builds WHERE commit_id = c.id)
       AND NOT EXISTS (SELECT 1 FROM deploys WHERE commit_id = c.id)`,
  ],
];

/** Done half, by a crash, it is a project with less of a past; asked again, it is done to its end. */
export async function emptyProject(db: Db, id: bigint): Promise<void> {
  for (const [table, rows] of ofProject) await deleteRows(db, table, rows, id);
}

/** From the first moment on nothing more is sent. */
export async function emptyNotification(db: Db, id: bigint): Promise<void> {
  db.write(() => {
    db.sqlite.prepare('UPDATE notifications SET enabled = 0 WHERE id = ?').run(id);
    db.sqlite.prepare("DELETE FROM deliveries WHERE notification_id = ? AND state = 'pending'").run(id);
    db.touch('deliveries');
  });
  await deleteRows(db, 'deliveries', 'SELECT id FROM deliveries WHERE notification_id = ?', id);
}

async function deleteRows(db: Db, table: string, rows: string, id: bigint): Promise<void> {
  const slice = db.sqlite.prepare(`DELETE FROM ${table} WHERE id IN (${rows} LIMIT ${ROWS_A_SLICE})`);
  while (db.write(() => slice.run(id)).changes > 0) await setImmediate();
}
