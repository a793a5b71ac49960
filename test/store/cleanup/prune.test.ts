// Retention: old rows are deleted in batches, and rows that are still needed stay.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultOptions } from '../../../src/domain/trigger/trigger.ts';
import { listSuiteDecisions } from '../../../src/store/builds.ts';
import { createPruner, type Retention } from '../../../src/store/cleanup/prune.ts';
import type { Db } from '../../../src/store/database/db.ts';
import { listEvents, recordEvent } from '../../../src/store/events.ts';
import { createNotification, listDeliveries, redeliver } from '../../../src/store/notifications.ts';
import { findMessage, recordAttempt } from '../../../src/store/outbox.ts';
import { listBuildTests } from '../../../src/store/result/build-tests.ts';
import { recordFiring } from '../../../src/store/trigger/firings.ts';
import { createTrigger, listFirings } from '../../../src/store/trigger/triggers.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../fixture.ts';
import { addReport, reported } from '../result/reported.ts';

const DAY_MS = 24 * 3600_000;

function prune(
  db: Db,
  days: { events: number; deliveries: number; decisions: number; firings?: number; tests?: number },
): number {
  const retention: Retention = {
    eventsMs: days.events * DAY_MS,
    firingsMs: (days.firings ?? 90) * DAY_MS,
    deliveriesMs: days.deliveries * DAY_MS,
    decisionsMs: days.decisions * DAY_MS,
    testsMs: (days.tests ?? 90) * DAY_MS,
  };
  const pruner = createPruner(retention);
  let batches = 0;
  while (pruner.pruneSomeRows(db, 0)) batches += 1;
  return batches;
}

const listAll = (db: Db, projectId: bigint) =>
  listEvents(db, projectId, 0n, 10_000).map(({ resourceId }) => resourceId);
const everything = { limit: 10_000, before: undefined };

test('events are deleted when they expire, in batches, and a reader that missed them gets the rest', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  db.write(() => {
    for (let count = 0; count < 450; count += 1) recordEvent(db, project.id, 'ping', 1n);
  });
  const [first] = listEvents(db, project.id, 0n, 1);
  now.ms += 2 * DAY_MS;
  recordEvent(db, project.id, 'ping', 2n);
  prune(db, { events: 3, deliveries: 1, decisions: 1 });
  assert.equal(listAll(db, project.id).length, 451, 'nothing is due yet');
  now.ms += 1 * DAY_MS + 1;
  const batches = prune(db, { events: 3, deliveries: 1, decisions: 1 });
  assert.ok(batches > 4, `${batches} batches`);
  assert.deepEqual(listAll(db, project.id), [2n]);
  assert.equal(listEvents(db, project.id, first?.id ?? 0n, 10).length, 1);
});

test('a pending delivery stays, and a stored one can be sent again with the same body', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const { id } = createNotification(db, {
    projectId: project.id,
    name: 'webhook',
    notifiableType: 'build',
    url: 'https://receiver.invalid',
    signingSecret: 's',
  });
  for (const resourceId of [1n, 2n, 3n]) recordEvent(db, project.id, 'build.finished', resourceId);
  const [third, second, first] = listDeliveries(db, id, everything);
  assert.ok(first && second && third);
  const settle = (deliveryId: bigint, state: 'delivered' | 'failed') =>
    recordAttempt(db, deliveryId, {
      state,
      attempts: 1,
      responseStatus: 204,
      responseMs: 1,
      responseExcerpt: '',
      lastError: null,
      nextAttemptAt: null,
    });
  settle(first.id, 'delivered');
  settle(second.id, 'failed');
  const body = findMessage(db, first.id)?.body;
  now.ms += 10 * DAY_MS;
  prune(db, { events: 3, deliveries: 20, decisions: 1 });
  assert.equal(listDeliveries(db, id, everything).length, 3);
  assert.deepEqual(listAll(db, project.id), [1n, 2n, 3n], 'events of deliveries that are kept are kept');
  redeliver(db, first);
  assert.equal(findMessage(db, first.id)?.body, body);
  prune(db, { events: 3, deliveries: 5, decisions: 1 });
  assert.deepEqual(
    listDeliveries(db, id, everything).map(delivery => [delivery.id, delivery.state]),
    [
      [third.id, 'pending'],
      [first.id, 'pending'],
    ],
  );
  assert.deepEqual(listAll(db, project.id), [1n, 3n]);
});

test('decisions are deleted when they expire, and the builds stay', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const old = addBuilds(db, project, [1n, 2n]);
  now.ms += 10 * DAY_MS;
  const young = addBuilds(db, project, [1n, 2n]);
  prune(db, { events: 30, deliveries: 30, decisions: 5 });
  assert.deepEqual(
    [old, young].map(({ commitId }) => listSuiteDecisions(db, commitId).length),
    [0, 2],
  );
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM builds').pluck().get(), 4n);
});

test('firings have their own number of days; those that wait, and the last build of a schedule, stay', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const create = (name: string, triggerType: 'push' | 'schedule') =>
    createTrigger(db, {
      projectId: project.id,
      name,
      triggerType,
      options: defaultOptions[triggerType],
      nextAt: null,
      createdBy: 'ada@example.org',
    });
  const push = create('Push', 'push');
  const nightly = create('Nightly', 'schedule');
  const planned = (after: string) =>
    recordFiring(db, nightly, { event: 'schedule', outcome: 'requested', plannedAt: now.ms, after });
  recordFiring(db, push, { event: 'push', outcome: 'requested', after: 'a' });
  const waiting = recordFiring(db, push, { event: 'push', outcome: 'looking' });
  planned('a');
  const last = planned('b');
  now.ms += 10 * DAY_MS;
  const unchanged = recordFiring(db, nightly, {
    event: 'schedule',
    outcome: 'unchanged',
    plannedAt: now.ms,
    after: 'b',
  });
  const idsOf = ({ id }: typeof push) => listFirings(db, id, everything).map(firing => firing.id);
  prune(db, { events: 1, deliveries: 1, decisions: 1, firings: 11 });
  assert.deepEqual([idsOf(push).length, idsOf(nightly).length], [2, 3], 'nothing is due yet');
  prune(db, { events: 30, deliveries: 30, decisions: 30, firings: 9 });
  assert.deepEqual([idsOf(push), idsOf(nightly)], [[waiting.id], [unchanged.id, last.id]]);
});

test('test results are deleted when they expire, except the newest of each branch, and with them tests that nothing names', async () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id).id;
  const old = [reported('old', 'failed'), reported('both', 'failed')];
  const other = addSuite(db, project.id).id;
  await addReport(db, project, other, [reported('gone', 'passed'), reported('gone, but the last', 'passed')]);
  await addReport(db, project, suite, old);
  await addReport(db, project, suite, old, { branch: 'quiet' });
  now.ms += 20 * DAY_MS;
  const newest = await addReport(db, project, suite, [reported('both', 'passed'), reported('new', 'failed')]);
  now.ms += 12 * DAY_MS;
  const count = (table: string) => Number(db.sqlite.prepare(`SELECT count(*) FROM ${table}`).pluck().get());
  prune(db, { events: 90, deliveries: 90, decisions: 90, tests: 33 });
  assert.deepEqual(
    [count('build_reports'), count('test_failures'), count('tests')],
    [4, 5, 5],
    'nothing is due yet',
  );
  prune(db, { events: 90, deliveries: 90, decisions: 90, tests: 30 });
  const branches = db.sqlite.prepare('SELECT branch FROM build_reports ORDER BY build_id').pluck().all();
  assert.deepEqual(branches, ['main', 'quiet', 'main']);
  const names = db.sqlite.prepare('SELECT name FROM tests ORDER BY suite_id, number').pluck().all();
  assert.deepEqual(names, ['both', 'new', 'gone, but the last']);
  assert.deepEqual(
    (await listBuildTests(db, newest, {}, everything)).items.map(({ test: { name }, result }) => [
      name,
      result,
    ]),
    [
      ['new', 'failed'],
      ['both', 'passed'],
    ],
  );
  const again = await addReport(db, project, suite, [reported('both', 'failed'), reported('old', 'passed')]);
  assert.equal(again.tests?.newFailures, 1);
  const numbers = db.sqlite.prepare('SELECT number FROM tests WHERE suite_id = ? ORDER BY number').pluck();
  assert.deepEqual(numbers.all(suite), [2n, 3n, 4n]);
});
