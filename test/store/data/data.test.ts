// The data directory: private, used by one server, and left unchanged if something is wrong with it.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createAccount, listAccounts } from '../../../src/store/accounts.ts';
import { createDataDirectory, DataError, lockDataDirectory, openData } from '../../../src/store/data/data.ts';
import { queriesOfEnds } from '../../../src/store/database/database-check.ts';
import { openSqlite } from '../../../src/store/database/db.ts';
import { temporaryDirectory } from '../../cli/program.ts';

/** A directory that was in use: an account, and enough rows for several pages. */
function madeDirectory() {
  const directory = temporaryDirectory();
  const data = join(directory.path, 'data');
  createDataDirectory(data);
  const db = openData(data, {});
  db.write(() => {
    for (let count = 0; count < 400; count += 1)
      createAccount(db, {
        email: `user-${count}@example.com`,
        kind: 'user',
        admin: false,
        passwordHash: 'x'.repeat(100),
        apiKey: null,
      });
  });
  db.close();
  return { data, database: join(data, 'assay.db'), [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

const digestOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');
const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);
const refuses = (data: string, message: RegExp, environment = {}) =>
  assert.throws(
    () => openData(data, environment),
    (error: Error) => {
      assert.ok(error instanceof DataError, String(error.stack));
      assert.match(error.message, message);
      return true;
    },
  );

test('a new directory is private, and so is everything in it', () => {
  using directory = temporaryDirectory();
  const data = join(directory.path, 'a/b/data');
  createDataDirectory(data);
  const hold = lockDataDirectory(data);
  const db = openData(data, {});
  createAccount(db, { email: 'a@example.com', kind: 'user', admin: false, passwordHash: null, apiKey: null });
  assert.equal(modeOf(data), '700');
  const entries = readdirSync(data);
  for (const name of ['assay.db', 'assay.db-wal', 'lock.db', 'master.key', 'logs'])
    assert.ok(entries.includes(name));
  for (const name of entries) {
    const path = join(data, name);
    assert.equal(modeOf(path), statSync(path).isDirectory() ? '700' : '600', name);
  }
  db.close();
  hold.release();
});

test('a directory that others can read is made private', () => {
  using directory = temporaryDirectory();
  chmodSync(directory.path, 0o755);
  createDataDirectory(directory.path);
  assert.equal(modeOf(directory.path), '700');
});

test('a path that cannot be a directory is refused, with the path and advice', () => {
  using directory = temporaryDirectory();
  writeFileSync(join(directory.path, 'file'), '');
  assert.throws(
    () => createDataDirectory(join(directory.path, 'file/data')),
    (error: Error) => error instanceof DataError && /file\/data cannot be used .*--data/.test(error.message),
  );
});

test('written data is there after reopening, without temporary files', () => {
  using made = madeDirectory();
  const db = openData(made.data, {});
  assert.equal(listAccounts(db).length, 400);
  db.close();
  assert.deepEqual(
    readdirSync(made.data).filter(name => /assay|master/.test(name)),
    ['assay.db', 'master.key'],
  );
});

test('one server locks the directory; a second one is refused until it is released', () => {
  using made = madeDirectory();
  const hold = lockDataDirectory(made.data);
  assert.throws(
    () => lockDataDirectory(made.data),
    (error: Error) =>
      error instanceof DataError && error.message.includes(made.data) && /stop it first/.test(error.message),
  );
  hold.release();
  lockDataDirectory(made.data).release();
});

test('an empty database is refused and left unchanged', () => {
  using made = madeDirectory();
  truncateSync(made.database, 0);
  refuses(made.data, /assay\.db is empty: .*assay restore FILE/);
  assert.equal(statSync(made.database).size, 0);
});

test('a database with missing tables is refused, not recreated', () => {
  using made = madeDirectory();
  rmSync(made.database);
  const sqlite = openSqlite(made.database);
  sqlite.exec('CREATE TABLE x (y)');
  sqlite.close();
  const before = digestOf(made.database);
  refuses(made.data, /assay\.db is empty/);
  assert.equal(digestOf(made.database), before);
});

const damages: Record<string, (path: string) => void> = {
  'that is no database at all': path => writeFileSync(path, 'x'.repeat(20_000)),
  'that is cut in the middle': path => truncateSync(path, Math.floor(statSync(path).size / 8192) * 4096),
  'that is cut inside its first page': path => truncateSync(path, 1000),
  'with its header overwritten': path => overwrite(path, 0, 100),
  'with a page of rows overwritten': path => overwrite(path, pageOfRows(path), 4096),
  'with the schema overwritten': path => overwrite(path, 100, 2000),
};

function overwrite(path: string, at: number, length: number): void {
  const bytes = readFileSync(path);
  bytes.fill(0x5a, at, at + length);
  writeFileSync(path, bytes);
}

const pageOfRows = (path: string) =>
  Math.floor(readFileSync(path).indexOf('user-200@example.comuser') / 4096) * 4096;

for (const [what, damage] of Object.entries(damages))
  test(`a database ${what} is refused with its path and advice, and left unchanged`, () => {
    using made = madeDirectory();
    damage(made.database);
    const before = digestOf(made.database);
    refuses(made.data, /assay\.db is damaged: .*assay restore FILE/);
    assert.equal(digestOf(made.database), before);
  });

test('a damaged database with a journal: both are left unchanged', () => {
  using made = madeDirectory();
  using copy = temporaryDirectory();
  const db = openData(made.data, {});
  createAccount(db, {
    email: 'new@example.com',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey: null,
  });
  createDataDirectory(copy.path);
  for (const name of ['assay.db', 'assay.db-wal', 'master.key'])
    copyFileSync(join(made.data, name), join(copy.path, name));
  db.close();
  const database = join(copy.path, 'assay.db');
  overwrite(database, pageOfRows(database), 4096);
  const before = [digestOf(database), digestOf(`${database}-wal`)];
  refuses(copy.path, /assay\.db is damaged/);
  assert.deepEqual([digestOf(database), digestOf(`${database}-wal`)], before);
});

test('a database with a journal, as after a kill, opens with everything that was written', () => {
  using made = madeDirectory();
  using copy = temporaryDirectory();
  const db = openData(made.data, {});
  createAccount(db, {
    email: 'new@example.com',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey: null,
  });
  createDataDirectory(copy.path);
  for (const name of ['assay.db', 'assay.db-wal', 'master.key'])
    copyFileSync(join(made.data, name), join(copy.path, name));
  db.close();
  const again = openData(copy.path, {});
  assert.equal(listAccounts(again).length, 401);
  again.close();
});

test('a large database is refused if the first or last page of a table is damaged', () => {
  using made = madeDirectory();
  const db = openData(made.data, {});
  db.write(() => {
    const fill = db.sqlite.prepare('INSERT INTO images VALUES (?, ?, 0)');
    for (let count = 0; count < 70; count += 1) fill.run(`image-${count}`, 'x'.repeat(1024 ** 2));
  });
  db.close();
  assert.ok(statSync(made.database).size > 64 * 1024 ** 2);
  const sound = openData(made.data, {});
  sound.close();
  const bytes = readFileSync(made.database);
  overwrite(made.database, Math.floor(bytes.indexOf('user-399@example.comuser') / 4096) * 4096, 4096);
  refuses(made.data, /assay\.db is damaged/);
});

test('the check of a large database sorts no table: each query reads one end of a table or index', () => {
  using made = madeDirectory();
  const sqlite = openSqlite(made.database, { readonly: true });
  const queries = queriesOfEnds(sqlite);
  assert.ok(queries.some(query => query.includes('builds_waiting')));
  for (const query of queries) {
    const plan = sqlite.prepare(`EXPLAIN QUERY PLAN ${query}`).all() as { detail: string }[];
    assert.deepEqual(
      plan.filter(({ detail }) => !detail.startsWith('SCAN ') && !detail.startsWith('SEARCH ')),
      [],
      query,
    );
  }
  sqlite.close();
});

test('a database of a newer Assay is refused in one line with advice', () => {
  using made = madeDirectory();
  const sqlite = openSqlite(made.database);
  sqlite.pragma('user_version = 9999');
  sqlite.close();
  refuses(made.data, /newer Assay/);
});

test('a missing master key is refused, and never replaced by a new one', () => {
  using made = madeDirectory();
  rmSync(join(made.data, 'master.key'));
  refuses(made.data, /master key .*master\.key is missing/);
  assert.ok(!existsSync(join(made.data, 'master.key')));
});

test('another master key is refused', () => {
  using made = madeDirectory();
  writeFileSync(join(made.data, 'master.key'), `${Buffer.alloc(32, 9).toString('base64')}\n`);
  refuses(made.data, /not the one that this database was encrypted with/);
});

for (const content of ['', 'short', `${Buffer.alloc(31).toString('base64')}\n`])
  test(`a key file with ${JSON.stringify(content)} is refused as invalid`, () => {
    using made = madeDirectory();
    writeFileSync(join(made.data, 'master.key'), content);
    refuses(made.data, /does not contain a master key: it must be 32 bytes/);
  });

test('a key from systemd is preferred to one in the directory', () => {
  using made = madeDirectory();
  using credentials = temporaryDirectory();
  mkdirSync(credentials.path, { recursive: true });
  copyFileSync(join(made.data, 'master.key'), join(credentials.path, 'master.key'));
  rmSync(join(made.data, 'master.key'));
  const db = openData(made.data, { CREDENTIALS_DIRECTORY: credentials.path });
  assert.equal(listAccounts(db).length, 400);
  db.close();
  writeFileSync(join(credentials.path, 'master.key'), `${Buffer.alloc(32, 9).toString('base64')}\n`);
  refuses(made.data, /not the one/, { CREDENTIALS_DIRECTORY: credentials.path });
});
