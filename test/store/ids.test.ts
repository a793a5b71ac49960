// IDs with the database: exact, recorded in the transaction that creates them, unique across processes.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { deleteProject, purgeSomeRows } from '../../src/store/cleanup/purge.ts';
import { findProject } from '../../src/store/projects.ts';
import { addProject, lastId, openFixture } from './fixture.ts';

test('an ID is read back exactly', () => {
  using fixture = openFixture({ ms: Date.UTC(2088, 0, 1, 0, 0, 0, 1) });
  const ids = Array.from({ length: 50 }, () => addProject(fixture.db).id);
  assert.equal(new Set(ids).size, 50);
  for (const id of ids) {
    assert.ok(id > 2n ** 62n);
    assert.equal(findProject(fixture.db, id)?.id, id);
    assert.equal(findProject(fixture.db, id + 1n)?.id, ids.includes(id + 1n) ? id + 1n : undefined);
  }
});

test('an ID is created only inside a transaction', () => {
  using fixture = openFixture();
  assert.throws(() => fixture.db.newId(), /inside a transaction/);
});

test('IDs of a transaction that was rolled back can be used again', () => {
  using fixture = openFixture();
  const before = lastId(fixture.db);
  assert.throws(() =>
    fixture.db.write(() => {
      fixture.db.newId();
      throw new Error('no');
    }),
  );
  assert.equal(lastId(fixture.db), before);
  const id = fixture.db.write(() => fixture.db.newId());
  assert.equal(lastId(fixture.db), id);
});

test('no ID is repeated after the newest rows are deleted and the clock goes back', () => {
  const now = { ms: Date.UTC(2026, 5, 1) };
  using fixture = openFixture(now);
  const first = addProject(fixture.db);
  const second = addProject(fixture.db);
  deleteProject(fixture.db, second.id);
  deleteProject(fixture.db, first.id);
  while (purgeSomeRows(fixture.db));
  now.ms -= 3_600_000;
  const third = addProject(fixture.db);
  assert.ok(third.id > second.id);
});

test('a watcher that writes after a commit gets IDs of its own transaction', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const ids: bigint[] = [];
  db.onCommit = topics => {
    if (topics.has('again')) ids.push(db.write(() => db.newId()));
  };
  db.write(() => {
    ids.push(db.newId());
    db.touch('again');
  });
  assert.equal(ids.length, 2);
  assert.equal(lastId(db), ids[1]);
});

test('two processes that write at the same time, with clocks an hour apart, never create the same ID', async () => {
  const now = { ms: Date.UTC(2026, 5, 1) };
  using fixture = openFixture(now);
  const start = (clockMs: number) => {
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, 'ids-writer.ts'), fixture.path, '120', String(clockMs)],
      { stdio: ['pipe', 'pipe', 'inherit'], timeout: 120_000 },
    );
    return {
      child,
      // Subscribed from the start, because the other writer may end first.
      closed: once(child, 'close'),
      lines: createInterface({ input: child.stdout })[Symbol.asyncIterator](),
    };
  };
  const writers = [start(now.ms), start(now.ms - 3_600_000)];
  for (const { lines } of writers) assert.equal((await lines.next()).value, 'ready');
  for (const { child } of writers) child.stdin.write('go\n');
  const own: bigint[] = [];
  for (let count = 0; count < 60; count += 1) own.push(fixture.db.write(() => fixture.db.newId()));
  const theirs: bigint[][] = [];
  for (const { closed, lines } of writers) {
    const { value } = await lines.next();
    theirs.push(String(value).split(' ').map(BigInt));
    await closed;
  }
  const all = [own, ...theirs];
  assert.equal(new Set(all.flat()).size, 60 + 120 + 120);
  for (const ids of all)
    assert.deepEqual(
      ids,
      ids.toSorted((a, b) => (a < b ? -1 : 1)),
    );
  assert.equal(
    lastId(fixture.db),
    all
      .flat()
      .toSorted((a, b) => (a < b ? -1 : 1))
      .at(-1),
  );
});
