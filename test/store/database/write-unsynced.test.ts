// Changes that a power failure may undo: they do not wait for the disk, and everything else still does.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { test } from 'node:test';
import { purgeSomeRows } from '../../../src/store/cleanup/purge.ts';
import type { Db } from '../../../src/store/database/db.ts';
import { openFixture } from '../fixture.ts';

const NORMAL = 1n;
const FULL = 2n;
const synchronous = (db: Db) => db.sqlite.pragma('synchronous', { simple: true });

test('only the change itself does not wait for the disk, not what its subscribers write', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const seen: unknown[] = [];
  db.onCommit = () => seen.push(synchronous(db));
  const result = db.writeUnsynced(() => {
    db.touch('queue');
    seen.push(synchronous(db));
    return 'written';
  });
  assert.equal(result, 'written');
  assert.deepEqual(seen, [NORMAL, FULL]);
  assert.equal(synchronous(db), FULL);
});

test('after a change that failed, the next one waits for the disk', () => {
  using fixture = openFixture();
  const { db } = fixture;
  assert.throws(
    () =>
      db.writeUnsynced(() => {
        throw new Error('disk is full');
      }),
    /disk is full/,
  );
  assert.equal(synchronous(db), FULL);
});

test('as part of a durable transaction, it is as durable', () => {
  using fixture = openFixture();
  const { db } = fixture;
  db.write(() => {
    purgeSomeRows(db);
    assert.equal(synchronous(db), FULL);
  });
});

test('a sync releases no lock that other processes must see', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  db.writeUnsynced(() => db.newId());
  const writeElsewhere = `
    const Database = require('better-sqlite3');
    const sqlite = new Database(${JSON.stringify(fixture.path)}, { timeout: 0 });
    try { sqlite.exec('BEGIN IMMEDIATE'); } catch ({ code }) { console.log(code); }`;
  const elsewhere = () => spawnSync(process.execPath, ['--eval', writeElsewhere], { encoding: 'utf8' });
  db.sqlite.exec('BEGIN IMMEDIATE');
  await db.sync();
  assert.equal(elsewhere().stdout, 'SQLITE_BUSY\n');
  db.sqlite.exec('ROLLBACK');
  const { stdout, stderr } = elsewhere();
  assert.deepEqual({ stdout, stderr }, { stdout: '', stderr: '' });
});

test('a sync that fails leaves nothing in the log, where the kernel could lose it', async t => {
  using fixture = openFixture();
  const { db } = fixture;
  const log = `${fixture.path}-wal`;
  db.writeUnsynced(() => db.newId());
  assert.notEqual(statSync(log).size, 0);
  await using handle = await open(log);
  const failing = t.mock.method(Object.getPrototypeOf(handle), 'datasync', async () => {
    throw new Error('input/output error');
  });
  await assert.rejects(db.sync(), /input\/output error/);
  assert.equal(failing.mock.callCount(), 1);
  assert.equal(statSync(log).size, 0);
});

test('only a change that does not wait for the disk is synced later', async t => {
  using fixture = openFixture();
  const { db } = fixture;
  await using handle = await open(`${fixture.path}-wal`);
  const datasync = t.mock.method(Object.getPrototypeOf(handle), 'datasync');
  db.write(() => db.newId());
  await db.sync();
  assert.equal(datasync.mock.callCount(), 0);
  db.writeUnsynced(() => db.newId());
  await db.sync();
  await db.sync();
  assert.equal(datasync.mock.callCount(), 1);
});
