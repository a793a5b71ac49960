// Ids through the database: exact, remembered in the transaction that gives them out, unique across processes.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { deleteProject, purgeSomeRows } from '../../src/store/cleanup/purge.ts';
import { findProject } from '../../src/store/projects.ts';
import { addProject, lastId, openFixture } from './fixture.ts';

test('an id comes back from the database exact to the bit', () => {
  using fixture = openFixture({ ms: Date.UTC(2088, 0, 1, 0, 0, 0, 1) });
  const ids = Array.from({ length: 50 }, () => addProject(fixture.db).id);
  assert.equal(new Set(ids).size, 50);
  for (const id of ids) {
    assert.ok(id > 2n ** 62n);
    assert.equal(findProject(fixture.db, id)?.id, id);
    assert.equal(findProject(fixture.db, id + 1n)?.id, ids.includes(id + 1n) ? id + 1n : undefined);
  }
});

test('an id is given out only inside a transaction', () => {
  using fixture = openFixture();
  assert.throws(() => fixture.db.newId(), /inside a transaction/);
});

test('ids of a transaction that was taken back are not remembered as used, nor lost track of', () => {
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

test('no id comes again after the newest rows are deleted and the clock steps back', () => {
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

test('a watcher that writes in turn after a commit is given ids of its own transaction', () => {
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

test('two processes that write at the same time, with clocks an hour apart, never give out the same id', async () => {
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
      // Listened for from the start: the other writer may well be the first to end.
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
