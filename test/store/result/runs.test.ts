// The latest runs of suites and projects: which builds count, by branch, their figures, and the order of suites.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { figuresOf } from '../../../src/domain/result/history.ts';
import {
  type Build,
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  findBuild,
  recordCommit,
} from '../../../src/store/builds.ts';
import { type Db, openSqlite } from '../../../src/store/database/db.ts';
import { listLatestBuildsOfSuites, readLatestStates } from '../../../src/store/overview.ts';
import type { Project } from '../../../src/store/projects.ts';
import {
  findPassedAt,
  findPassedBefore,
  listComparable,
} from '../../../src/store/result/comparable-builds.ts';
import {
  compareWeeks,
  listBranchedRuns,
  listBranches,
  listProjectBranches,
  listRequestRuns,
  listRuns,
  listSuiteRuns,
  rankSuites,
} from '../../../src/store/result/runs.ts';
import { createSuite, deleteSuite, type Suite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { commitFields } from '../../support/app.ts';
import { listBuildsOfRequest } from '../../support/builds.ts';
import { addProject, openFixture } from '../fixture.ts';

let made = 0;

const addSuites = (db: Db, { id: projectId }: Project, ...names: string[]) =>
  names.map(name => createSuite(db, { projectId, name, description: '', command: 'true', image: null }));

function run(
  db: Db,
  project: Project,
  branch: string,
  ends: [suite: Suite, end: 'pass' | 'fail' | 'error' | 'time_out' | 'cancel' | ''][],
  tookMs = 0,
): bigint[] {
  const request = createBuildRequest(db, project, branch, 'a@example.org');
  moveRequest(db, request.id, 'fetch');
  const commit = recordCommit(db, project.id, commitFields((++made).toString(16).padStart(40, 'a')));
  enqueueBuilds(
    db,
    request.id,
    commit,
    branch,
    ends.map(([{ id, name }]) => ({ suiteId: id, suiteName: name, runs: true, rules: [] })),
  );
  while (enqueueSomeBuilds(db));
  const builds = listBuildsOfRequest(db, request.id);
  return ends.map(([suite, end]) => {
    const { id } = builds.find(({ suiteId }) => suiteId === suite.id) as { id: bigint };
    if (end !== '') moveBuild(db, id, 'start');
    if (end !== '') moveBuild(db, id, end, { startedAt: db.now() - tookMs });
    return id;
  });
}

test('the runs of a suite are its finished builds without canceled ones, oldest first', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit, lint] = addSuites(db, project, 'Unit', 'Lint') as [Suite, Suite];
  const [passed] = run(db, project, 'main', [
    [unit, 'pass'],
    [lint, 'fail'],
  ]);
  run(db, project, 'main', [[unit, 'cancel']]);
  const [failed] = run(db, project, 'topic', [[unit, 'fail']]);
  run(db, project, 'main', [[unit, '']]);
  const ids = (branch?: string, limit = 100) => listRuns(db, unit.id, { branch, limit }).map(({ id }) => id);
  assert.deepEqual(ids(), [passed, failed]);
  assert.deepEqual(ids('topic'), [failed]);
  assert.deepEqual(ids('gone'), []);
  assert.deepEqual(ids(undefined, 1), [failed], 'the newest ones');
  assert.deepEqual(listBranches(db, unit.id), ['main', 'topic'], 'the branch built last comes first');
});

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

test('the figures of a suite: what passed, and how long each branch took to be fixed', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const [unit] = addSuites(db, project, 'Unit') as [Suite];
  const at = (hours: number, branch: string, end: Parameters<typeof run>[3][number][1]) => {
    now.ms = Date.UTC(2026, 5, 1) + hours * HOUR;
    run(db, project, branch, [[unit, end]]);
  };
  at(0, 'main', 'pass');
  at(1, 'main', 'fail');
  at(2, 'topic', 'time_out');
  at(3, 'main', 'error');
  at(4, 'topic', 'pass');
  at(5, 'main', 'cancel');
  at(6, 'main', 'fail');
  at(7, 'main', 'pass');
  at(8, 'topic', 'fail');
  const figures = (branch?: string) => figuresOf(listRuns(db, unit.id, { branch, limit: 50 }));
  const { counted, passed, timeToFix, failing } = figures();
  assert.deepEqual([passed, counted], [3, 7], 'errored and canceled builds do not count');
  assert.deepEqual(timeToFix, { count: 2, medianMs: 4 * HOUR, lastMs: 6 * HOUR });
  assert.deepEqual(failing, [{ branch: 'topic', since: now.ms }]);
  assert.deepEqual(figures('main').timeToFix, { count: 1, medianMs: 6 * HOUR, lastMs: 6 * HOUR });
  assert.deepEqual(figures('main').failing, []);
  assert.equal(figures('gone').counted, 0);
});

test('weeks are compared by the builds that passed, of one branch if asked', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const [unit] = addSuites(db, project, 'Unit') as [Suite];
  const started = now.ms;
  const took = (day: number, branch: string, end: 'pass' | 'fail', seconds: number) => {
    now.ms = started + day * DAY;
    run(db, project, branch, [[unit, end]], seconds * 1000);
  };
  took(0, 'main', 'pass', 500);
  took(8, 'main', 'pass', 10);
  took(9, 'main', 'pass', 30);
  took(10, 'topic', 'pass', 50);
  took(15, 'main', 'pass', 40);
  took(16, 'main', 'fail', 90);
  now.ms = started + 20 * DAY;
  assert.deepEqual(compareWeeks(db, unit.id, undefined), [
    { builds: 1, medianMs: 40_000 },
    { builds: 3, medianMs: 30_000 },
  ]);
  assert.deepEqual(compareWeeks(db, unit.id, 'main')[1], { builds: 2, medianMs: 20_000 });
  assert.deepEqual(compareWeeks(db, unit.id, 'gone'), [undefined, undefined]);
});

test('the history of a project has its finished build requests, by branch', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit] = addSuites(db, project, 'Unit') as [Suite];
  run(db, project, 'main', [[unit, 'pass']]);
  run(db, project, 'topic', [[unit, 'fail']]);
  run(db, project, 'main', [[unit, 'cancel']]);
  run(db, project, 'main', [[unit, '']]);
  const states = (branch?: string, limit = 10) =>
    listRequestRuns(db, project.id, { branch, limit }).map(({ state }) => state);
  assert.deepEqual(states(), ['passed', 'failed']);
  assert.deepEqual(states('main'), ['passed']);
  assert.deepEqual(states(undefined, 1), ['failed'], 'the newest ones');
  assert.deepEqual(listProjectBranches(db, project.id), ['main', 'topic']);
  assert.deepEqual(listRequestRuns(db, addProject(db).id, { branch: undefined, limit: 10 }), []);
});

test('suites that fail now come first, then those that failed most, and those that never ran last', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suites = addSuites(db, project, 'A', 'B', 'C', 'D', 'E') as [Suite, Suite, Suite, Suite, Suite];
  const [a, b, c, d] = suites;
  run(db, project, 'main', [
    [a, 'pass'],
    [b, 'fail'],
    [c, 'fail'],
    [d, 'pass'],
  ]);
  run(db, project, 'main', [[b, 'pass']], 9_000);
  run(db, project, 'main', [
    [c, 'pass'],
    [d, 'fail'],
  ]);
  deleteSuite(db, c);
  const names = (order: 'failing' | 'slowest', limit = 10, offset = 0) =>
    rankSuites(db, project.id, { order, limit, offset }).map(({ name }) => name);
  assert.deepEqual(names('failing'), ['D', 'B', 'A', 'E']);
  assert.deepEqual(names('failing', 2, 1), ['B', 'A']);
  assert.deepEqual(names('slowest'), ['B', 'A', 'D', 'E']);
  assert.deepEqual(rankSuites(db, addProject(db).id, { order: 'failing', limit: 10, offset: 0 }), []);
});

test('the list of suites has the latest runs of each, oldest first', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit, lint] = addSuites(db, project, 'Unit', 'Lint') as [Suite, Suite];
  for (const end of ['pass', 'fail', 'cancel', 'pass'] as const) run(db, project, 'main', [[unit, end]]);
  const listed = await listSuiteRuns(db, [unit, lint], 2);
  assert.deepEqual(
    listed.map(({ name, runs }) => [name, runs.map(({ state }) => state)]),
    [
      ['Unit', ['failed', 'passed']],
      ['Lint', []],
    ],
  );
});

test('a build is compared with completed builds of its suite: on its branch, or at the nearest commit that passed', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit, lint] = addSuites(db, project, 'Unit', 'Lint') as [Suite, Suite];
  const make = (branch: string, end: 'pass' | 'fail' | 'cancel') => {
    const [id] = run(db, project, branch, [
      [unit, end],
      [lint, 'pass'],
    ]) as [bigint, bigint];
    return findBuild(db, project.id, id) as Build;
  };
  const [first, topic, failed] = [make('main', 'pass'), make('topic', 'pass'), make('main', 'fail')];
  make('main', 'cancel');
  const [build, later] = [make('main', 'fail'), make('main', 'pass')];
  const ids = (limit: number) =>
    listComparable(db, build, limit).map(({ build, branch }) => [build.id, branch]);
  assert.deepEqual(ids(10), [
    [later.id, 'main'],
    [failed.id, 'main'],
    [topic.id, 'topic'],
    [first.id, 'main'],
  ]);
  assert.deepEqual(ids(1), [[later.id, 'main']]);
  assert.equal(findPassedBefore(db, build, 'main')?.id, first.id);
  assert.equal(findPassedBefore(db, build, 'gone'), undefined);
  const at = (...builds: Build[]) =>
    findPassedAt(
      db,
      build,
      builds.map(({ commitRef }) => commitRef),
    )?.id;
  assert.equal(at(build, failed, topic, first), topic.id);
  assert.equal(at(build, first, topic), first.id, 'the first of these commits, not the newest build');
  assert.equal(at(build, failed), undefined);
});

test('the newest build of each suite gives its state at a commit', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit, lint] = addSuites(db, project, 'Unit', 'Lint') as [Suite, Suite];
  const [id] = run(db, project, 'main', [
    [unit, 'fail'],
    [lint, 'fail'],
  ]) as [bigint];
  const { commitId } = findBuild(db, project.id, id) as Build;
  const [again] = run(db, project, 'main', [[unit, 'pass']]);
  db.sqlite.prepare('UPDATE builds SET commit_id = ? WHERE id = ?').run(commitId, again);
  const [other] = run(db, project, 'main', [[lint, 'pass']]) as [bigint];
  const [same] = run(db, project, 'main', [[lint, 'fail']]) as [bigint];
  const readStates = (commit: bigint) => readLatestStates(db, commit);
  const { suites, stateOf, counts, notPassed } = readStates(commitId);
  assert.deepEqual(
    suites.map(suite => [suite, stateOf(suite)]),
    [
      [`${unit.id}`, 'passed'],
      [`${lint.id}`, 'failed'],
    ],
  );
  assert.deepEqual(
    [...counts],
    [
      ['passed', 1],
      ['failed', 1],
    ],
  );
  assert.deepEqual(notPassed, [`${lint.id}`]);
  const [passed, failed] = [other, same].map(build =>
    readStates((findBuild(db, project.id, build) as Build).commitId),
  );
  assert.deepEqual(passed?.suites, [`${lint.id}`]);
  assert.equal(passed?.suites, failed?.suites, 'commits with the same suites share the list');
  assert.deepEqual(
    [passed, failed].map(states => [states?.stateOf(`${lint.id}`), states?.stateOf(`${unit.id}`)]),
    [
      ['passed', undefined],
      ['failed', undefined],
    ],
  );
  assert.deepEqual(readStates(1n).suites, []);
});

test('the states and builds of a commit follow reruns, running builds and deleted builds', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit, lint] = addSuites(db, project, 'Unit', 'Lint') as [Suite, Suite];
  const [failed] = run(db, project, 'main', [[unit, 'fail']]) as [bigint];
  const { commitId } = findBuild(db, project.id, failed) as Build;
  const shown = () => {
    const state = readLatestStates(db, commitId).stateOf(`${unit.id}`);
    const builds = listLatestBuildsOfSuites(db, commitId, [unit.id, lint.id]);
    assert.equal(builds.get(lint.id), undefined);
    const build = builds.get(unit.id);
    assert.equal(build?.buildState, state);
    return [build?.id, state];
  };
  assert.deepEqual(shown(), [failed, 'failed']);
  assert.deepEqual(shown(), [failed, 'failed'], 'from the cache');
  const [rerun] = run(db, project, 'main', [[unit, 'pass']]) as [bigint];
  const change = (to: string) =>
    db.write(() =>
      db.sqlite
        .prepare('UPDATE builds SET commit_id = ?, build_state = ? WHERE id = ?')
        .run(commitId, to, rerun),
    );
  for (const state of ['enqueued', 'running', 'passed']) {
    change(state);
    assert.deepEqual(shown(), [rerun, state]);
  }
  db.write(() => {
    db.sqlite.prepare('DELETE FROM builds WHERE id = ?').run(rerun);
    assert.deepEqual(shown(), [failed, 'failed'], 'before the change is committed');
  });
  assert.deepEqual(shown(), [failed, 'failed']);
});

test('the states of a commit follow changes of another process', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit] = addSuites(db, project, 'Unit') as [Suite];
  const [first] = run(db, project, 'main', [[unit, 'fail']]) as [bigint];
  const { commitId } = findBuild(db, project.id, first) as Build;
  assert.deepEqual(readLatestStates(db, commitId).notPassed, [`${unit.id}`]);
  using other = openSqlite(fixture.path);
  other.prepare('DELETE FROM builds WHERE id = ?').run(first);
  await nextTurn();
  assert.deepEqual(readLatestStates(db, commitId).suites, []);
  assert.deepEqual([...listLatestBuildsOfSuites(db, commitId, [unit.id])], []);
});

test('histories are read by index, however many builds there are', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const statements = new Set<string>();
  const prepare = db.sqlite.prepare.bind(db.sqlite);
  db.sqlite.prepare = ((text: string) => {
    statements.add(text);
    return prepare(text);
  }) as typeof prepare;
  for (const branch of [undefined, 'main']) {
    listRuns(db, 1n, { branch, limit: 50 });
    listRequestRuns(db, 1n, { branch, limit: 50 });
    compareWeeks(db, 1n, branch);
  }
  listBranches(db, 1n);
  listProjectBranches(db, 1n);
  readLatestStates(db, 1n);
  await listSuiteRuns(db, [{ id: 1n, name: 'Unit' }], 20);
  await listBranchedRuns(db, [{ id: 1n, name: 'Unit' }], 20);
  rankSuites(db, 1n, { order: 'failing', limit: 25, offset: 0 });
  assert.ok(statements.size >= 11);
  for (const text of statements) {
    const steps = prepare(`EXPLAIN QUERY PLAN ${text.replaceAll(/\?|@\w+/g, '1')}`).all() as {
      detail: string;
    }[];
    const scans = steps
      .map(({ detail }) => detail)
      .filter(detail => /^SCAN (?!recent|ranked|json_each|one VIRTUAL|\(subquery)/.test(detail));
    assert.deepEqual(scans, [], text);
  }
});
