// Work that takes many transactions: starting and canceling a request of many suites. Between any two transactions the
// server may end, or something else may happen.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  claimBuild,
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  findBuild,
  recordCommit,
  rerunBuild,
} from '../../src/store/builds.ts';
import { cancelBuildRequest, cancelSomeBuilds, markRequestCanceled } from '../../src/store/cancels.ts';
import { type Db, openDb } from '../../src/store/database/db.ts';
import { listFirstWaitingBuilds } from '../../src/store/queue.ts';
import { moveBuild, moveRequest } from '../../src/store/transition.ts';
import { listBuildsOfRequest } from '../support/builds.ts';
import { addBuilds, addProject, commitFields, openFixture } from './fixture.ts';

const suites = (count: number) => Array.from({ length: count }, (_, at) => BigInt(at + 1));

/** A request that has just been fetched, with its first builds. */
function beginMany(db: Db, count: number) {
  const project = addProject(db);
  const request = createBuildRequest(db, project, 'main', 'someone@example.com');
  moveRequest(db, request.id, 'fetch');
  const commit = recordCommit(db, project.id, commitFields('c'.repeat(40)));
  enqueueBuilds(
    db,
    request.id,
    commit,
    'main',
    suites(count).map(suiteId => ({
      suiteId,
      suiteName: `s${suiteId}`,
      runs: suiteId % 10n !== 0n,
      rules: [],
    })),
  );
  return { projectId: project.id, requestId: request.id };
}

const stateOf = (db: Db, requestId: bigint) =>
  db.sqlite.prepare('SELECT build_state FROM build_requests WHERE id = ?').pluck().get(requestId);

/** The number of events of each type; no build may have two of one type. */
function countEvents(db: Db): Record<string, number> {
  const rows = db.sqlite
    .prepare('SELECT type, resource_id AS id, count(*) AS count FROM events GROUP BY type, resource_id')
    .all() as { type: string; id: bigint; count: bigint }[];
  const counts: Record<string, number> = {};
  for (const { type, id, count } of rows) {
    assert.equal(count, 1n, `${type} of ${id}`);
    counts[type] = (counts[type] ?? 0) + 1;
  }
  return counts;
}

/** As after a crash: opens the database again. */
function reopened(fixture: ReturnType<typeof openFixture>, use: (db: Db) => void): void {
  const db = openDb(fixture.path, fixture.vault, () => fixture.now.ms);
  use(db);
  db.close();
}

test('a request of many suites starts in batches, each suite with one build, also over a restart', () => {
  using fixture = openFixture();
  const { requestId } = beginMany(fixture.db, 100);
  const first = listBuildsOfRequest(fixture.db, requestId).length;
  assert.ok(first > 0 && first < 90, `${first} builds at once`);
  assert.ok(enqueueSomeBuilds(fixture.db));
  reopened(fixture, db => {
    while (enqueueSomeBuilds(db));
    const builds = listBuildsOfRequest(db, requestId);
    assert.equal(builds.length, 90);
    assert.equal(new Set(builds.map(({ suiteId }) => suiteId)).size, 90);
    assert.deepEqual(countEvents(db), { 'build_request.enqueued': 1, 'build.enqueued': 90 });
    assert.equal(enqueueSomeBuilds(db), false);
  });
});

test('a request does not end while some of its suites have no build yet', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { requestId } = beginMany(db, 100);
  const passAll = () => {
    for (const { id } of listBuildsOfRequest(db, requestId)) {
      moveBuild(db, id, 'start');
      moveBuild(db, id, 'pass');
    }
  };
  passAll();
  assert.equal(stateOf(db, requestId), 'building');
  while (enqueueSomeBuilds(db)) passAll();
  assert.equal(stateOf(db, requestId), 'passed');
  assert.equal(countEvents(db)['build_request.finished'], 1);
});

test('a request of many builds is canceled in batches, with the events of each build once, also over a restart', () => {
  using fixture = openFixture();
  const project = addProject(fixture.db);
  const { requestId, builds } = addBuilds(fixture.db, project, suites(100));
  cancelBuildRequest(fixture.db, requestId, 'by someone');
  const left = listBuildsOfRequest(fixture.db, requestId).filter(build => build.buildState === 'enqueued');
  assert.ok(left.length > 0 && left.length < 100, `${left.length} builds left`);
  assert.ok(cancelSomeBuilds(fixture.db));
  reopened(fixture, db => {
    while (cancelSomeBuilds(db));
    assert.equal(stateOf(db, requestId), 'canceled');
    for (const id of builds) {
      const build = findBuild(db, project.id, id);
      assert.deepEqual([build?.buildState, build?.cancelBecause], ['canceled', 'by someone']);
    }
    assert.deepEqual(countEvents(db), {
      'build_request.enqueued': 1,
      'build.enqueued': 100,
      'build.finished': 100,
      'build_request.finished': 1,
    });
  });
});

test('no build of a request starts after its cancel was answered', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { requestId, builds } = addBuilds(db, addProject(db), suites(60));
  markRequestCanceled(db, requestId, 'by someone');
  assert.equal(claimBuild(db, builds[0] as bigint), undefined);
  assert.equal(claimBuild(db, builds[59] as bigint), undefined);
  while (cancelSomeBuilds(db));
  assert.deepEqual(listFirstWaitingBuilds(db), []);
  assert.equal(stateOf(db, requestId), 'canceled');
});

test('a request that is canceled while it starts has a canceled build for each suite', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { requestId } = beginMany(db, 100);
  for (const { id } of listBuildsOfRequest(db, requestId)) {
    claimBuild(db, id);
    moveBuild(db, id, 'pass');
  }
  cancelBuildRequest(db, requestId, 'by someone');
  assert.equal(stateOf(db, requestId), 'building');
  while (enqueueSomeBuilds(db) || cancelSomeBuilds(db));
  const states = listBuildsOfRequest(db, requestId).map(({ buildState }) => buildState);
  assert.equal(states.length, 90);
  assert.ok(states.includes('passed') && states.includes('canceled') && !states.includes('enqueued'));
  assert.equal(stateOf(db, requestId), 'canceled');
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM request_cancels').pluck().get(), 0n);
});

test('a rerun after the cancel is not canceled with the others', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { requestId, builds } = addBuilds(db, project, suites(60));
  const first = builds[0] as bigint;
  claimBuild(db, first);
  const failed = moveBuild(db, first, 'fail');
  assert.ok(failed);
  cancelBuildRequest(db, requestId, 'by someone');
  const again = rerunBuild(db, failed, { id: 1n, name: 's1' });
  while (cancelSomeBuilds(db));
  assert.equal(stateOf(db, requestId), 'building');
  assert.ok(claimBuild(db, again.id));
  moveBuild(db, again.id, 'pass');
  assert.equal(stateOf(db, requestId), 'canceled');
});
