// Makes a backup while the server serves: a consistent copy of the database and of everything that it refers to.
// The file's name appears when it is complete. Its form is backup-format.ts's.

import { existsSync } from 'node:fs';
import { lstat, rename, stat } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { DataError, readMasterKey } from '../data/data.ts';
import { syncDirectory } from '../data/fsync.ts';
import { databasePath } from '../data/paths.ts';
import { openSqlite } from '../database/db.ts';
import { type BackupHead, databaseName, FORMAT_VERSION, HEAD_NAME, kept, keyName } from './format.ts';
import { namesIn, takeSnapshot } from './snapshot.ts';
import { openWorkPlace } from './work.ts';
import { type BackupWriter, createBackupWriter } from './writer.ts';

export type BackupWishes = {
  data: string;
  file: string;
  version: string;
  logs: boolean;
  keys: boolean;
  environment: NodeJS.ProcessEnv;
  /** Bytes read so far, out of about how many. */
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
};

export type BackupMade = {
  entries: number;
  sizeBytes: number;
  /** What the database refers to and the data directory does not have: damage from before the backup. */
  missing: string[];
};

export async function makeBackup(wishes: BackupWishes): Promise<BackupMade> {
  const data = resolve(wishes.data);
  const file = resolve(wishes.file);
  const key = await checkWishes(data, file, wishes);
  const work = await openWorkPlace(dirname(file), `.${basename(file)}.part-`);
  try {
    const totalBytes = await sizeOf(data, wishes);
    let doneBytes = 0;
    const written = join(work.path, 'backup');
    const writer = await createBackupWriter(written, join(work.path, 'sums'), bytes => {
      doneBytes += bytes;
      wishes.onProgress?.(doneBytes, Math.max(totalBytes, doneBytes));
      wishes.signal?.throwIfAborted();
    });
    try {
      const missing = await writeAll(writer, { data, work: work.path, key, wishes });
      const made = await writer.finish();
      wishes.signal?.throwIfAborted();
      await rename(written, file);
      await syncDirectory(dirname(file));
      noteBackup(data);
      return { ...made, missing };
    } catch (cause) {
      await writer.destroy();
      throw cause;
    }
  } finally {
    await work.clear();
  }
}

/** For the administration page. Not by `openData`: a newer program must not migrate what an older one is serving. */
function noteBackup(data: string): void {
  const sqlite = openSqlite(databasePath(data));
  try {
    sqlite
      .prepare(
        "INSERT INTO facts (name, value) VALUES ('last_backup_at', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
      )
      .run(String(Date.now()));
  } catch {
    // A full disk, or others that write without a pause: the backup is there and whole all the same.
  } finally {
    sqlite.close();
  }
}

async function checkWishes(data: string, file: string, wishes: BackupWishes): Promise<Buffer | undefined> {
  if (!existsSync(databasePath(data)))
    throw new DataError(`there is no database in ${data}: name the data directory with --data`);
  if (!relative(data, file).startsWith('..'))
    throw new DataError(
      `${file} is in the data directory itself: put the backup elsewhere, best on another disk`,
    );
  const place = await stat(dirname(file)).catch(() => undefined);
  if (!place?.isDirectory()) throw new DataError(`there is no directory ${dirname(file)}: make it first`);
  if ((await stat(file).catch(() => undefined))?.isDirectory())
    throw new DataError(`${file} is a directory: name a file in it`);
  if (!wishes.keys) return undefined;
  const key = readMasterKey(data, wishes.environment);
  if (!key)
    throw new DataError(
      `--with-key: the master key is not in ${data}: leave the flag out, and keep a copy of the key yourself`,
    );
  return key;
}

/**
 * First everything that never changes once it is there, then the database, then what came in between and is held. So
 * nothing that the copy of the database refers to can be missing, whatever is deleted or replaced meanwhile.
 */
async function writeAll(
  writer: BackupWriter,
  from: { data: string; work: string; key: Buffer | undefined; wishes: BackupWishes },
): Promise<string[]> {
  const { data, work, key, wishes } = from;
  const head: BackupHead = {
    format: 'assay-backup',
    version: FORMAT_VERSION,
    assay: wishes.version,
    createdAt: new Date().toISOString(),
    keys: wishes.keys,
    logs: wishes.logs,
  };
  await writer.addBytes(HEAD_NAME, Buffer.from(`${JSON.stringify(head, null, 2)}\n`));

  const have = new Set<string>();
  const add = async (name: string) => {
    if (await addFile(writer, data, name)) have.add(name);
  };
  for (const directory of [kept.archives, kept.artifacts])
    for (const name of await namesIn(data, directory)) await add(name);
  const snapshot = join(work, 'snapshot');
  const { held, referred } = await takeSnapshot(data, snapshot, have, () => wishes.signal?.throwIfAborted());
  for (const [name, file] of held) {
    await writer.addOpen(name, file).finally(() => file.close());
    have.add(name);
  }
  await writer.addFile(databaseName, snapshot);

  if (wishes.logs) for (const name of await namesIn(data, kept.logs)) await add(name);
  for (const name of kept.ssh) await add(name);
  if (key) {
    for (const name of await namesIn(data, kept.tls)) await add(name);
    await writer.addBytes(keyName, Buffer.from(`${key.toString('base64')}\n`));
  }
  return referred.filter(name => !have.has(name));
}

/** False where it is gone meanwhile. */
async function addFile(writer: BackupWriter, data: string, name: string): Promise<boolean> {
  try {
    await writer.addFile(name, join(data, name));
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw cause;
  }
}

/** About how much there is to read; only for showing how far it has come. */
async function sizeOf(data: string, wishes: BackupWishes): Promise<number> {
  const names = [
    ...(await namesIn(data, kept.archives)),
    ...(await namesIn(data, kept.artifacts)),
    ...(wishes.logs ? await namesIn(data, kept.logs) : []),
  ];
  let bytes = (await stat(databasePath(data))).size;
  for (const name of names) bytes += (await lstat(join(data, name)).catch(() => undefined))?.size ?? 0;
  return bytes;
}
