// The runner of migrations: from nothing, again, from the future, and with a step that breaks a reference.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openSqlite } from '../../src/store/db.ts';
import { migrate, NewerSchema, steps } from '../../src/store/migrations.ts';
import { temporaryDirectory } from '../cli/program.ts';

const open = (path: string) => openSqlite(`${path}/assay.db`);
const schemaOf = (sqlite: ReturnType<typeof open>) =>
  JSON.stringify(sqlite.prepare('SELECT type, name, sql FROM sqlite_schema ORDER BY name').all());

test('an empty file is led to the newest schema', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  migrate(sqlite);
  assert.equal(sqlite.pragma('user_version', { simple: true }), steps.length);
  assert.deepEqual(sqlite.pragma('foreign_key_check'), []);
  assert.equal(sqlite.pragma('integrity_check', { simple: true }), 'ok');
  sqlite.close();
});

test('migrating twice changes nothing the second time', () => {
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

test('of two that find the old schema at once one migrates, and the other finds it done', () => {
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

test('step by step leads to the same schema as all at once', () => {
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

test('a database of a newer Assay is refused, with what to do, and left alone', () => {
  using directory = temporaryDirectory();
  const sqlite = open(directory.path);
  migrate(sqlite);
  const before = schemaOf(sqlite);
  sqlite.pragma(`user_version = ${steps.length + 1}`);
  assert.throws(
    () => migrate(sqlite),
    (cause: Error) => cause instanceof NewerSchema && /newer Assay.*install that version/.test(cause.message),
  );
  assert.equal(schemaOf(sqlite), before);
  assert.equal(sqlite.pragma('user_version', { simple: true }), steps.length + 1);
  sqlite.close();
});

test('a migration that would leave rows without their parents is taken back as a whole', () => {
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
