// Changes of several callers in one transaction: each is durable before its caller continues, and fails alone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBuildRequest } from '../../../src/store/builds.ts';
import { openSqlite } from '../../../src/store/database/db.ts';
import { addProject, openFixture } from '../fixture.ts';

test('changes that arrive together are one transaction, and each caller continues when it is durable', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  using other = openSqlite(fixture.path, { readonly: true });
  const isStored = other.prepare('SELECT count(*) FROM build_requests WHERE id = ?').pluck();
  let transactions = 0;
  db.onWrite = () => {
    transactions += 1;
  };
  const notified: ReadonlySet<string>[] = [];
  db.onCommit = topics => notified.push(topics);
  const ids = await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      const { id } = await db.writeTogether(() => createBuildRequest(db, project, `branch-${at}`, 'a@b'));
      assert.equal(isStored.get(id), 1);
      return id;
    }),
  );
  assert.equal(new Set(ids).size, 20);
  assert.equal(transactions, 1);
  assert.equal(notified.length, 1);
  for (const id of ids) assert.ok(notified[0]?.has(`build_request:${id}`));
});

test('a change that fails leaves nothing behind, and those that arrived with it are written', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const create = (ref: string) => createBuildRequest(db, project, ref, 'a@b');
  const settled = await Promise.allSettled([
    db.writeTogether(() => create('first')),
    db.writeTogether(() => {
      create('failed');
      throw new Error('refused');
    }),
    db.writeTogether(() => create('last')),
  ]);
  assert.deepEqual(
    settled.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
  );
  assert.deepEqual(db.sqlite.prepare('SELECT commit_ref FROM build_requests ORDER BY id').pluck().all(), [
    'first',
    'last',
  ]);
});

test('a transaction holds a limited number of changes, so that other requests run in between', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  let transactions = 0;
  db.onWrite = () => {
    transactions += 1;
  };
  const sizes = [...Array.from({ length: 32 }, () => 1), 40, 1];
  await Promise.all(sizes.map(size => db.writeTogether(() => db.newId(), size)));
  assert.equal(transactions, 3);
});

test('a subscriber that fails after the transaction does not repeat it', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  db.onCommit = () => {
    throw new Error('subscriber');
  };
  await assert.rejects(
    db.writeTogether(() => createBuildRequest(db, project, 'main', 'a@b')),
    /subscriber/,
  );
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM build_requests').pluck().get(), 1n);
});
