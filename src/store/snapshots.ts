// Snapshots: working trees that users sent, to run suites on. Their commits are in repositories in the data directory.

import { eq, lt, sql } from 'drizzle-orm';
import type { Db } from './database/db.ts';
import { findIn } from './database/page.ts';
import { snapshots } from './database/schema.ts';
import { unfinished } from './database/unfinished.ts';

export type Snapshot = typeof snapshots.$inferSelect;

/** How long a snapshot is kept. */
export const SNAPSHOT_MS = 7 * 24 * 3_600_000;

/** `keep` gives the repository the name of its id. The row is not stored if it fails. */
export function createSnapshot(
  db: Db,
  fields: Pick<Snapshot, 'projectId' | 'accountId' | 'ref' | 'sizeBytes'>,
  keep: (id: bigint) => void,
): Snapshot {
  return db.write(() => {
    const snapshot = { ...fields, id: db.newId(), createdAt: db.now() };
    db.orm.insert(snapshots).values(snapshot).run();
    keep(snapshot.id);
    return snapshot;
  });
}

export const findSnapshot = findIn(snapshots, snapshots.projectId);

export function listSnapshotIds(db: Db): Set<bigint> {
  const rows = db.orm.select({ id: snapshots.id }).from(snapshots).all();
  return new Set(rows.map(({ id }) => id));
}

export function deleteSnapshot(db: Db, id: bigint): void {
  db.write(() => db.orm.delete(snapshots).where(eq(snapshots.id, id)).run());
}

export function deleteExpiredSnapshots(db: Db): void {
  const expired = lt(snapshots.createdAt, db.now() - SNAPSHOT_MS);
  if (db.orm.select({ id: snapshots.id }).from(snapshots).where(expired).limit(1).get())
    db.write(() => db.orm.delete(snapshots).where(expired).run());
}

/** The snapshots whose repositories are mounted in containers. */
export function listMountedSnapshots(db: Db): Set<bigint> {
  // From the few running builds to their requests, of which there may be millions.
  const rows = db.orm.all<{ id: bigint }>(
    sql`SELECT DISTINCT snapshot_id AS id
        FROM (SELECT build_request_id FROM builds
              WHERE ${sql.raw(unfinished.build)} AND build_state = 'running') AS running
        CROSS JOIN build_requests ON build_requests.id = running.build_request_id
        WHERE snapshot_id IS NOT NULL`,
  );
  return new Set(rows.map(({ id }) => id));
}
