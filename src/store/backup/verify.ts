// Proves that a backup can be restored, by restoring it into a temporary directory: every checksum, every row, every file
// that a row refers to, and every encrypted value where a key is available.

import { existsSync } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { APPLIANCE_KEY, APPLIANCE_KEY_CELL } from '../appliance.ts';
import { createDataDirectory, DataError, KEY_CHECK_CELL, readMasterKey } from '../data/data.ts';
import { isDamageError } from '../database/database-check.ts';
import { openSqlite, type Sqlite } from '../database/db.ts';
import { createVault, type Vault } from '../database/vault.ts';
import {
  databaseName,
  keyName,
  LIST_NAME,
  linesOf,
  type ReadOptions,
  type Unpacked,
  unpackArchive,
} from './archive.ts';
import { referredFiles } from './backup.ts';
import { inWorkDirectory } from './work-directory.ts';

export type Verification = Unpacked & {
  rows: number;
  /** Encrypted values that were decrypted; undefined where no key was available. */
  opened: number | undefined;
};

/** `data` is the directory whose key is tried where the backup contains none. */
type VerifyOptions = ReadOptions & { data: string; environment: NodeJS.ProcessEnv };

/** Every column that the vault encrypts; test/cli/backup.test.ts compares it with the schema. */
export const sealedColumns = [
  ['projects', 'ssh_public_key'],
  ['projects', 'ssh_private_key'],
  ['environment_variables', 'content'],
  ['notifications', 'signing_secret'],
  ['triggers', 'secret'],
  ['triggers', 'old_secret'],
] as const;

const NAMED_AT_MOST = 20;

export async function verifyBackup(options: VerifyOptions): Promise<Verification> {
  const file = resolve(options.file);
  if (!(await stat(file).catch(() => undefined))?.isFile()) throw new DataError(`there is no file ${file}`);
  // Beside the backup, where its disk space is; a temporary directory may be small, or memory.
  const parent = await access(dirname(file), constants.W_OK).then(
    () => dirname(file),
    () => tmpdir(),
  );
  return inWorkDirectory(parent, `.${basename(file)}.verify-`, async work => {
    const tree = join(work, 'data');
    createDataDirectory(tree);
    const unpacked = await unpackArchive(options, { work, tree });
    const verification: Verification = { ...unpacked, rows: 0, opened: undefined };
    if (unpacked.damage.length > 0) return verification;
    // An archive is named after its content: so damage from before the backup is found too.
    for await (const [sha256, , , name] of linesOf(join(work, LIST_NAME)))
      if (/^archives\/[0-9a-f]{64}$/.test(name) && name !== `archives/${sha256}`)
        verification.damage.push(`${name} was damaged already when the backup was made`);
    checkDatabase(tree, options, verification);
    return verification;
  });
}

function checkDatabase(tree: string, options: VerifyOptions, verification: Verification): void {
  const report = (lines: string[]) => verification.damage.push(...lines.slice(0, NAMED_AT_MOST));
  using sqlite = openSqlite(join(tree, databaseName));
  try {
    sqlite.defaultSafeIntegers(true);
    const column = (sql: string) => sqlite.prepare(sql).pluck().all() as string[];
    const faults = column('PRAGMA integrity_check').filter(fault => fault !== 'ok');
    report(faults.map(fault => `${databaseName}: ${fault}`));
    const orphans = sqlite.prepare('PRAGMA foreign_key_check').raw().all() as unknown[][];
    report(
      orphans.map(
        ([table, row]) => `${databaseName}: row ${row} of ${table} refers to a row that is not there`,
      ),
    );
    for (const table of column("SELECT name FROM sqlite_schema WHERE type = 'table'"))
      verification.rows += Number(column(`SELECT count(*) FROM "${table}"`)[0]);
    report(
      referredFiles(sqlite)
        .filter(name => !existsSync(join(tree, name)))
        .map(name => `${name} is missing, and was already when the backup was made`),
    );
    const ownKey = existsSync(join(tree, keyName));
    const vault = findVault(sqlite, ownKey ? tree : options.data, ownKey ? {} : options.environment);
    if (vault) verification.opened = openValues(sqlite, vault, report);
    else if (ownKey) report([`${keyName} is not the key that the database was encrypted with`]);
  } catch (error) {
    if (!isDamageError(error)) throw error;
    report([`${databaseName} was damaged already when the backup was made: ${(error as Error).message}`]);
  }
}

/** With the key of the directory, where it is there and the right one. */
function findVault(sqlite: Sqlite, data: string, environment: NodeJS.ProcessEnv): Vault | undefined {
  const check = sqlite.prepare("SELECT value FROM facts WHERE name = 'key_check'").pluck().get();
  try {
    const key = readMasterKey(data, environment);
    const vault = key && createVault(key);
    if (check !== undefined) vault?.open(Buffer.from(check as string, 'base64'), KEY_CHECK_CELL);
    return vault;
  } catch {
    return undefined;
  }
}

function openValues(sqlite: Sqlite, vault: Vault, report: (lines: string[]) => void): number {
  let opened = 0;
  const find = sqlite.prepare('SELECT 1 FROM pragma_table_info(?) WHERE name = ?');
  // A backup of an earlier version lacks newer columns.
  for (const [table, column] of sealedColumns.filter(names => find.get(...names) !== undefined)) {
    const rows = sqlite.prepare<[], { id: bigint; value: Buffer }>(
      `SELECT id, ${column} AS value FROM ${table} WHERE ${column} IS NOT NULL`,
    );
    for (const { id, value } of rows.iterate()) {
      try {
        vault.open(value, { table, column, row: id });
        opened++;
      } catch {
        report([`${databaseName}: ${column} of row ${id} of ${table} cannot be decrypted`]);
      }
    }
  }
  const key = sqlite.prepare('SELECT value FROM facts WHERE name = ?').pluck().get(APPLIANCE_KEY);
  if (key !== undefined)
    try {
      vault.open(Buffer.from(key as string, 'base64'), APPLIANCE_KEY_CELL);
      opened++;
    } catch {
      report([`${databaseName}: the signing key of the appliance cannot be decrypted`]);
    }
  return opened;
}
