// The batches of large changes: one at a time, and none before the previous one is on disk.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { deleteProject } from '../../src/store/cleanup/purge.ts';
import { startBatches } from '../../src/work/batches.ts';
import { addProject, openFixture } from '../store/fixture.ts';

const ROWS = 20_000;

test('no batch begins while the previous one is written to disk, even if more work arrives', {
  timeout: 60_000,
}, async t => {
  using fixture = openFixture();
  const { db } = fixture;
  const live = createLive();
  db.onCommit = topics => live.publish(topics);
  const project = addProject(db);
  db.sqlite
    .prepare(
      `WITH RECURSIVE series (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM series WHERE value < ${ROWS})
       INSERT INTO events (id, project_id, type, resource_id, body, created_at)
       SELECT value, ?, 'build.finished', value, '{}', 1700000000000 FROM series`,
    )
    .run(project.id);
  deleteProject(db, project.id);

  const { sync, writeUnsynced } = db;
  let syncs = 0;
  let isSyncing = false;
  const early: number[] = [];
  db.sync = async () => {
    isSyncing = true;
    live.publish(['batches']);
    await sync();
    // Long enough for a timer that another batch might have set.
    for (let turn = 0; turn < 3; turn += 1) await new Promise(resolve => setTimeout(resolve, 1));
    isSyncing = false;
    syncs += 1;
  };
  db.writeUnsynced = change => {
    if (isSyncing) early.push(syncs);
    return writeUnsynced(change);
  };
  const { promise: isPurged, resolve } = Promise.withResolvers<void>();
  const countProjects = db.sqlite.prepare<[], bigint>('SELECT count(*) FROM projects').pluck();
  db.onWrite = () => {
    if (countProjects.get() === 0n) resolve();
  };
  const hour = 3_600_000;
  const batches = startBatches({
    db,
    live,
    log: createLog(line => t.diagnostic(line)),
    retention: { deliveriesMs: hour, eventsMs: hour, firingsMs: hour, decisionsMs: hour, testsMs: hour },
  });
  t.after(() => batches.stop());
  await isPurged;
  batches.stop();
  assert.deepEqual(early, []);
  assert.ok(syncs > 1, `${syncs} batches were synced`);
});
