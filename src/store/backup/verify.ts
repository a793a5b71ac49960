// Proves that a backup can be put back: every sum, every row, every file that a row refers to, and every encrypted
// value where a key is at hand. The database is restored into a temporary place; the rest is read where it is.

import { createHash } from 'node:crypto';
import { access, constants, open, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { DataError, KEY_CHECK_CELL, readMasterKey } from '../data/data.ts';
import { isDamageError } from '../database/database-check.ts';
import { openSqlite } from '../database/db.ts';
import { createVault, type Vault } from '../database/vault.ts';
import { type BackupHead, databaseName, kept, keyName } from './format.ts';
import { type EntrySink, type ReadEntry, readBackup } from './read.ts';
import { referredFiles } from './snapshot.ts';
import { openWorkPlace } from './work.ts';

export type Verdict = {
  head: BackupHead | undefined;
  entries: number;
  contentBytes: number;
  rows: number;
  /** Encrypted values that were opened; undefined where no key was at hand. */
  opened: number | undefined;
  damage: string[];
};

export type VerifyWishes = {
  file: string;
  /** Its key is tried where the backup holds none. */
  data: string;
  environment: NodeJS.ProcessEnv;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
};

/** Every column that the vault seals; test/cli/backup.test.ts compares it with the schema. */
export const sealedColumns = [
  ['projects', 'ssh_public_key'],
  ['projects', 'ssh_private_key'],
  ['environment_variables', 'content'],
  ['notifications', 'signing_secret'],
] as const;

const NAMED_AT_MOST = 20;
const referable = [kept.archives, kept.artifacts];

export async function verifyBackup(wishes: VerifyWishes): Promise<Verdict> {
  const file = resolve(wishes.file);
  if (!(await stat(file).catch(() => undefined))?.isFile()) throw new DataError(`there is no file ${file}`);
  const { path: work, clear } = await openWorkPlace(await roomyPlace(file), `.${basename(file)}.verify-`);
  try {
    const names = new Set<string>();
    const wrong: string[] = [];
    let key: Buffer | undefined;
    const read = await readBackup({
      ...wishes,
      file,
      work,
      visit: async entry => {
        if (referable.some(directory => entry.name.startsWith(`${directory}/`))) names.add(entry.name);
        if (entry.name === databaseName) return toFile(join(work, databaseName));
        if (entry.name === keyName)
          return toMemory(bytes => {
            key = Buffer.from(bytes.toString().trim(), 'base64');
          });
        return checkAddress(entry, wrong);
      },
    });
    const verdict: Verdict = { ...read, rows: 0, opened: undefined, damage: [...read.damage, ...wrong] };
    // Without its file there is nothing to ask; what is wrong with it is said already.
    if (read.damage.length === 0) checkDatabase(join(work, databaseName), names, key, wishes, verdict);
    return verdict;
  } finally {
    await clear();
  }
}

/** Beside the backup, where there was room for it; a temporary directory may be small, or memory. */
async function roomyPlace(file: string): Promise<string> {
  return access(dirname(file), constants.W_OK).then(
    () => dirname(file),
    () => tmpdir(),
  );
}

async function toFile(path: string): Promise<EntrySink> {
  const file = await open(path, 'wx', 0o600);
  return { write: chunk => file.writeFile(chunk), end: async () => {}, close: () => file.close() };
}

function toMemory(use: (bytes: Buffer) => void): EntrySink {
  const chunks: Buffer[] = [];
  return {
    write: async chunk => void chunks.push(chunk),
    end: async () => use(Buffer.concat(chunks)),
    close: async () => {},
  };
}

/** What is named after its content must have that content: so damage from before the backup is found too. */
function checkAddress({ name }: ReadEntry, wrong: string[]): EntrySink | undefined {
  const [, hash] = /^archives\/([0-9a-f]{64})$/.exec(name) ?? [];
  if (!hash) return undefined;
  const sum = createHash('sha256');
  return {
    write: async chunk => void sum.update(chunk),
    end: async () => {
      if (sum.digest('hex') !== hash) wrong.push(`${name} was damaged already when the backup was made`);
    },
    close: async () => {},
  };
}

function checkDatabase(
  path: string,
  names: ReadonlySet<string>,
  ownKey: Buffer | undefined,
  wishes: VerifyWishes,
  verdict: Verdict,
): void {
  const note = (lines: string[]) => verdict.damage.push(...lines.slice(0, NAMED_AT_MOST));
  const sqlite = openSqlite(path);
  try {
    sqlite.defaultSafeIntegers(true);
    const faults = sqlite.prepare('PRAGMA integrity_check').pluck().all() as string[];
    if (faults.length !== 1 || faults[0] !== 'ok') note(faults.map(fault => `${databaseName}: ${fault}`));
    const orphans = sqlite.prepare('PRAGMA foreign_key_check').raw().all() as unknown[][];
    note(
      orphans.map(
        ([table, row]) => `${databaseName}: row ${row} of ${table} refers to a row that is not there`,
      ),
    );
    const tables = sqlite
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
      .pluck()
      .all() as string[];
    for (const table of tables)
      verdict.rows += Number(sqlite.prepare(`SELECT count(*) FROM "${table}"`).pluck().get());
    note(
      referredFiles(sqlite)
        .filter(name => !names.has(name))
        .map(name => `${name} is missing, and was already when the backup was made`),
    );
    const vault = vaultFor(sqlite, ownKey, wishes, verdict);
    if (vault) verdict.opened = openValues(sqlite, vault, note);
  } catch (cause) {
    if (!isDamageError(cause)) throw cause;
    note([`${databaseName} was damaged already when the backup was made: ${(cause as Error).message}`]);
  } finally {
    sqlite.close();
  }
}

type Sqlite = ReturnType<typeof openSqlite>;

/** The backup's own key, or that of the data directory where it fits. */
function vaultFor(
  sqlite: Sqlite,
  ownKey: Buffer | undefined,
  { data, environment }: VerifyWishes,
  verdict: Verdict,
): Vault | undefined {
  const key = ownKey ?? readMasterKey(data, environment);
  if (key?.length !== 32) {
    if (ownKey) verdict.damage.push(`${keyName} does not hold a master key`);
    return undefined;
  }
  const vault = createVault(key);
  const check = sqlite.prepare("SELECT value FROM facts WHERE name = 'key_check'").pluck().get() as
    | string
    | undefined;
  if (check === undefined) return vault;
  try {
    vault.open(Buffer.from(check, 'base64'), KEY_CHECK_CELL);
    return vault;
  } catch {
    if (ownKey) verdict.damage.push(`${keyName} is not the key that the database was encrypted with`);
    return undefined;
  }
}

function openValues(sqlite: Sqlite, vault: Vault, note: (lines: string[]) => void): number {
  let opened = 0;
  for (const [table, column] of sealedColumns) {
    const rows = sqlite.prepare<[], { id: bigint; value: Buffer }>(
      `SELECT id, ${column} AS value FROM ${table}`,
    );
    for (const { id, value } of rows.iterate()) {
      try {
        vault.open(value, { table, column, row: id });
        opened++;
      } catch {
        note([`${databaseName}: ${column} of row ${id} of ${table} cannot be decrypted`]);
      }
    }
  }
  return opened;
}
