// Creates snapshots of working trees from bundles, and removes them when they have expired.

import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, renameSync, statSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { parseId } from '../../domain/id.ts';
import { refusal } from '../../domain/refusal.ts';
import { GitFailure } from '../../engine/git/git.ts';
import { hasCommit } from '../../engine/git/history.ts';
import { BundleFailure, unpackSnapshot } from '../../engine/git/snapshot.ts';
import type { Log } from '../../log.ts';
import { mirrorPath, snapshotDirectory, snapshotPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { findProject, type Project } from '../../store/projects.ts';
import {
  createSnapshot,
  deleteExpiredSnapshots,
  deleteSnapshot,
  findSnapshot,
  listMountedSnapshots,
  listSnapshotIds,
  type Snapshot,
} from '../../store/snapshots.ts';
import { createKeyedMutex } from '../keyed-mutex.ts';

type SnapshotOptions = {
  db: Db;
  log: Log;
  dataDirectory: string;
  hasFreeSpace(): boolean;
  stopping: AbortSignal;
};

/** A younger repository may belong to a row that is not written yet. */
const GRACE_MS = 60_000;
const DRAFT_PREFIX = '.draft-';

export function createSnapshots(options: SnapshotOptions) {
  const { db, log, dataDirectory, hasFreeSpace, stopping } = options;
  const mutex = createKeyedMutex();
  return {
    hasCommit: (projectId: bigint, hash: string) => hasCommit(mirrorPath(dataDirectory, projectId), hash),
    async create(
      project: Project,
      accountId: bigint,
      bundle: { path: string; sizeBytes: number },
    ): Promise<Snapshot> {
      const draft = join(snapshotDirectory(dataDirectory), `${DRAFT_PREFIX}${randomUUID()}`);
      try {
        // Unpacking may take much memory, so an account unpacks one bundle at a time.
        using _lock = await mutex(`${accountId}`, stopping);
        const ref = await unpackSnapshot({
          bundle: bundle.path,
          mirror: mirrorPath(dataDirectory, project.id),
          repository: draft,
          hasFreeSpace,
          signal: stopping,
        });
        if (!findProject(db, project.id)) throw refusal('not_found');
        const fields = { projectId: project.id, accountId, ref, sizeBytes: bundle.sizeBytes };
        return createSnapshot(db, fields, id => renameSync(draft, snapshotPath(dataDirectory, id)));
      } catch (error) {
        if (stopping.aborted) throw refusal('resource_temporary_unavailable');
        if (!(error instanceof BundleFailure)) throw error;
        log.info('bundle refused', { project: project.id, account: accountId, cause: error });
        if (error.reason === 'disk_full') throw refusal('resource_temporary_unavailable');
        if (error.reason === 'unknown_base') throw refusal('not_found', 'base');
        throw refusal('invalid_format', 'bundle');
      } finally {
        await rm(draft, { recursive: true, force: true });
      }
    },
  };
}

/** The repository and the commit of a request's snapshot. */
export function getSnapshot(
  { db, dataDirectory }: Pick<SnapshotOptions, 'db' | 'dataDirectory'>,
  { projectId, snapshotId }: { projectId: bigint; snapshotId: bigint | null },
): { repository: string; ref: string } {
  const snapshot = findSnapshot(db, projectId, snapshotId as bigint);
  const repository = snapshot && snapshotPath(dataDirectory, snapshot.id);
  if (!repository || !existsSync(repository))
    throw new GitFailure('The working tree was deleted after 7 days: run it again.');
  return { repository, ref: snapshot.ref };
}

/** Removes what a killed server left, and rows without a repository, as after a restore. Call it before uploads begin. */
export async function clearSnapshots(db: Db, dataDirectory: string): Promise<void> {
  const ids = listSnapshotIds(db);
  const directory = snapshotDirectory(dataDirectory);
  for (const name of readdirSync(directory)) {
    const id = idIn(name);
    // A git that outlived the server may still write to it.
    if (id === undefined || !ids.has(id))
      await rm(join(directory, name), { recursive: true, force: true, maxRetries: 5 });
  }
  for (const id of ids) if (!existsSync(snapshotPath(dataDirectory, id))) deleteSnapshot(db, id);
}

/** Deletes expired snapshots, and the repositories of deleted ones once no container uses them. */
export async function sweepSnapshots(
  db: Db,
  dataDirectory: string,
  { graceMs = GRACE_MS } = {},
): Promise<void> {
  deleteExpiredSnapshots(db);
  const needed = new Set([...listSnapshotIds(db), ...listMountedSnapshots(db)]);
  const directory = snapshotDirectory(dataDirectory);
  for (const name of await readdir(directory)) {
    const id = idIn(name);
    const path = join(directory, name);
    const isYoung = Date.now() - (statSync(path, { throwIfNoEntry: false })?.ctimeMs ?? 0) < graceMs;
    if (id !== undefined && !isYoung && !needed.has(id)) await rm(path, { recursive: true, force: true });
  }
}

const idIn = (name: string): bigint | undefined => parseId(/^(\d+)\.git$/.exec(name)?.[1] ?? '');
