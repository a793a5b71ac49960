// Makes a backup while the server serves: a consistent copy of the database and of every file that it refers to.
// The file gets its name when it is complete.

import { existsSync } from 'node:fs';
import {
  chmod,
  constants,
  type FileHandle,
  lstat,
  open,
  readdir,
  rename,
  stat,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { syncDirectory } from '../../fsync.ts';
import { DataError, readMasterKey } from '../data/data.ts';
import { archivePath, artifactPath, databasePath, logFilterPath } from '../data/paths.ts';
import { isDamageError } from '../database/database-check.ts';
import { openSqlite, type Sqlite } from '../database/db.ts';
import {
  type BackupHead,
  databaseName,
  FORMAT_VERSION,
  HEAD_NAME,
  isKeptName,
  type kept,
  keyName,
  sshNames,
  writeArchive,
} from './archive.ts';
import { inWorkDirectory } from './work-directory.ts';

type BackupOptions = {
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

const PAGES_PER_STEP = 2_000;

/** `missing` names files that the database refers to and that were gone before the backup. */
export async function makeBackup(
  options: BackupOptions,
): Promise<{ entries: number; sizeBytes: number; missing: string[] }> {
  const data = resolve(options.data);
  const file = resolve(options.file);
  const key = await checkOptions(data, file, options);
  return inWorkDirectory(dirname(file), `.${basename(file)}.part-`, async work => {
    const totalBytes = await sizeOf(data, options);
    const missing: string[] = [];
    let doneBytes = 0;
    const files = openFiles({ ...options, data, key, work, missing });
    const made = await writeArchive(join(work, 'backup'), work, files, bytes => {
      doneBytes += bytes;
      options.onProgress?.(doneBytes, Math.max(totalBytes, doneBytes));
      options.signal?.throwIfAborted();
    });
    options.signal?.throwIfAborted();
    await rename(join(work, 'backup'), file);
    await syncDirectory(dirname(file));
    recordBackup(data);
    return { ...made, missing };
  });
}

/** For the administration page. Not by `openData`: a newer program must not migrate what an older one is serving. */
function recordBackup(data: string): void {
  using sqlite = openSqlite(databasePath(data));
  try {
    sqlite
      .prepare("INSERT OR REPLACE INTO facts (name, value) VALUES ('last_backup_at', ?)")
      .run(String(Date.now()));
  } catch {
    // A full disk, or others that write without a pause: the backup is complete all the same.
  }
}

async function checkOptions(data: string, file: string, options: BackupOptions): Promise<Buffer | undefined> {
  await checkNewFile(data, file);
  if (!options.keys) return undefined;
  const key = readMasterKey(data, options.environment);
  if (!key)
    throw new DataError(
      `--with-key: the master key is not in ${data}: leave the flag out, and keep a copy of the key yourself`,
    );
  return key;
}

/** Refuses a data directory without a database, and a file that cannot be made or would be inside it. */
export async function checkNewFile(data: string, file: string): Promise<void> {
  if (!existsSync(databasePath(data)))
    throw new DataError(`there is no database in ${data}: name the data directory with --data`);
  if (!relative(data, file).startsWith('..'))
    throw new DataError(
      `${file} is in the data directory itself: put the file elsewhere, best on another disk`,
    );
  const parent = await stat(dirname(file)).catch(() => undefined);
  if (!parent?.isDirectory()) throw new DataError(`there is no directory ${dirname(file)}: make it first`);
  if ((await stat(file).catch(() => undefined))?.isDirectory())
    throw new DataError(`${file} is a directory: name a file in it`);
}

/**
 * First everything that never changes once it is there, then the database, then what came in between and is held open. So
 * nothing that the copy of the database refers to can be missing, whatever is deleted or replaced meanwhile.
 */
async function* openFiles(
  from: BackupOptions & { key: Buffer | undefined; work: string; missing: string[] },
): AsyncGenerator<{ name: string; file: FileHandle }> {
  const { data, work, key, keys, logs, signal } = from;
  const included = new Set<string>();
  async function* ownFile(name: string, content: string) {
    await writeFile(join(work, name), content, { mode: 0o600 });
    yield { name, file: await open(join(work, name)) };
  }
  async function* filesOf(names: readonly string[]) {
    for (const name of names) {
      const file = await openIfThere(join(data, name));
      if (!file) continue;
      included.add(name);
      yield { name, file };
    }
  }
  const head: BackupHead = {
    format: 'assay-backup',
    version: FORMAT_VERSION,
    assay: from.version,
    createdAt: new Date().toISOString(),
    keys,
    logs,
  };
  yield* ownFile(HEAD_NAME, `${JSON.stringify(head, null, 2)}\n`);
  for (const directory of ['archives', 'artifacts'] as const) yield* filesOf(await namesIn(data, directory));

  const held = new Map<string, FileHandle>();
  const hold = async (names: string[]) => {
    for (const name of names.filter(one => !included.has(one))) {
      const file = await openIfThere(join(data, name));
      if (file) held.set(name, file);
      else from.missing.push(name);
    }
  };
  try {
    await takeSnapshot(data, join(work, databaseName), hold, signal);
    for (const [name, file] of held) yield { name, file };
  } finally {
    for (const file of held.values()) await file.close();
  }
  yield { name: databaseName, file: await open(join(work, databaseName)) };

  if (logs)
    for (const directory of ['logs', 'files'] as const) yield* filesOf(await namesIn(data, directory));
  yield* filesOf(sshNames);
  if (!key) return;
  yield* filesOf(await namesIn(data, 'tls'));
  yield* ownFile(keyName, `${key.toString('base64')}\n`);
}

/** Undefined where it is gone meanwhile. A link is refused. */
async function openIfThere(path: string): Promise<FileHandle | undefined> {
  return open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch(error => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

/** Copies the database as of one moment, while others write. `hold` gets the names of the files that its rows refer to. */
async function takeSnapshot(
  data: string,
  target: string,
  hold: (names: string[]) => Promise<void>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const path = databasePath(data);
  using reader = openSqlite(path);
  try {
    {
      using writer = openSqlite(path);
      // For these milliseconds nobody writes, so nobody deletes what a row still refers to.
      writer.exec('BEGIN IMMEDIATE');
      reader.exec('BEGIN');
      await hold(referredFiles(reader));
    }
    // Step by step, so that signals are heard; the reader's transaction keeps it at that one moment.
    await reader.backup(target, {
      progress: () => {
        signal?.throwIfAborted();
        return PAGES_PER_STEP;
      },
    });
    await chmod(target, 0o600);
    using copy = openSqlite(target);
    // A damaged database must not take the place of good backups.
    if (copy.pragma('quick_check(1)', { simple: true }) !== 'ok') throw damaged(path);
    // The journal beside it would have to be saved with it.
    copy.pragma('journal_mode = DELETE');
  } catch (error) {
    throw isDamageError(error) ? damaged(path) : error;
  }
}

const damaged = (path: string) =>
  new DataError(
    `${path} is damaged, so no backup was made of it: an older one is the way back ("assay restore")`,
  );

/** The files that the rows refer to. */
export function referredFiles(sqlite: Sqlite): string[] {
  const column = (sql: string) => sqlite.prepare(sql).pluck().all() as string[];
  const archives = column('SELECT DISTINCT archive_hash FROM dependencies WHERE archive_hash IS NOT NULL');
  const artifacts = column('SELECT hash FROM artifacts');
  return [...archives.map(hash => archivePath('', hash)), ...artifacts.map(hash => artifactPath('', hash))];
}

/** The files in a directory of the data directory, under the names that entries have. */
async function namesIn(data: string, directory: (typeof kept)[number]): Promise<string[]> {
  const entries = await readdir(join(data, directory), { withFileTypes: true }).catch(error => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return (
    entries
      .filter(entry => entry.isFile())
      .map(({ name }) => `${directory}/${name}`)
      // The filters of logs and the indexes of artifacts are made again.
      .filter(
        name => isKeptName(name) && !name.endsWith(logFilterPath('')) && !/\.index(\.part)?$/.test(name),
      )
      .sort()
  );
}

/** About how much there is to read; only for showing the progress. */
async function sizeOf(data: string, { logs }: BackupOptions): Promise<number> {
  let bytes = (await stat(databasePath(data))).size;
  for (const directory of ['archives', 'artifacts', ...(logs ? (['logs', 'files'] as const) : [])] as const)
    for (const name of await namesIn(data, directory))
      bytes += (await lstat(join(data, name)).catch(() => undefined))?.size ?? 0;
  return bytes;
}
