// The data directory: creates it on first use, locks it for one server at a time, and opens its database with the master key.

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
import { findStoredValue } from '../database/stored-values.ts';
import { createVault } from '../database/vault.ts';
import { databasePath, directories, lockPath, masterKeyPath } from './paths.ts';
import { linkSharedDirectory } from './shared-directory.ts';

/** A problem with the directory that a person has to fix. The message says how. */
export class DataError extends Error {}

/** With `shared`, what other machines mount is there. */
export function createDataDirectory(data: string, shared?: string): void {
  try {
    mkdirSync(data, { recursive: true, mode: 0o700 });
    if ((statSync(data).mode & 0o077) !== 0) chmodSync(data, 0o700);
    if (shared !== undefined) linkSharedDirectory(data, shared);
    for (const name of directories) mkdirSync(join(data, name), { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new DataError(
      `the data directory ${resolve(data)} cannot be used (${(error as Error).message}): choose another with --data, or fix its owner and permissions`,
    );
  }
}

/** Locks the directory for one server. The operating system releases the lock however the process ends. */
export function lockDataDirectory(data: string): { release(): void } {
  // Do not open an existing file: closing it again would release a lock that this process holds.
  if (!existsSync(lockPath(data))) closeSync(openSync(lockPath(data), 'a', 0o600));
  const sqlite = openSqlite(lockPath(data));
  try {
    sqlite.pragma('busy_timeout = 0');
    sqlite.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    sqlite.close();
    if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
    throw new DataError(
      `another assay serve is using ${resolve(data)}: stop it first, or choose another directory with --data`,
    );
  }
  return { release: () => sqlite.close() };
}

/** Opens the database with the key in the directory or the one that systemd provides. */
export function openData(
  data: string,
  environment: NodeJS.ProcessEnv = process.env,
  onUpgrade?: OnUpgrade,
): Db {
  const path = databasePath(data);
  const isNew = !existsSync(path);
  if (!isNew) checkDatabase(path, data);
  const key = readMasterKey(data, environment) ?? (isNew ? createMasterKey(data) : undefined);
  if (!key)
    throw new DataError(
      `the master key ${masterKeyPath(data)} is missing while the database holds encrypted values: restore the file from your copy`,
    );
  const vault = createVault(key);
  if (isNew)
    createAtomically(path, temporaryPath => {
      const db = openDb(temporaryPath, vault);
      const value = vault.seal('assay', KEY_CHECK_CELL).toString('base64');
      db.sqlite.prepare("INSERT INTO facts (name, value) VALUES ('key_check', ?)").run(value);
      // Without WAL the database is a single file, which can be linked to its final name.
      db.sqlite.pragma('journal_mode = DELETE');
      db.close();
    });
  try {
    const db = openDb(path, vault, undefined, onUpgrade);
    checkKey(db);
    return db;
  } catch (error) {
    if (error instanceof NewerSchemaError) throw new DataError(error.message);
    throw error;
  }
}

function checkDatabase(path: string, data: string): void {
  const found = checkDatabaseFile(path);
  if (found === 'sound') return;
  throw new DataError(
    `${path} is ${found}: restore a backup into a new directory with "assay restore FILE --data DIRECTORY"; ${data} stays unchanged`,
  );
}

/** Returns a check whether the database responds and its file has not been replaced or removed since now. */
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

/** Verifies the key with a value that was sealed when the database was created. */
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
      'the master key is not the one that this database was encrypted with: restore the right one',
    );
  }
}

export function readMasterKey(data: string, environment: NodeJS.ProcessEnv): Buffer | undefined {
  const credential =
    environment.CREDENTIALS_DIRECTORY && join(environment.CREDENTIALS_DIRECTORY, 'master.key');
  for (const path of [credential, masterKeyPath(data)]) {
    if (!path || !existsSync(path)) continue;
    const key = Buffer.from(readFileSync(path, 'utf8').trim(), 'base64');
    if (key.length !== 32)
      throw new DataError(`${path} does not contain a master key: it must be 32 bytes in base64`);
    return key;
  }
  return undefined;
}

function createMasterKey(data: string): Buffer {
  const path = masterKeyPath(data);
  createAtomically(path, temporaryPath =>
    writeFileSync(temporaryPath, `${randomBytes(32).toString('base64')}\n`, { flush: true }),
  );
  // Another process may have been first: use the key that is on disk.
  return readMasterKey(data, {}) as Buffer;
}

/** Creates a private file completely or not at all. If two processes try at once, the first one's file stays. */
function createAtomically(path: string, fill: (temporaryPath: string) => void): void {
  const temporaryPath = `${path}.${process.pid}`;
  rmSync(temporaryPath, { force: true });
  closeSync(openSync(temporaryPath, 'wx', 0o600));
  fill(temporaryPath);
  try {
    linkSync(temporaryPath, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  rmSync(temporaryPath);
  const directory = openSync(dirname(path), 'r');
  fsyncSync(directory);
  closeSync(directory);
}
