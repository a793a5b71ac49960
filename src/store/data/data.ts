// The data directory as a whole: made on first use, held by one server at a time, opened with its key.

import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { checkDatabaseFile } from '../database/database-check.ts';
import { type Db, openDb, openSqlite } from '../database/db.ts';
import { NewerSchemaError, type OnUpgrade } from '../database/migrations.ts';
import { findStoredValue } from '../database/settings.ts';
import { createVault } from '../database/vault.ts';
import { databasePath, directories, lockPath, masterKeyPath } from './paths.ts';

/** Something about the directory that a person has to mend; the message says what and how. */
export class DataError extends Error {}

export function createDataDirectory(data: string): void {
  try {
    mkdirSync(data, { recursive: true, mode: 0o700 });
    if ((statSync(data).mode & 0o077) !== 0) chmodSync(data, 0o700);
    for (const name of directories) mkdirSync(join(data, name), { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new DataError(
      `the data directory ${resolve(data)} cannot be used (${(cause as Error).message}): choose another with --data, or mend its owner and permissions`,
    );
  }
}

/** Holds the directory for one server; the operating system lets go of it however the process ends. */
export function lockDataDirectory(data: string): { release(): void } {
  // Never opened where it is there already: closing it again would let go of a lock that this process holds.
  if (!existsSync(lockPath(data))) closeSync(openSync(lockPath(data), 'a', 0o600));
  const sqlite = openSqlite(lockPath(data));
  try {
    sqlite.pragma('busy_timeout = 0');
    sqlite.exec('BEGIN EXCLUSIVE');
  } catch (cause) {
    sqlite.close();
    if ((cause as { code?: string }).code !== 'SQLITE_BUSY') throw cause;
    throw new DataError(
      `another assay serve is using ${resolve(data)}: stop it first, or choose another directory with --data`,
    );
  }
  return { release: () => sqlite.close() };
}

/** Opens the database, with the key beside it or the one that systemd hands over. */
export function openData(
  data: string,
  environment: NodeJS.ProcessEnv = process.env,
  onUpgrade?: OnUpgrade,
): Db {
  const path = databasePath(data);
  const isNew = !existsSync(path);
  if (!isNew) checkDatabase(path, data);
  const key = readMasterKey(data, environment) ?? (isNew ? makeMasterKey(data) : undefined);
  if (!key)
    throw new DataError(
      `the master key ${masterKeyPath(data)} is missing while the database holds encrypted values: put the file back from where you keep it`,
    );
  const vault = createVault(key);
  if (isNew)
    makeWhole(path, unfinished => {
      const db = openDb(unfinished, vault);
      const value = vault.seal('assay', KEY_CHECK_CELL).toString('base64');
      db.sqlite.prepare("INSERT INTO facts (name, value) VALUES ('key_check', ?)").run(value);
      // Back to one file, which a link can give its name.
      db.sqlite.pragma('journal_mode = DELETE');
      db.close();
    });
  try {
    const db = openDb(path, vault, undefined, onUpgrade);
    checkKey(db);
    return db;
  } catch (cause) {
    if (cause instanceof NewerSchemaError) throw new DataError(cause.message);
    throw cause;
  }
}

function checkDatabase(path: string, data: string): void {
  const found = checkDatabaseFile(path);
  if (found === 'sound') return;
  throw new DataError(
    `${path} is ${found}: put a backup back with "assay restore FILE --data DIRECTORY" into a new directory; ${data} is left as it is`,
  );
}

/** Whether the database answers, and is the file that the next server would find. Asked from then on. */
export function watchDatabase(db: Db, data: string): () => boolean {
  const fileOf = () => statSync(databasePath(data), { throwIfNoEntry: false })?.ino;
  const opened = fileOf();
  return () => {
    try {
      return fileOf() === opened && findStoredValue(db, 'instance') !== undefined;
    } catch {
      return false;
    }
  };
}

export const KEY_CHECK_CELL = { table: 'facts', column: 'key_check', row: 0n };

/** A value sealed when the database was made tells at every start whether the key is still the same. */
function checkKey(db: Db): void {
  const sealed = db.sqlite
    .prepare("SELECT value FROM facts WHERE name = 'key_check'")
    .pluck()
    .get() as string;
  try {
    db.vault.open(Buffer.from(sealed, 'base64'), KEY_CHECK_CELL);
  } catch {
    db.close();
    throw new DataError(
      'the master key is not the one that this database was encrypted with: put the right one back',
    );
  }
}

export function readMasterKey(data: string, environment: NodeJS.ProcessEnv): Buffer | undefined {
  const handed = environment.CREDENTIALS_DIRECTORY && join(environment.CREDENTIALS_DIRECTORY, 'master.key');
  for (const path of [handed, masterKeyPath(data)]) {
    if (!path || !existsSync(path)) continue;
    const key = Buffer.from(readFileSync(path, 'utf8').trim(), 'base64');
    if (key.length !== 32)
      throw new DataError(`${path} does not hold a master key: it must be 32 bytes in base64`);
    return key;
  }
  return undefined;
}

function makeMasterKey(data: string): Buffer {
  const path = masterKeyPath(data);
  makeWhole(path, unfinished =>
    writeFileSync(unfinished, `${randomBytes(32).toString('base64')}\n`, { flush: true }),
  );
  // Whoever was first has made it.
  return readMasterKey(data, {}) as Buffer;
}

/** Makes a private file whole or not at all; of two that try at once the first one's stays. */
function makeWhole(path: string, fill: (unfinished: string) => void): void {
  const unfinished = `${path}.${process.pid}`;
  rmSync(unfinished, { force: true });
  closeSync(openSync(unfinished, 'wx', 0o600));
  fill(unfinished);
  try {
    linkSync(unfinished, path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause;
  }
  rmSync(unfinished);
  const directory = openSync(dirname(path), 'r');
  fsyncSync(directory);
  closeSync(directory);
}
