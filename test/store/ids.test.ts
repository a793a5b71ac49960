// Ids through the database: exact, remembered in the transaction that gives them out, unique across processes.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { deleteProject, purgeSomeRows } from '../../src/store/cleanup/purge.ts';
import { findProject } from '../../src/store/projects.ts';
import { addProject, lastId, openRoom } from './room.ts';

test('an id comes back from the database exact to the bit', () => {
  using room = openRoom({ ms: Date.UTC(2088, 0, 1, 0, 0, 0, 1) });
  const ids = Array.from({ length: 50 }, () => addProject(room.db).id);
  assert.equal(new Set(ids).size, 50);
  for (const id of ids) {
    assert.ok(id > 2n ** 62n);
    assert.equal(findProject(room.db, id)?.id, id);
    assert.equal(findProject(room.db, id + 1n)?.id, ids.includes(id + 1n) ? id + 1n : undefined);
  }
});

test('an id is given out only inside a transaction', () => {
  using room = openRoom();
  assert.throws(() => room.db.newId(), /inside a transaction/);
});

test('ids of a transaction that was taken back are not remembered as used, nor lost track of', () => {
  using room = openRoom();
  const before = lastId(room.db);
  assert.throws(() =>
    room.db.write(() => {
      room.db.newId();
      throw new Error('no');
    }),
  );
  assert.equal(lastId(room.db), before);
  const id = room.db.write(() => room.db.newId());
  assert.equal(lastId(room.db), id);
});

test('no id comes again after the newest rows are deleted and the clock steps back', () => {
  const now = { ms: Date.UTC(2026, 5, 1) };
  using room = openRoom(now);
  const first = addProject(room.db);
  const second = addProject(room.db);
  deleteProject(room.db, second.id);
  deleteProject(room.db, first.id);
  while (purgeSomeRows(room.db));
  now.ms -= 3_600_000;
  const third = addProject(room.db);
  assert.ok(third.id > second.id);
});

test('a watcher that writes in turn after a commit is given ids of its own transaction', () => {
  using room = openRoom();
  const { db } = room;
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
  using room = openRoom(now);
  const start = (clockMs: number) => {
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, 'ids-writer.ts'), room.path, '120', String(clockMs)],
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
  for (let count = 0; count < 60; count += 1) own.push(room.db.write(() => room.db.newId()));
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
    lastId(room.db),
    all
      .flat()
      .toSorted((a, b) => (a < b ? -1 : 1))
      .at(-1),
  );
});
