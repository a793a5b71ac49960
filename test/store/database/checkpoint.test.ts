// Checkpoints in a thread of their own: when they run, what keeps the write-ahead log small, and what is left at the end.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { test } from 'node:test';
import { startCheckpoints } from '../../../src/store/database/checkpoint.ts';
import { type Db, openSqlite } from '../../../src/store/database/db.ts';
import { openFixture } from '../fixture.ts';

const PAGE_BYTES = 4096;

/** Adds about this many pages to the write-ahead log, in one transaction. */
const writePages = (db: Db, pages: number) =>
  db.write(() =>
    db.sqlite
      .prepare("INSERT OR REPLACE INTO facts (name, value) VALUES ('filler', printf('%.*c', ?, 'x'))")
      .run(pages * PAGE_BYTES),
  );

/** The size of the log in pages, and how many of them are in the database file. */
const logOf = (db: Db) =>
  db.sqlite.prepare<[], { log: bigint; checkpointed: bigint }>('PRAGMA wal_checkpoint(NOOP)').get() as {
    log: bigint;
    checkpointed: bigint;
  };

function start(db: Db, options: { idleMs?: number; bindingPath?: string } = {}) {
  const failures: Error[] = [];
  const checkpoints = startCheckpoints({ db, onFailure: error => failures.push(error), ...options });
  return { failures, [Symbol.asyncDispose]: checkpoints.stop };
}

test('a small log is not copied, a large one is, and the next transaction writes at its start', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  await using checkpoints = start(db);
  writePages(db, 100);
  assert.equal(db.checkpoint, undefined);
  writePages(db, 1500);
  assert.ok(db.checkpoint);
  await db.checkpoint;
  const { log, checkpointed } = logOf(db);
  assert.ok(log > 1500n);
  assert.equal(checkpointed, log);
  assert.equal(db.checkpoint, undefined);
  writePages(db, 1);
  assert.ok(logOf(db).log < 1500n);
  assert.deepEqual(checkpoints.failures, []);
});

test('the log stays small while many transactions wait for each checkpoint', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  await using checkpoints = start(db);
  let largest = 0n;
  for (let round = 0; round < 20; round++) {
    writePages(db, 700);
    await db.checkpoint;
    const { log } = logOf(db);
    if (log > largest) largest = log;
  }
  assert.ok(largest < 4000n, `${largest} pages`);
  assert.deepEqual(checkpoints.failures, []);
});

test('the log stays limited although no transaction waits', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  await using checkpoints = start(db);
  let largest = 0n;
  for (let round = 0; round < 60; round++) {
    writePages(db, 700);
    const { log } = logOf(db);
    if (log > largest) largest = log;
    await new Promise(resolve => setImmediate(resolve));
  }
  await db.checkpoint;
  assert.ok(largest < 25_000n, `${largest} pages`);
  assert.deepEqual(checkpoints.failures, []);
});

test('what a reader keeps from being copied is copied after it has finished', async () => {
  using fixture = openFixture();
  const { db, path } = fixture;
  await using checkpoints = start(db);
  writePages(db, 10);
  using reader = openSqlite(path, { readonly: true });
  reader.exec('BEGIN');
  const read = () => reader.prepare("SELECT length(value) FROM facts WHERE name = 'filler'").pluck().get();
  const seen = read();
  for (let round = 0; round < 5; round++) {
    writePages(db, 1500);
    await db.checkpoint;
  }
  assert.ok(logOf(db).log > 7000n);
  assert.equal(read(), seen);
  reader.exec('COMMIT');
  writePages(db, 1);
  await db.checkpoint;
  writePages(db, 1);
  assert.ok(logOf(db).log < 100n);
  assert.deepEqual(checkpoints.failures, []);
});

test('an idle thread ends and closes its files, and the next checkpoint starts another', async () => {
  using fixture = openFixture();
  const { db, path } = fixture;
  await using checkpoints = start(db, { idleMs: 0 });
  const openFiles = () =>
    readdirSync('/proc/self/fd').filter(name => {
      try {
        return readlinkSync(`/proc/self/fd/${name}`) === `${path}-wal`;
      } catch {
        return false;
      }
    }).length;
  assert.equal(openFiles(), 1);
  for (let round = 0; round < 2; round++) {
    writePages(db, 1500);
    await db.checkpoint;
    while (openFiles() > 1) await new Promise(resolve => setImmediate(resolve));
  }
  assert.equal(logOf(db).log, logOf(db).checkpointed);
  assert.deepEqual(checkpoints.failures, []);
});

test('a stop during a checkpoint waits for it, and closing then removes the log', async () => {
  using fixture = openFixture();
  const { db, path } = fixture;
  {
    await using _ = start(db);
    writePages(db, 1500);
    assert.ok(db.checkpoint);
  }
  assert.equal(db.checkpoint, undefined);
  assert.ok(existsSync(`${path}-wal`));
  db.close();
  assert.ok(!existsSync(`${path}-wal`));
});

test('if the thread fails, the main thread makes the checkpoints', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  await using checkpoints = start(db, { bindingPath: '/nonexistent/sqlite.node' });
  writePages(db, 1500);
  await db.checkpoint;
  assert.equal(checkpoints.failures.length, 1);
  assert.match(checkpoints.failures[0]?.message ?? '', /nonexistent/);
  writePages(db, 1500);
  assert.equal(db.checkpoint, undefined);
  assert.equal(logOf(db).log, logOf(db).checkpointed);
  assert.equal(checkpoints.failures.length, 1);
});
