// A copy of the database as of one moment, while others write, and a hold on the files that it refers to as of the same
// moment. What becomes of both is backup.ts's.

import { chmod, type FileHandle, open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { DataError } from '../data/data.ts';
import { archivePath, artifactPath, databasePath } from '../data/paths.ts';
import { isDamageError } from '../database/database-check.ts';
import { openSqlite } from '../database/db.ts';
import { isKeptName } from './format.ts';

type Sqlite = ReturnType<typeof openSqlite>;

/** Of the files that the copy refers to, those that `have` lacks: open, so that they stay even when they are deleted. */
export type Snapshot = { held: Map<string, FileHandle>; referred: string[] };

const PAGES_A_STEP = 2_000;

export async function takeSnapshot(
  data: string,
  target: string,
  have: ReadonlySet<string>,
  onStep: () => void,
): Promise<Snapshot> {
  const path = databasePath(data);
  const reader = openSqlite(path);
  const held = new Map<string, FileHandle>();
  try {
    const writer = openSqlite(path);
    let referred: string[];
    try {
      // For these milliseconds nobody writes, so nobody deletes what a row still refers to.
      writer.exec('BEGIN IMMEDIATE');
      reader.exec('BEGIN');
      referred = referredFiles(reader);
      await holdFiles(
        data,
        referred.filter(name => !have.has(name)),
        held,
      );
    } finally {
      writer.close();
    }
    // Step by step, so that signals are heard; the reader's transaction keeps it at that one moment.
    await reader.backup(target, {
      progress: () => {
        onStep();
        return PAGES_A_STEP;
      },
    });
    checkCopy(target, path);
    await chmod(target, 0o600);
    return { held, referred };
  } catch (cause) {
    for (const file of held.values()) await file.close();
    throw isDamageError(cause) ? damaged(path) : cause;
  } finally {
    reader.close();
  }
}

const damaged = (path: string) =>
  new DataError(
    `${path} is damaged, so no backup was made of it: an older one is the way back ("assay restore")`,
  );

/** A damaged database must not take the place of good backups. */
function checkCopy(target: string, path: string): void {
  const sqlite = openSqlite(target);
  try {
    if (sqlite.pragma('quick_check(1)', { simple: true }) !== 'ok') throw damaged(path);
    // The journal beside it would have to be saved with it.
    sqlite.pragma('journal_mode = DELETE');
  } finally {
    sqlite.close();
  }
}

/** Where the rows say that files are. */
export function referredFiles(sqlite: Sqlite): string[] {
  const column = (sql: string) => sqlite.prepare(sql).pluck().all() as string[];
  return [
    ...column('SELECT DISTINCT archive_hash FROM dependencies WHERE archive_hash IS NOT NULL').map(hash =>
      archivePath('', hash),
    ),
    ...column('SELECT hash FROM artifacts').map(hash => artifactPath('', hash)),
  ];
}

/** One that is not there is found missing later. */
async function holdFiles(
  data: string,
  names: readonly string[],
  held: Map<string, FileHandle>,
): Promise<void> {
  for (const name of names) {
    const file = await open(join(data, name), 'r').catch(cause => {
      if (cause.code === 'ENOENT') return undefined;
      throw cause;
    });
    if (file) held.set(name, file);
  }
}

/** The files in a directory of the data directory, under the names that entries have. */
export async function namesIn(data: string, directory: string): Promise<string[]> {
  const entries = await readdir(join(data, directory), { withFileTypes: true }).catch(cause => {
    if (cause.code === 'ENOENT') return [];
    throw cause;
  });
  return entries
    .filter(entry => entry.isFile())
    .map(({ name }) => `${directory}/${name}`)
    .filter(isKeptName)
    .sort();
}
