// Migrations: of an empty file, repeated, of a newer version, and with a step that breaks a reference.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openSqlite } from '../../../src/store/database/db.ts';
import { migrate, NewerSchemaError, steps } from '../../../src/store/database/migrations.ts';
import { temporaryDirectory } from '../../cli/program.ts';

const open = (path: string) => openSqlite(`${path}/assay.db`);
const schemaOf = (sqlite: ReturnType<typeof open>) =>
  JSON.stringify(sqlite.prepare('SELECT type, name, sql FROM sqlite_schema ORDER BY name').all());

test('an empty file is migrated to the newest schema', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  migrate(sqlite);
  assert.equal(sqlite.pragma('user_version', { simple: true }), steps.length);
  assert.deepEqual(sqlite.pragma('foreign_key_check'), []);
  assert.equal(sqlite.pragma('integrity_check', { simple: true }), 'ok');
  sqlite.close();
});

test('an upgrade is reported before and after; a new or current database is not', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  const reported: unknown[] = [];
  const report = ({ from, to, tookMs }: { from: number; to: number; tookMs?: number }) =>
    reported.push([from, to, tookMs !== undefined]);
  migrate(sqlite, 1, report);
  assert.deepEqual(reported, []);
  migrate(sqlite, undefined, report);
  assert.deepEqual(reported, [
    [1, steps.length, false],
    [1, steps.length, true],
  ]);
  migrate(sqlite, undefined, report);
  assert.equal(reported.length, 2);
  sqlite.close();
});

test('a second migration changes nothing', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  migrate(sqlite);
  const before = schemaOf(sqlite);
  const instance = sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get();
  migrate(sqlite);
  assert.equal(schemaOf(sqlite), before);
  assert.equal(sqlite.prepare("SELECT value FROM facts WHERE name = 'instance'").pluck().get(), instance);
  sqlite.close();
});

test('of two processes that find the old schema, one migrates and the other finds it done', () => {
  using directory = temporaryDirectory();
  const [server, command] = [open(directory.path), open(directory.path)];
  const { pragma } = command;
  command.pragma = ((...asked: Parameters<typeof pragma>) => {
    const answer = pragma.apply(command, asked);
    command.pragma = pragma;
    migrate(server);
    return answer;
  }) as typeof pragma;
  migrate(command);
  assert.equal(command.pragma('user_version', { simple: true }), steps.length);
  server.close();
  command.close();
});

test('single steps lead to the same schema as all at once', () => {
  using one = temporaryDirectory();
  using other = temporaryDirectory();
  const atOnce = open(one.path);
  migrate(atOnce);
  const stepwise = open(other.path);
  for (let target = 1; target <= steps.length; target += 1) migrate(stepwise, target);
  assert.equal(schemaOf(stepwise), schemaOf(atOnce));
  atOnce.close();
  stepwise.close();
});

test('a database of a newer Assay is refused with advice, and not changed', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  migrate(sqlite);
  const before = schemaOf(sqlite);
  sqlite.pragma(`user_version = ${steps.length + 1}`);
  assert.throws(
    () => migrate(sqlite),
    (error: Error) =>
      error instanceof NewerSchemaError && /newer Assay.*install that version/.test(error.message),
  );
  assert.equal(schemaOf(sqlite), before);
  assert.equal(sqlite.pragma('user_version', { simple: true }), steps.length + 1);
  sqlite.close();
});

test('a migration that would leave rows without their parents is rolled back completely', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  sqlite.pragma('foreign_keys = OFF');
  sqlite.exec(`CREATE TABLE parent (id INTEGER PRIMARY KEY);
    CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent (id)); INSERT INTO child VALUES (1, 9)`);
  assert.throws(() => migrate(sqlite), /1 rows without their parents/);
  assert.equal(sqlite.pragma('user_version', { simple: true }), 0);
  assert.deepEqual(
    sqlite.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").pluck().all(),
    ['child', 'parent'],
  );
  sqlite.close();
});

test('an invitation of an older version can be renewed by whoever invited, and links that could take over an account end', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  migrate(sqlite, 1);
  const second = 1000n << 22n;
  const account = sqlite.prepare(
    "INSERT INTO accounts (id, email, kind, admin, standing, password_hash, created_at) VALUES (?, ?, ?, ?, 'active', ?, 0)",
  );
  const link = sqlite.prepare(
    'INSERT INTO sign_in_links (token_digest, account_id, expires_at) VALUES (?, ?, 1)',
  );
  account.run(1n, 'owner@example.com', 'user', 0n, 'hash');
  account.run(2n, 'other@example.com', 'user', 0n, 'hash');
  for (const [id, ownerId] of [
    [10n, 1n],
    [11n, 2n],
  ])
    sqlite.exec(
      `INSERT INTO projects (id, owner_id, name, description, repository_url, build_state, badge, cancel_superseded, ssh_public_key, ssh_private_key, created_at)
       VALUES (${id}, ${ownerId}, 'p', '', '', 'new', 0, 0, x'', x'', 0)`,
    );
  const invited: [
    name: string,
    kind: string,
    admin: bigint,
    hash: string | null,
    collaborators: bigint[][],
  ][] = [
    [
      'waiting',
      'collaborator',
      0n,
      null,
      [
        [10n, 1n],
        [11n, 2n * second],
      ],
    ],
    ['added-later', 'collaborator', 0n, null, [[11n, 2n * second]]],
    ['with-password', 'collaborator', 0n, 'hash', [[10n, 1n]]],
    ['promoted', 'user', 0n, null, [[10n, 1n]]],
    ['administrator', 'collaborator', 1n, null, [[10n, 1n]]],
  ];
  invited.forEach(([name, kind, admin, hash, collaborators], at) => {
    const id = BigInt(at + 1) * 100n * second;
    account.run(id, name, kind, admin, hash);
    link.run(Buffer.from(name), id);
    for (const [projectId, later] of collaborators)
      sqlite
        .prepare('INSERT INTO collaborators (id, project_id, account_id) VALUES (?, ?, ?)')
        .run(id + (later as bigint), projectId, id);
  });
  migrate(sqlite);
  assert.deepEqual(
    sqlite.prepare('SELECT email, invited_by_id FROM accounts WHERE id > 10 ORDER BY id').raw().all(),
    [
      ['waiting', 1],
      ['added-later', null],
      ['with-password', null],
      ['promoted', null],
      ['administrator', null],
    ],
  );
  assert.deepEqual(
    sqlite.prepare('SELECT CAST(token_digest AS TEXT) FROM sign_in_links ORDER BY account_id').pluck().all(),
    ['waiting', 'added-later'],
  );
  sqlite.close();
});
