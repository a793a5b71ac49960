// The data directory as a whole: made on first use, held by one server at a time, opened with its key.

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join, resolve } from 'node:path';
import { type Db, openDb, openSqlite } from './db.ts';
import { databasePath, directories, lockPath, masterKeyPath } from './paths.ts';
import { createVault } from './vault.ts';

/** Something about the directory that a person has to mend; the message says what and how. */
export class DataError extends Error {}

export function makeDataDirectory(data: string): void {
  mkdirSync(data, { recursive: true, mode: 0o700 });
  for (const name of directories) mkdirSync(join(data, name), { recursive: true, mode: 0o700 });
}

/** Holds the directory for one server; the operating system lets go of it however the process ends. */
export function holdDataDirectory(data: string): { release(): void } {
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
export function openData(data: string, environment: NodeJS.ProcessEnv = process.env): Db {
  const path = databasePath(data);
  const isNew = !existsSync(path);
  if (!isNew && statSync(path).size === 0)
    throw new DataError(
      `${path} is empty: put it back with "assay restore FILE --data ${data}" into a new directory`,
    );
  const key = readMasterKey(data, environment) ?? (isNew ? makeMasterKey(data) : undefined);
  if (!key)
    throw new DataError(
      `the master key ${masterKeyPath(data)} is missing while the database holds encrypted values: put the file back from where you keep it`,
    );
  try {
    const db = openDb(path, createVault(key));
    if (!isNew) checkDatabase(db, path, data);
    checkKey(db);
    return db;
  } catch (cause) {
    if (
      (cause as { code?: string }).code === 'SQLITE_NOTADB' ||
      (cause as { code?: string }).code === 'SQLITE_CORRUPT'
    )
      throw damaged(path, data);
    throw cause;
  }
}

const damaged = (path: string, data: string) =>
  new DataError(
    `${path} is damaged: put a backup back with "assay restore FILE --data ${data}" into a new directory`,
  );

function checkDatabase(db: Db, path: string, data: string): void {
  const found = db.sqlite.pragma('quick_check(1)', { simple: true });
  if (found === 'ok') return;
  db.close();
  throw damaged(path, data);
}

const CHECK_PLACE = { table: 'facts', column: 'key_check', row: 0n };

/** A value sealed at the first start tells at every other whether the key is still the same. */
function checkKey(db: Db): void {
  const sealed = db.sqlite.prepare("SELECT value FROM facts WHERE name = 'key_check'").pluck().get() as
    | string
    | undefined;
  if (sealed === undefined) {
    const value = db.vault.seal('assay', CHECK_PLACE).toString('base64');
    db.write(() => db.sqlite.prepare("INSERT INTO facts (name, value) VALUES ('key_check', ?)").run(value));
    return;
  }
  try {
    db.vault.open(Buffer.from(sealed, 'base64'), CHECK_PLACE);
  } catch {
    db.close();
    throw new DataError(
      'the master key is not the one that this database was encrypted with: put the right one back',
    );
  }
}

function readMasterKey(data: string, environment: NodeJS.ProcessEnv): Buffer | undefined {
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

/** Written whole or not at all, and safe on disk before anything is encrypted with it. */
function makeMasterKey(data: string): Buffer {
  const key = randomBytes(32);
  const path = masterKeyPath(data);
  const file = openSync(`${path}.new`, 'wx', 0o600);
  writeSync(file, `${key.toString('base64')}\n`);
  fsyncSync(file);
  closeSync(file);
  renameSync(`${path}.new`, path);
  const directory = openSync(data, 'r');
  fsyncSync(directory);
  closeSync(directory);
  return key;
}
