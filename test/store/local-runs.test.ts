// Local runs: nothing that others see of a project changes through them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Build,
  countTestsOfCommit,
  createBuildRequest,
  findBuildRequest,
  findNewestFinishedCommit,
  findPushedCommit,
  listBuildRequests,
  listCommitRefs,
  listCommits,
  listSupersededRequests,
  recordCommit,
  rerunBuild,
} from '../../src/store/builds.ts';
import { cancelBuildRequest } from '../../src/store/cancels.ts';
import type { Db } from '../../src/store/database/db.ts';
import { createStrategy, listDeploys } from '../../src/store/deploys.ts';
import { estimateSeconds } from '../../src/store/estimates.ts';
import { listEvents } from '../../src/store/events.ts';
import { createNotification, listDeliveries, pingNotification } from '../../src/store/notifications.ts';
import { listCommitHeads, summarizeProjects } from '../../src/store/overview.ts';
import { findProject, updateProject } from '../../src/store/projects.ts';
import {
  listFirstWaitingRequests,
  listFirstWaitingSnapshots,
  listWaitingRequests,
} from '../../src/store/queue.ts';
import { findNewestPassedBuild, isNewestOfBranch } from '../../src/store/result/artifact-retention.ts';
import { findReport, listBuildTests } from '../../src/store/result/build-tests.ts';
import { findPassedAt, findPassedBefore, listComparable } from '../../src/store/result/comparable-builds.ts';
import { findBaseBuild } from '../../src/store/result/reports.ts';
import { compareWeeks, listRequestRuns, listRuns } from '../../src/store/result/runs.ts';
import { createLogSearch } from '../../src/store/result/search-builds.ts';
import { findStatistics, listSuiteTests } from '../../src/store/result/suite-tests.ts';
import { countFlakyTests, findTest, listFlakyTests, listTestHistory } from '../../src/store/result/tests.ts';
import { moveBuild } from '../../src/store/transition.ts';
import {
  addAccount,
  addBuilds,
  addProject,
  addSnapshot,
  addSuite,
  commitFields,
  eventTypes,
  openFixture,
} from './fixture.ts';
import { addReport, finishBuild, reported } from './result/reported.ts';

const page = { limit: 100, before: undefined };
const hash = (digit: string) => digit.repeat(40);
const tests = (failing: string[]) =>
  ['reads', 'writes'].map(name => reported(name, failing.includes(name) ? 'failed' : 'passed'));

/** A project with all that builds can affect: a badge, a webhook, commit statuses, a deploy strategy, two commits. */
async function makeWorld(db: Db) {
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const first = await addReport(db, project, suite.id, tests([]), { ref: hash('1') });
  const second = await addReport(db, project, suite.id, tests(['writes']), { ref: hash('2') });
  const webhook = createNotification(db, {
    projectId: project.id,
    name: 'hook',
    notifiableType: 'build',
    url: 'https://hooks.example.org/',
    signingSecret: 'whsec_x',
  });
  const statuses = createNotification(db, {
    projectId: project.id,
    name: 'statuses',
    notifiableType: 'build',
    url: 'https://api.github.com',
    signingSecret: 'token',
    statusOptions: { forge: 'github', repository: 'team/site', contexts: 'both' },
  });
  createStrategy(db, {
    projectId: project.id,
    name: 'Production',
    strategyType: 'git',
    repositoryUrl: 'git@example.com:live.git',
    localBranch: 'main',
    remoteBranch: 'main',
    automatic: true,
  });
  const later = { ...first, id: 2n ** 62n };
  const testIds = db.sqlite.prepare('SELECT id FROM tests ORDER BY id').pluck().all() as bigint[];
  const knownTests = () =>
    testIds.map(id => findTest(db, project.id, id) as NonNullable<ReturnType<typeof findTest>>);

  /** What others see, by name. */
  const views: Record<string, () => unknown> = {
    'the state of the project': () => findProject(db, project.id)?.buildState,
    'the badge': () => findNewestFinishedCommit(db, project.id)?.id,
    'the badge of a branch': () => findNewestFinishedCommit(db, project.id, 'main'),
    'the tests of the badge': () =>
      countTestsOfCommit(db, findNewestFinishedCommit(db, project.id)?.id ?? 0n),
    'the commits': () => listCommits(db, project.id, page),
    'the matrix': () => listCommitHeads(db, project.id, page),
    'the hashes that a force push may replace': () => listCommitRefs(db, project.id),
    'the overview of projects': () => summarizeProjects(db, [project.id], 12).get(project.id),
    'the newest passed build of a branch': () => findNewestPassedBuild(db, suite, 'main')?.id,
    'the newest passed build': () => findNewestPassedBuild(db, suite)?.id,
    'the chart of a suite': () => listRuns(db, suite.id, { branch: undefined, limit: 100 }),
    'the chart of a branch': () => listRuns(db, suite.id, { branch: 'main', limit: 100 }),
    'the weeks of a suite': () => compareWeeks(db, suite.id, undefined),
    'the history of a project': () => listRequestRuns(db, project.id, { branch: undefined, limit: 100 }),
    'the builds to compare with': () => listComparable(db, later, 100).map(({ build }) => build.id),
    'the last good build of a branch': () => findPassedBefore(db, later, 'main')?.id,
    'the last good build of ancestors': () => findPassedAt(db, later, [hash('3'), hash('2'), hash('1')])?.id,
    'the base of test results, by ancestors': () => findBaseBuild(db, later, '', [hash('3'), hash('2')]),
    'the base of test results, by branch': () => findBaseBuild(db, later, 'main', []),
    'the tests of a suite': () => listSuiteTests(db, suite, { order: 'slowest' }, page),
    'the tests of a branch': () => listSuiteTests(db, suite, { order: 'failing', branch: 'main' }, page),
    'the statistics of tests': () => Promise.all(knownTests().map(one => findStatistics(db, one))),
    'the history of tests': () => Promise.all(knownTests().map(one => listTestHistory(db, one, page))),
    'the flaky tests': () => [
      listFlakyTests(db, project.id, 100),
      countFlakyTests(db, { projectId: project.id }),
    ],
    'the deploys': () => listDeploys(db, project.id, page).map(({ commitRef }) => commitRef),
    'the estimate': () => estimateSeconds(db, { suiteId: suite.id, buildState: 'running' }),
    'the deliveries of webhooks': () => listDeliveries(db, webhook.id, page).map(({ id }) => id),
    'the commit statuses': () => listDeliveries(db, statuses.id, page).map(({ id }) => id),
  };
  const read = async () =>
    Object.fromEntries(
      await Promise.all(Object.entries(views).map(async ([name, view]) => [name, await view()] as const)),
    );
  return { project, suite, first, second, webhook, statuses, read };
}

test('nothing that others see changes through local runs, and all of it through others', async () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const { project, suite, read } = await makeWorld(db);
  const snapshotId = addSnapshot(db, { projectId: project.id, accountId: project.ownerId });
  const before = await read();
  const unchanged = async (when: string) => assert.deepEqual(await read(), before, when);

  const waiting = addBuilds(db, project, [suite.id], hash('3'), snapshotId);
  await unchanged('while a local run waits');
  moveBuild(db, waiting.builds[0] as bigint, 'start');
  await unchanged('while it runs');
  now.ms += 3600_000;
  await finishBuild(db, waiting.builds[0] as bigint, [...tests([]), reported('new', 'failed')]);
  await unchanged('after it failed');
  // The hash of a commit that is on a branch, with other results than there.
  await addReport(db, project, suite.id, tests([]), { ref: hash('2'), snapshotId, digest: 'same' });
  const failed = await addReport(db, project, suite.id, tests(['reads']), {
    ref: hash('2'),
    snapshotId,
    digest: 'same',
  });
  await unchanged('after one passed and another failed with the same inputs');
  rerunBuild(db, failed, suite);
  await unchanged('after a rerun');
  cancelBuildRequest(db, failed.buildRequestId, 'by somebody');
  createBuildRequest(db, project, 'main', 'a@example.org', { trigger: 'local', snapshotId });
  await unchanged('after a request without a commit');

  const types = new Set(eventTypes(db));
  assert.ok(types.has('build.finished') && types.has('build_request.finished'));
  const last = listEvents(db, project.id, 0n, 1000).at(-1);
  assert.match(
    last?.body ?? '',
    /"type":"build_request.enqueued".*"trigger":"local"/,
    'streams have the events',
  );

  now.ms += 3600_000;
  const run = async (digit: string, extra: Parameters<typeof reported>) => {
    const [id] = addBuilds(db, project, [suite.id], hash(digit)).builds as [bigint];
    moveBuild(db, id, 'start');
    now.ms += 60_000;
    await finishBuild(db, id, [...tests([]), reported(...extra)]);
  };
  await run('4', ['new', 'passed', { isFlaky: true }]);
  await run('3', ['more', 'passed']);
  const after = await read();
  const same = Object.keys(before).filter(
    name => JSON.stringify(before[name], text) === JSON.stringify(after[name], text),
  );
  assert.deepEqual(same, [], 'a view that never changes proves nothing');
});

const text = (_: string, value: unknown) =>
  typeof value === 'bigint' ? `${value}` : value instanceof Map ? [...value] : value;

test('a local run is compared with its ancestors or its branch, and has results of its own', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { project, suite, first, second } = await makeWorld(db);
  const snapshotId = addSnapshot(db, { projectId: project.id, accountId: project.ownerId });
  const run = (ancestors: string[]) =>
    addReport(db, project, suite.id, [...tests(['reads']), reported('only here', 'passed')], {
      snapshotId,
      ancestors,
    });
  const changes = async (build: Build) =>
    (await listBuildTests(db, build, {}, page)).items.map(({ test: { name }, change }) => [name, change]);

  const onFirst = await run([hash('1')]);
  assert.equal(findReport(db, onFirst.id)?.baseBuildId, first.id);
  const onBranch = await run([]);
  assert.equal(findReport(db, onBranch.id)?.baseBuildId, second.id);
  assert.deepEqual(await changes(onBranch), [
    ['reads', 'new'],
    ['writes', 'fixed'],
    ['only here', undefined],
  ]);
  assert.equal(onBranch.local, true);
  assert.equal(isNewestOfBranch(db, onBranch), false);

  const regular = await addReport(db, project, suite.id, [reported('only here', 'passed')]);
  const { items } = await listBuildTests(db, regular, {}, page);
  assert.equal(items[0]?.test.firstBuildId, regular.id, 'the first build of a test is never a local run');
});

test('a local run is listed with its project’s requests, and its commit cannot be deployed', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { project, suite, second } = await makeWorld(db);
  const snapshotId = addSnapshot(db, { projectId: project.id, accountId: project.ownerId });
  const { requestId, commitId } = addBuilds(db, project, [suite.id], hash('2'), snapshotId);
  assert.equal(listBuildRequests(db, project.id, page)[0]?.id, requestId);
  const listed = (filter: Parameters<typeof listBuildRequests>[3]) =>
    listBuildRequests(db, project.id, page, filter).map(({ id }) => id);
  assert.deepEqual(listed({ local: true }), [requestId]);
  assert.ok(!listed({ local: false }).includes(requestId));
  assert.ok(!listed({ branch: 'main' }).includes(requestId));
  assert.notEqual(commitId, second.commitId, 'the commit of the repository keeps its own row');
  assert.equal(findPushedCommit(db, project.id, commitId), undefined);
  assert.equal(findPushedCommit(db, project.id, second.commitId)?.ref, hash('2'));
  assert.equal(recordCommit(db, project.id, commitFields(hash('2'))).id, second.commitId);
  assert.equal(recordCommit(db, project.id, { ...commitFields(hash('2')), local: true }).id, commitId);
});

test('local runs neither supersede other requests nor are superseded', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { project, suite } = await makeWorld(db);
  const snapshotId = addSnapshot(db, { projectId: project.id, accountId: project.ownerId });
  const older = addBuilds(db, project, [suite.id]);
  const local = addBuilds(db, project, [suite.id], undefined, snapshotId);
  const newer = addBuilds(db, project, [suite.id]);
  const superseded = (id: bigint) => {
    const request = findBuildRequest(db, project.id, id);
    return request && listSupersededRequests(db, request);
  };
  assert.deepEqual(superseded(local.requestId), []);
  assert.deepEqual(superseded(newer.requestId), [older.requestId]);
});

test('a test of commit statuses reports the newest build that is not local', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { project, suite, statuses, second } = await makeWorld(db);
  const snapshotId = addSnapshot(db, { projectId: project.id, accountId: project.ownerId });
  addBuilds(db, project, [suite.id], hash('2'), snapshotId);
  pingNotification(db, statuses);
  assert.deepEqual(
    listDeliveries(db, statuses.id, page).map(({ status }) => [
      status?.commit,
      status?.state,
      status?.requestId,
    ]),
    [
      [hash('2'), 'failed', `${second.buildRequestId}`],
      [hash('2'), 'failed', `${second.buildRequestId}`],
    ],
  );
});

test('a local run gets the variables of suites if the owner sent it or the project allows it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const elsewhere = addProject(db, project.ownerId);
  const snapshotOf = (accountId: bigint, projectId = project.id) => addSnapshot(db, { projectId, accountId });
  const collaborator = addAccount(db).id;
  const allowing = updateProject(db, addProject(db), { localVariables: true });
  const cases = [
    { by: 'the owner', project, snapshotId: snapshotOf(project.ownerId), without: false },
    { by: 'a collaborator', project, snapshotId: snapshotOf(collaborator), without: true },
    {
      by: 'a collaborator, who may',
      project: allowing,
      snapshotId: snapshotOf(collaborator, allowing.id),
      without: false,
    },
    {
      by: 'the owner, in another project',
      project,
      snapshotId: snapshotOf(project.ownerId, elsewhere.id),
      without: true,
    },
    { by: 'nobody known', project, snapshotId: 1n, without: true },
  ];
  for (const { by, project, snapshotId, without } of cases) {
    const started = { trigger: 'local', snapshotId, withoutVariables: !without } as const;
    const request = createBuildRequest(db, project, 'main', 'a@example.org', started);
    assert.equal(request.withoutVariables, without, by);
  }
});

test('the estimate is the median of the last 5 builds of the suite that passed', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const estimate = (buildState: Build['buildState'] = 'running') =>
    estimateSeconds(db, { suiteId: suite.id, buildState });
  const run = (seconds: number, end: 'pass' | 'fail' = 'pass') => {
    const [id] = addBuilds(db, project, [suite.id]).builds as [bigint];
    moveBuild(db, id, 'start');
    now.ms += seconds * 1000;
    moveBuild(db, id, end);
  };
  assert.equal(estimate(), undefined);
  run(1000, 'fail');
  assert.equal(estimate(), undefined);
  const expected = [
    [500, 500],
    [0.2, 250],
    [300, 300],
    [10, 155],
    [20, 20],
    [30, 20],
  ] as const;
  for (const [seconds, median] of expected) {
    run(seconds);
    assert.equal(estimate(), median, `after one that took ${seconds} s`);
  }
  run(9000, 'fail');
  assert.equal(estimate('enqueued'), 20);
  assert.equal(estimate('passed'), undefined);
});

test('no query reads all local runs, or all others, to find some', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const statements = new Set<string>();
  const prepare = db.sqlite.prepare.bind(db.sqlite);
  db.sqlite.prepare = ((text: string) => {
    statements.add(text);
    return prepare(text);
  }) as typeof prepare;
  const { project, suite, read } = await makeWorld(db);
  await read();
  const snapshotId = addSnapshot(db, { projectId: project.id, accountId: project.ownerId });
  const { requestId } = addBuilds(db, project, [suite.id], hash('2'), snapshotId);
  const request = findBuildRequest(db, project.id, requestId);
  assert.ok(request && listSupersededRequests(db, { ...request, local: false }));
  listBuildRequests(db, project.id, page, { local: true });
  listFirstWaitingRequests(db);
  listFirstWaitingSnapshots(db);
  listWaitingRequests(db, project.id, 10);
  const search = createLogSearch({ db, dataDirectory: '/nonexistent' });
  const options = { text: 'abc', isCaseSensitive: true, limit: 1, mayRead: () => false };
  const { signal } = new AbortController();
  await search.search(1n, { ...options, projectId: project.id, suiteId: suite.id, signal });

  const plans = [...statements]
    .filter(text => /^\s*(SELECT|UPDATE|DELETE|WITH)/i.test(text))
    .map(text => {
      const steps = prepare(`EXPLAIN QUERY PLAN ${text}`).all(...parametersOf(text)) as { detail: string }[];
      return { text, plan: steps.map(({ detail }) => detail).join('; ') };
    });
  for (const { text, plan } of plans)
    assert.doesNotMatch(plan, /SCAN (builds|commits|build_requests|build_reports)\b/, `${text}: ${plan}`);
  const expected: [what: RegExp, index: string][] = [
    [/build_state IN \('enqueued', 'fetching', 'building'\)/, 'build_requests_unfinished'],
    [/from "build_requests".*"build_requests"\."local" = \?.*desc limit/, 'build_requests_(local|branch)'],
    [/FROM build_requests WHERE build_state = 'enqueued' AND local/, 'build_requests_waiting'],
    [/from "commits".*"commits"\."local" = \?.*desc limit/, 'commits_project'],
    [/finished_at - started_at FROM builds/, 'COVERING INDEX builds_passed'],
    [/suite_id = @suiteId AND builds\.local = 0/, 'builds_suite'],
    [/from "build_reports".*"build_reports"\."local" = \?.*desc limit/, 'build_reports_(suite|branch)'],
  ];
  for (const [what, index] of expected) {
    const found = plans.filter(({ text }) => what.test(text.replace(/\s+/g, ' ')));
    assert.ok(found.length > 0, `${what}`);
    for (const { text, plan } of found) assert.match(plan, new RegExp(index), text);
  }
});

/** Some value for each parameter of a statement. */
function parametersOf(text: string): unknown[] {
  const named = [...text.matchAll(/@(\w+)/g)].map(([, name]) => [name, 0]);
  if (named.length > 0) return [Object.fromEntries(named)];
  return Array.from(text.matchAll(/\?/g), () => 0);
}
