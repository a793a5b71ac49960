// Removes artifacts of builds that have expired, and ZIP files that no build needs any more.

import { opendir } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { parseId } from '../../domain/id.ts';
import { buildFilesDirectory } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import {
  deleteArtifacts,
  isArtifactFileUnused,
  listExpiredArtifacts,
  removeArtifacts,
} from '../../store/result/artifact-retention.ts';

const BUILDS_AT_ONCE = 50;

/** Deletes the artifacts of builds that finished `artifactsMs` ago, except those that are kept. */
export async function sweepExpiredArtifacts(
  db: Db,
  dataDirectory: string,
  artifactsMs: number,
): Promise<void> {
  let after: bigint | undefined = 0n;
  while (after !== undefined) {
    const { expired, lastId } = listExpiredArtifacts(db, db.now() - artifactsMs, after, BUILDS_AT_ONCE);
    for (const build of expired) await deleteArtifacts(db, dataDirectory, build);
    after = lastId;
    await nextTurn();
  }
}

/** Removes files of deleted projects, of deletions that were interrupted, and of collections that a kill interrupted. */
export async function sweepArtifactFiles(db: Db, dataDirectory: string): Promise<void> {
  for await (const { name } of await opendir(buildFilesDirectory(dataDirectory))) {
    const id = parseId(/^(\d+)\.zip$/.exec(name)?.[1] ?? '');
    if (id !== undefined && isArtifactFileUnused(db, id)) await removeArtifacts(db, dataDirectory, id);
  }
}
