// Unique names, in data from before name keys existed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDb, openSqlite } from '../../src/store/database/db.ts';
import { migrate } from '../../src/store/database/migrations.ts';
import { createVault } from '../../src/store/database/vault.ts';
import {
  createSuite,
  deleteSuite,
  findSuite,
  isSuiteNameTaken,
  type Suite,
  updateSuite,
} from '../../src/store/suites.ts';
import { temporaryDirectory } from '../cli/program.ts';

const project = 10n;

/** A database of the first schema whose project has suites of these names, upgraded. */
function upgraded(directory: string, names: readonly string[]) {
  const path = `${directory}/assay.db`;
  const sqlite = openSqlite(path);
  migrate(sqlite, 1);
  sqlite.exec(`INSERT INTO accounts (id, email, kind, admin, standing, created_at) VALUES (1, 'a@b', 'user', 1, 'active', 0);
    INSERT INTO projects (id, owner_id, name, description, repository_url, build_state, ssh_public_key, ssh_private_key, badge, cancel_superseded, created_at)
    VALUES (${project}, 1, 'P', '', '', 'new', x'00', x'00', 0, 0, 0), (11, 1, ' p', '', '', 'new', x'00', x'00', 0, 0, 0)`);
  const insert = sqlite.prepare('INSERT INTO suites VALUES (?, ?, ?, ?, ?, NULL)');
  for (const [at, name] of names.entries()) insert.run(BigInt(at + 20), project, name, '', 'true');
  sqlite.close();
  const db = openDb(path, createVault(Buffer.alloc(32)));
  const suite = (at: number) => findSuite(db, project, BigInt(at + 20)) as Suite;
  const taken = (name: string, except?: Suite) => isSuiteNameTaken(db, project, name, except);
  return { db, suite, taken };
}

test('an upgrade keeps suites whose names are now the same, as they are written', () => {
  using directory = temporaryDirectory();
  const { db, suite } = upgraded(directory.path, ['Unit tests', 'unit tests ', 'UNIT  TESTS', 'Lint']);
  assert.deepEqual(
    [0, 1, 2, 3].map(at => suite(at).name),
    ['Unit tests', 'unit tests ', 'UNIT  TESTS', 'Lint'],
  );
  db.close();
});

test('such a suite can be changed under its own name, and renamed to a free one', () => {
  using directory = temporaryDirectory();
  const { db, suite, taken } = upgraded(directory.path, ['Unit tests', 'unit tests ']);
  const twin = suite(1);
  assert.equal(taken('unit tests', twin), false, 'its own name');
  assert.equal(taken('Unit  Tests', twin), true, "another spelling of the other one's name");
  updateSuite(db, twin, { name: 'unit tests', command: 'make' });
  assert.deepEqual([suite(1).name, suite(1).command], ['unit tests', 'make']);
  updateSuite(db, suite(1), { name: 'Integration' });
  assert.equal(taken('INTEGRATION'), true);
  assert.equal(taken('integration', suite(1)), false);
  db.close();
});

test('the name of such a suite stays taken when the other one is deleted', () => {
  using directory = temporaryDirectory();
  const { db, suite, taken } = upgraded(directory.path, ['Unit tests', 'unit tests ']);
  deleteSuite(db, suite(0));
  assert.equal(taken('UNIT TESTS'), true);
  deleteSuite(db, suite(1));
  assert.equal(taken('UNIT TESTS'), false);
  db.close();
});

test('the database refuses two names with the same key', () => {
  using directory = temporaryDirectory();
  const { db } = upgraded(directory.path, ['Unit tests']);
  const fields = { projectId: project, description: '', command: 'true', image: null };
  assert.throws(() => createSuite(db, { ...fields, name: 'UNIT TESTS' }), /UNIQUE/);
  db.close();
});
