// Transitions: guarded, and written together with their event and all derived states in one transaction, or not at all.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BuildEvent, type BuildState, buildMachine } from '../../src/domain/build.ts';
import { type CompileEvent, compileMachine } from '../../src/domain/dependency.ts';
import { type DeployEvent, deployMachine } from '../../src/domain/deploy.ts';
import {
  createBuildRequest,
  enqueueBuilds,
  findBuild,
  recordCommit,
  rerunBuild,
} from '../../src/store/builds.ts';
import { cancelBuild, cancelBuildRequest } from '../../src/store/cancels.ts';
import { deleteNotification } from '../../src/store/cleanup/purge.ts';
import type { Db } from '../../src/store/database/db.ts';
import { acceptArchive, cancelCompile, type Dependency, setShared } from '../../src/store/dependencies.ts';
import { createDeploy, createStrategy } from '../../src/store/deploys.ts';
import { createNotification } from '../../src/store/notifications.ts';
import { findProject, type Project } from '../../src/store/projects.ts';
import { attachDependency } from '../../src/store/suites.ts';
import { moveBuild, moveDependency, moveDeploy, moveRequest } from '../../src/store/transition.ts';
import {
  addAccount,
  addBuilds,
  addDependency,
  addProject,
  addSuite,
  commitFields,
  dump,
  eventTypes,
  lastId,
  openFixture,
} from './fixture.ts';

/** The states of a request, its commit and its project. */
function statesOf(db: Db, requestId: bigint): (string | null)[] {
  return db.sqlite
    .prepare(
      `SELECT r.build_state, c.build_state, p.build_state FROM build_requests r
       LEFT JOIN commits c ON c.id = r.commit_id JOIN projects p ON p.id = r.project_id WHERE r.id = ?`,
    )
    .raw()
    .get(requestId) as (string | null)[];
}

const ways: Record<BuildState, BuildEvent[]> = {
  enqueued: [],
  running: ['start'],
  passed: ['start', 'pass'],
  failed: ['start', 'fail'],
  errored: ['error'],
  timed_out: ['start', 'time_out'],
  canceled: ['cancel'],
};
const buildEvents: BuildEvent[] = ['start', 'pass', 'fail', 'error', 'time_out', 'cancel', 'requeue'];

for (const state of Object.keys(buildMachine) as BuildState[])
  for (const event of buildEvents) {
    const next = buildMachine[state][event];
    const title = next ? `moves to ${next} and notifies once` : 'is not moved, and nothing is written';
    test(`a build that is ${state}, on ${event}, ${title}`, () => {
      using fixture = openFixture();
      const { db } = fixture;
      const project = addProject(db);
      // Two suites, so that no verdict ends the request: only the build's own event may appear.
      const { builds } = addBuilds(db, project, [1n, 2n]);
      const id = builds[0] as bigint;
      for (const step of ways[state]) moveBuild(db, id, step);
      const before = dump(db);
      const last = lastId(db);
      const moved = moveBuild(db, id, event);
      assert.equal(moved?.buildState, next);
      assert.equal(findBuild(db, project.id, id)?.buildState, next ?? state);
      if (!next) assert.equal(dump(db), before);
      else
        assert.deepEqual(eventTypes(db, last), [
          next === 'enqueued' ? 'build.enqueued' : next === 'running' ? 'build.started' : 'build.finished',
        ]);
    });
  }

const deployWays: Record<string, DeployEvent[]> = {
  enqueued: [],
  deploying: ['start'],
  deployed: ['start', 'deploy'],
  failed: ['fail'],
  canceled: ['cancel'],
};

function addDeploy(db: Db, project: Project) {
  const strategy = createStrategy(db, {
    projectId: project.id,
    name: `strategy-${lastId(db)}`,
    strategyType: 'git_push',
    repositoryUrl: 'git@example.com:x.git',
    localBranch: 'main',
    remoteBranch: 'main',
    automatic: false,
  });
  const commit = recordCommit(db, project.id, commitFields('d'.repeat(40)));
  return createDeploy(db, strategy, commit, 'someone@example.com');
}

for (const [state, way] of Object.entries(deployWays))
  for (const event of ['start', 'deploy', 'fail', 'cancel'] as const) {
    const next = deployMachine[state as keyof typeof deployMachine][event];
    test(`a deploy that is ${state}, on ${event}, ${next ? `is ${next}` : 'stays'}`, () => {
      using fixture = openFixture();
      const { db } = fixture;
      const deploy = addDeploy(db, addProject(db));
      for (const step of way) moveDeploy(db, deploy.id, step);
      const before = dump(db);
      const last = lastId(db);
      assert.equal(moveDeploy(db, deploy.id, event)?.state, next);
      if (!next) assert.equal(dump(db), before);
      else
        assert.deepEqual(eventTypes(db, last), [next === 'deploying' ? 'deploy.started' : 'deploy.finished']);
    });
  }

const compileWays: Record<string, CompileEvent[]> = {
  waiting_archive_upload: [],
  enqueued_for_compile: ['upload'],
  compiling: ['upload', 'start'],
  compiled: ['upload', 'start', 'compile'],
  compile_failed: ['upload', 'fail'],
};
const compileEventTypes: Record<string, string> = {
  enqueued_for_compile: 'dependency.enqueued',
  compiling: 'dependency.started',
  compiled: 'dependency.finished',
  compile_failed: 'dependency.finished',
};

for (const [state, way] of Object.entries(compileWays))
  for (const event of [
    'upload',
    'recompile',
    'import',
    'start',
    'compile',
    'fail',
    'cancel',
    'requeue',
  ] as const) {
    const next = compileMachine[state as keyof typeof compileMachine][event];
    test(`a dependency that is ${state}, on ${event}, ${next ? `is ${next}` : 'stays'}`, () => {
      using fixture = openFixture();
      const { db } = fixture;
      const project = addProject(db);
      const dependency = addDependency(db, project.ownerId);
      attachDependency(db, addSuite(db, project.id).id, dependency.id);
      for (const step of way) moveDependency(db, dependency.id, step);
      const before = dump(db);
      const last = lastId(db);
      assert.equal(moveDependency(db, dependency.id, event)?.compileState, next);
      if (!next) assert.equal(dump(db), before);
      else assert.deepEqual(eventTypes(db, last), [compileEventTypes[next]]);
    });
  }

test('a build request proceeds from its creation to its verdict, and commit and project with it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const request = createBuildRequest(db, project, 'main', 'someone@example.com');
  assert.deepEqual(statesOf(db, request.id), ['enqueued', null, 'building']);
  moveRequest(db, request.id, 'fetch');
  assert.deepEqual(statesOf(db, request.id), ['fetching', null, 'building']);
  const commit = recordCommit(db, project.id, commitFields('c'.repeat(40)));
  enqueueBuilds(db, request.id, commit, 'main', [
    { suiteId: 1n, suiteName: 'one', runs: true, rules: [] },
    { suiteId: 2n, suiteName: 'two', runs: true, rules: [] },
    { suiteId: 3n, suiteName: 'three', runs: false, rules: [] },
  ]);
  const builds = db.sqlite.prepare('SELECT id FROM builds ORDER BY id').pluck().all() as bigint[];
  assert.equal(builds.length, 2);
  assert.deepEqual(statesOf(db, request.id), ['building', 'waiting_for_builds', 'building']);
  moveBuild(db, builds[0] as bigint, 'start');
  assert.deepEqual(statesOf(db, request.id), ['building', 'building', 'building']);
  moveBuild(db, builds[0] as bigint, 'pass', { exitCode: 0 });
  assert.deepEqual(statesOf(db, request.id), ['building', 'building', 'building']);
  moveBuild(db, builds[1] as bigint, 'start');
  moveBuild(db, builds[1] as bigint, 'fail', { exitCode: 3 });
  assert.deepEqual(statesOf(db, request.id), ['failed', 'failed', 'failed']);
  assert.deepEqual(eventTypes(db), [
    'build_request.enqueued',
    'build.enqueued',
    'build.enqueued',
    'build.started',
    'build.finished',
    'build.started',
    'build.finished',
    'build_request.finished',
  ]);
});

const verdicts: [first: BuildEvent, second: BuildEvent, verdict: string][] = [
  ['pass', 'pass', 'passed'],
  ['pass', 'fail', 'failed'],
  ['error', 'fail', 'failed'],
  ['time_out', 'pass', 'errored'],
  ['cancel', 'error', 'errored'],
  ['cancel', 'pass', 'canceled'],
];
for (const [first, second, verdict] of verdicts)
  test(`builds that ${first} and ${second} make request, commit and project ${verdict}`, () => {
    using fixture = openFixture();
    const { requestId, builds } = addBuilds(fixture.db, addProject(fixture.db), [1n, 2n]);
    for (const id of builds) moveBuild(fixture.db, id, 'start');
    moveBuild(fixture.db, builds[0] as bigint, first);
    moveBuild(fixture.db, builds[1] as bigint, second);
    assert.deepEqual(statesOf(fixture.db, requestId), [verdict, verdict, verdict]);
  });

test('without a suite to run everything is skipped', () => {
  using fixture = openFixture();
  const { requestId } = addBuilds(fixture.db, addProject(fixture.db), []);
  assert.deepEqual(statesOf(fixture.db, requestId), ['skipped', 'skipped', 'skipped']);
});

test('a request that is errored before it has a commit makes the project errored; the next request resets it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const request = createBuildRequest(db, project, 'nowhere', 'someone@example.com');
  moveRequest(db, request.id, 'fetch');
  moveRequest(db, request.id, 'error', { error: 'there is no nowhere' });
  assert.deepEqual(statesOf(db, request.id), ['errored', null, 'errored']);
  const { requestId, builds } = addBuilds(db, project, [1n]);
  moveBuild(db, builds[0] as bigint, 'start');
  moveBuild(db, builds[0] as bigint, 'pass');
  assert.deepEqual(statesOf(db, requestId), ['passed', 'passed', 'passed']);
});

test('a rerun sets its request back to building, and then the newest build of the suite counts', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { requestId, builds } = addBuilds(db, project, [1n]);
  const id = builds[0] as bigint;
  moveBuild(db, id, 'start');
  const failed = moveBuild(db, id, 'fail');
  assert.ok(failed);
  const again = rerunBuild(db, failed, { id: 1n, name: 'one' });
  assert.deepEqual(statesOf(db, requestId), ['building', 'building', 'building']);
  moveBuild(db, again.id, 'start');
  moveBuild(db, again.id, 'pass');
  assert.deepEqual(statesOf(db, requestId), ['passed', 'passed', 'passed']);
});

test('of many concurrent claims of a build one succeeds, and of many verdicts the first one stays', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { builds } = addBuilds(db, project, [1n]);
  const id = builds[0] as bigint;
  const claims = Array.from({ length: 20 }, () => moveBuild(db, id, 'start'));
  assert.equal(claims.filter(Boolean).length, 1);
  const endings = (['fail', 'pass', 'error', 'cancel', 'time_out'] as const).map(event =>
    moveBuild(db, id, event),
  );
  assert.deepEqual(
    endings.map(ended => ended?.buildState),
    ['failed', undefined, undefined, undefined, undefined],
  );
});

test('canceling ends queued builds at once, stops running ones, and does not change finished ones', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { requestId, builds } = addBuilds(db, project, [1n, 2n, 3n]);
  const [running, , ended] = builds as [bigint, bigint, bigint];
  moveBuild(db, running, 'start');
  moveBuild(db, ended, 'start');
  moveBuild(db, ended, 'pass');
  cancelBuildRequest(db, requestId, 'by someone');
  const rows = builds.map(id => findBuild(db, project.id, id));
  assert.deepEqual(
    rows.map(row => [row?.buildState, row?.cancelBecause]),
    [
      ['running', 'by someone'],
      ['canceled', 'by someone'],
      ['passed', null],
    ],
  );
  assert.deepEqual(statesOf(db, requestId), ['building', 'building', 'building']);
  cancelBuild(db, running, 'by another');
  assert.equal(findBuild(db, project.id, running)?.cancelBecause, 'by someone', 'who asked first ended it');
  moveBuild(db, running, 'cancel');
  assert.deepEqual(statesOf(db, requestId), ['canceled', 'canceled', 'canceled']);
  const before = dump(db);
  cancelBuildRequest(db, requestId, 'by another');
  cancelBuild(db, ended, 'by another');
  assert.equal(dump(db), before);
});

test('a cancel that was answered is kept when the job would be retried', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { requestId, builds } = addBuilds(db, project, [1n]);
  const [build] = builds as [bigint];
  moveBuild(db, build, 'start', { nonce: 'n' });
  cancelBuild(db, build, 'by someone');
  // As when Docker stops answering before the container starts.
  assert.equal(moveBuild(db, build, 'requeue', { nonce: null })?.buildState, 'canceled');
  assert.equal(findBuild(db, project.id, build)?.cancelBecause, 'by someone');
  assert.deepEqual(statesOf(db, requestId), ['canceled', 'canceled', 'canceled']);

  const { id } = addDependency(db, project.ownerId);
  moveDependency(db, id, 'upload');
  moveDependency(db, id, 'start', { nonce: 'n' });
  assert.equal(moveDependency(db, id, 'requeue', { nonce: null })?.compileState, 'enqueued_for_compile');
  cancelCompile(db, moveDependency(db, id, 'start', { nonce: 'n' }) as Dependency);
  const canceled = moveDependency(db, id, 'requeue', { nonce: null, error: null });
  assert.deepEqual(
    [canceled?.compileState, canceled?.error],
    ['compile_failed', 'The compile was canceled.'],
  );
});

test('the events of a request contain the new state of the project', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { builds } = addBuilds(db, project, [1n]);
  moveBuild(db, builds[0] as bigint, 'start');
  moveBuild(db, builds[0] as bigint, 'pass');
  const bodies = db.sqlite
    .prepare("SELECT body FROM events WHERE type LIKE 'build_request.%' ORDER BY id")
    .pluck()
    .all() as string[];
  assert.deepEqual(
    bodies.map(body => (JSON.parse(body) as { project: { build_state: string } }).project.build_state),
    ['building', 'passed'],
  );
});

test('a fetch that ends after its request was canceled starts no build', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const request = createBuildRequest(db, project, 'main', 'someone@example.com');
  moveRequest(db, request.id, 'fetch');
  cancelBuildRequest(db, request.id, 'by someone');
  const commit = recordCommit(db, project.id, commitFields('c'.repeat(40)));
  const begun = enqueueBuilds(db, request.id, commit, 'main', [
    { suiteId: 1n, suiteName: 'one', runs: true, rules: [] },
  ]);
  assert.equal(begun, undefined);
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM builds').pluck().get(), 0n);
});

test('a transaction that fails after a transition leaves no state, no event, no delivery, and notifies nobody', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  addReceiver(db, project, 'build');
  const { builds } = addBuilds(db, project, [1n]);
  const before = dump(db);
  const reported: string[] = [];
  db.onCommit = topics => reported.push(...topics);
  assert.throws(
    () =>
      db.write(() => {
        moveBuild(db, builds[0] as bigint, 'start');
        moveBuild(db, builds[0] as bigint, 'pass');
        throw new Error('the disk is full');
      }),
    /the disk is full/,
  );
  assert.equal(dump(db), before);
  assert.deepEqual(reported, []);
  assert.equal(findProject(db, project.id)?.buildState, 'building');
});

test('watchers are notified after the change is durable, and can read it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { builds } = addBuilds(db, project, [1n]);
  const seen: unknown[] = [];
  db.onCommit = topics => {
    assert.ok(topics.has(`build:${builds[0]}`) && topics.has('queue') && topics.has(`events:${project.id}`));
    seen.push(db.sqlite.inTransaction, findBuild(db, project.id, builds[0] as bigint)?.buildState);
  };
  moveBuild(db, builds[0] as bigint, 'start');
  assert.deepEqual(seen, [false, 'running']);
});

const addReceiver = (db: Db, project: Project, notifiableType: 'build' | 'dependency') =>
  createNotification(db, {
    projectId: project.id,
    name: 'receiver',
    notifiableType,
    url: 'https://example.com',
    signingSecret: 'whsec_x',
  });

test('a delivery is written with the event for each enabled notification of its type, and for no other', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const first = addReceiver(db, project, 'build');
  const second = addReceiver(db, project, 'build');
  const off = addReceiver(db, project, 'build');
  db.write(() => db.sqlite.prepare('UPDATE notifications SET enabled = 0 WHERE id = ?').run(off.id));
  const gone = addReceiver(db, project, 'build');
  deleteNotification(db, gone.id);
  addReceiver(db, project, 'dependency');
  addReceiver(db, addProject(db, project.ownerId), 'build');
  createBuildRequest(db, project, 'main', 'someone@example.com');
  const rows = db.sqlite
    .prepare(
      `SELECT d.notification_id, d.event_type, d.state, d.attempts, d.event_id = e.id
       FROM deliveries d JOIN events e ON e.project_id = ? ORDER BY d.id`,
    )
    .raw()
    .all(project.id);
  assert.deepEqual(rows, [
    [first.id, 'build_request.enqueued', 'pending', 0n, 1n],
    [second.id, 'build_request.enqueued', 'pending', 0n, 1n],
  ]);
});

test("a dependency's events go to the projects that use it, directly or through related ones, and to no other", () => {
  using fixture = openFixture();
  const { db } = fixture;
  const owner = addAccount(db).id;
  const base = addDependency(db, owner);
  const middle = addDependency(db, owner, [base.id]);
  const top = addDependency(db, owner, [middle.id]);
  const unrelated = addDependency(db, owner);
  const [direct, through, twice, other, none] = Array.from({ length: 5 }, () => addProject(db, owner)) as [
    Project,
    Project,
    Project,
    Project,
    Project,
  ];
  attachDependency(db, addSuite(db, direct.id).id, base.id);
  attachDependency(db, addSuite(db, through.id).id, top.id);
  const suite = addSuite(db, twice.id);
  attachDependency(db, suite.id, base.id);
  attachDependency(db, suite.id, middle.id);
  attachDependency(db, addSuite(db, twice.id).id, top.id);
  attachDependency(db, addSuite(db, other.id).id, unrelated.id);
  addReceiver(db, through, 'dependency');
  addReceiver(db, through, 'build');
  const reported = (type: string) =>
    db.sqlite.prepare('SELECT project_id FROM events WHERE type = ? ORDER BY id').pluck().all(type);

  acceptArchive(db, base.id, {
    archiveHash: 'h',
    archiveContentType: 'application/x-tar',
    archiveFileSize: 1,
  });
  assert.deepEqual(reported('dependency.enqueued'), [direct.id, through.id, twice.id]);
  moveDependency(db, base.id, 'start');
  assert.deepEqual(reported('dependency.started'), [direct.id, through.id, twice.id]);
  const compiled = moveDependency(db, base.id, 'compile');
  assert.ok(compiled);
  setShared(db, compiled, true);
  assert.deepEqual(reported('dependency.shared'), [direct.id, through.id, twice.id]);
  moveDependency(db, top.id, 'upload');
  assert.deepEqual(reported('dependency.enqueued').slice(3), [through.id, twice.id]);
  assert.equal(
    db.sqlite
      .prepare('SELECT count(*) FROM events WHERE project_id IN (?, ?)')
      .pluck()
      .get(other.id, none.id),
    0n,
  );
  const deliveries = db.sqlite.prepare('SELECT event_type FROM deliveries ORDER BY id').pluck().all();
  assert.deepEqual(deliveries, [
    'dependency.enqueued',
    'dependency.started',
    'dependency.finished',
    'dependency.shared',
    'dependency.enqueued',
  ]);
});
