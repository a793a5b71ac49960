// Test results of builds: recorded once however often a server is killed, compared with the right build, and read back.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Db } from '../../../src/store/database/db.ts';
import { findReport, listBuildTests } from '../../../src/store/result/build-tests.ts';
import { prepareReport, recordReport } from '../../../src/store/result/reports.ts';
import { listSuiteTests } from '../../../src/store/result/suite-tests.ts';
import { findTest, listFlakyTests, listTestHistory } from '../../../src/store/result/tests.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { addBuilds, addProject, addSuite, dump, openFixture } from '../fixture.ts';
import { addReport, reported, reportOf } from './reported.ts';

const firstPage = { limit: 100, before: undefined };
const hash = (digit: string) => digit.repeat(40);

async function changesOf(db: Db, build: { id: bigint; suiteId: bigint }) {
  const { items } = await listBuildTests(db, build, {}, firstPage);
  return items.map(({ test: { name }, result, change }) => [name, result, change]);
}

test('a report becomes counts of the build, tests of the suite and messages of failures', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const build = await addReport(db, project, suite.id, [
    reported('passes', 'passed'),
    reported('fails', 'failed', { durationMs: 1234.5, file: 'a.test.ts', retries: 2 }),
    reported('breaks', 'errored', { durationMs: undefined }),
    reported('rests', 'skipped', { durationMs: 0 }),
    reported('wavers', 'passed', { isFlaky: true, message: 'once', details: 'only' }),
  ]);
  assert.deepEqual(build.tests, {
    passed: 2,
    failed: 1,
    errored: 1,
    skipped: 1,
    newFailures: 2,
    fixed: 0,
    flaky: 1,
  });
  const { items, next } = await listBuildTests(db, build, {}, firstPage);
  assert.equal(next, undefined);
  assert.deepEqual(
    items.map(({ test: _, ...rest }) => rest),
    [
      {
        result: 'failed',
        change: 'new',
        durationMs: 1235,
        message: 'fails failed',
        details: 'at fails',
        retries: 2,
      },
      {
        result: 'errored',
        change: 'new',
        durationMs: undefined,
        message: 'breaks errored',
        details: 'at breaks',
        retries: 0,
      },
      { result: 'passed', change: 'flaky', durationMs: 10, message: 'once', details: 'only', retries: 0 },
      { result: 'passed', change: undefined, durationMs: 10, message: '', details: '', retries: 0 },
      { result: 'skipped', change: undefined, durationMs: 0, message: '', details: '', retries: 0 },
    ],
  );
  assert.deepEqual(
    items.map(({ test: { name, classname, file } }) => [classname, name, file]),
    [
      ['suite.Class', 'fails', 'a.test.ts'],
      ['suite.Class', 'breaks', null],
      ['suite.Class', 'wavers', null],
      ['suite.Class', 'passes', null],
      ['suite.Class', 'rests', null],
    ],
  );
  assert.deepEqual(findReport(db, build.id), { baseBuildId: null, durationMs: 1255, malformed: null });
});

test('results are compared with the nearest ancestor that has a report, and otherwise with the branch', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const first = await addReport(db, project, suite.id, [reported('a', 'failed'), reported('b', 'passed')], {
    ref: hash('1'),
  });
  const second = await addReport(db, project, suite.id, [reported('a', 'passed'), reported('b', 'failed')], {
    ref: hash('2'),
    branch: 'feature',
    ancestors: [hash('9'), hash('1')],
  });
  assert.equal(findReport(db, second.id)?.baseBuildId, first.id);
  assert.deepEqual(await changesOf(db, second), [
    ['b', 'failed', 'new'],
    ['a', 'passed', 'fixed'],
  ]);
  const third = await addReport(db, project, suite.id, [reported('b', 'failed'), reported('a', 'skipped')], {
    ref: hash('3'),
    branch: 'feature',
    ancestors: [hash('9')],
  });
  assert.equal(findReport(db, third.id)?.baseBuildId, second.id);
  assert.deepEqual(await changesOf(db, third), [
    ['b', 'failed', 'still'],
    ['a', 'skipped', undefined],
  ]);
  assert.deepEqual(third.tests?.newFailures, 0);
  const other = addSuite(db, project.id);
  const alone = await addReport(db, project, other.id, [reported('b', 'failed')], { ancestors: [hash('1')] });
  assert.equal(findReport(db, alone.id)?.baseBuildId, null, 'another suite has other tests');
});

test('a rerun is compared with the ancestor, not with the earlier build of the commit', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const base = await addReport(db, project, suite.id, [reported('a', 'passed')], { ref: hash('1') });
  const options = { ref: hash('2'), ancestors: [hash('1')] };
  await addReport(db, project, suite.id, [reported('a', 'failed')], options);
  const rerun = await addReport(db, project, suite.id, [reported('a', 'failed')], options);
  assert.equal(findReport(db, rerun.id)?.baseBuildId, base.id);
  assert.equal(rerun.tests?.newFailures, 1);
});

test('a test keeps its identity when the volatile parts of its name change', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  await addReport(db, project, suite.id, [reported('opens /tmp/x1/a at 0x7f00aa10', 'passed')]);
  const build = await addReport(db, project, suite.id, [reported('opens /tmp/y2/b at 0x7f00bb20', 'failed')]);
  const { items } = await listBuildTests(db, build, {}, firstPage);
  const [item] = items;
  assert.equal(items.length, 1);
  const history = await listTestHistory(db, item!.test, firstPage);
  assert.deepEqual(
    history.items.map(({ result }) => result),
    ['failed', 'passed'],
  );
});

test('a report that is prepared again after a kill leaves nothing twice', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const { builds } = addBuilds(db, project, [suite.id]);
  const build = moveBuild(db, builds[0]!, 'start')!;
  const tests = [reported('a', 'failed'), reported('b', 'passed'), reported('c', 'errored')];
  const prepare = () => prepareReport(db, build, 'main', reportOf(tests), undefined);
  await prepare();
  const once = dump(db);
  const report = await prepare();
  assert.equal(dump(db), once);
  assert.deepEqual(
    await listBuildTests(db, build, {}, firstPage),
    { items: [], next: undefined },
    'no verdict yet',
  );
  db.write(() => recordReport(db, report));
  assert.equal((await listBuildTests(db, build, {}, firstPage)).items.length, 3);
});

test('the tests of a build are filtered and paged, failing first', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  await addReport(db, project, suite.id, [reported('old failure 3', 'failed')]);
  const build = await addReport(
    db,
    project,
    suite.id,
    [1, 2, 3, 4, 5].flatMap(n => [
      reported(`pass ${n}`, 'passed'),
      reported(`${n === 3 ? 'old' : 'new'} failure ${n}`, 'failed'),
    ]),
  );
  const names = async (filter: Parameters<typeof listBuildTests>[2]) =>
    (await listBuildTests(db, build, filter, firstPage)).items.map(({ test: { name } }) => name);
  assert.deepEqual(await names({ result: 'failed' }), [
    'new failure 1',
    'new failure 2',
    'new failure 4',
    'new failure 5',
    'old failure 3',
  ]);
  assert.deepEqual(await names({ isNew: true, text: 'FAILURE 4' }), ['new failure 4']);
  assert.deepEqual(await names({ text: 'class pass' }), ['pass 1', 'pass 2', 'pass 3', 'pass 4', 'pass 5']);
  assert.deepEqual(await names({ text: 'nothing' }), []);
  const paged: string[] = [];
  let before: bigint | undefined;
  do {
    const { items, next } = await listBuildTests(db, build, {}, { limit: 3, before });
    paged.push(...items.map(({ test: { name } }) => name));
    before = next;
  } while (before !== undefined);
  assert.deepEqual(paged, await names({}));
  assert.equal(paged.length, 10);
});

test('of many failures only the first have a message, and all are counted and listed', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const build = await addReport(
    db,
    project,
    suite.id,
    Array.from({ length: 1200 }, (_, at) => reported(`t${at}`, 'failed')),
  );
  assert.equal(build.tests?.failed, 1200);
  const { items, next } = await listBuildTests(
    db,
    build,
    { result: 'failed' },
    { limit: 1000, before: undefined },
  );
  const rest = await listBuildTests(db, build, { result: 'failed' }, { limit: 1000, before: next });
  assert.deepEqual([items.length, rest.items.length], [1000, 200]);
  assert.equal(
    items.every(({ message }) => message !== ''),
    true,
  );
  assert.equal(
    rest.items.every(({ message }) => message === ''),
    true,
  );
});

test('the tests of a suite are ordered by flakiness, duration, failures and age, of one branch if wanted', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const results = (n: number) => [
    reported('slow', 'passed', { durationMs: 1000 + n }),
    reported('failing', n >= 2 ? 'failed' : 'passed', { durationMs: 5 }),
    reported('wavers', 'passed', { isFlaky: n === 3, durationMs: undefined }),
    ...(n === 4 ? [reported('late', 'passed', { durationMs: 1 })] : []),
  ];
  for (let n = 0; n < 5; n += 1) await addReport(db, project, suite.id, results(n));
  await addReport(db, project, suite.id, [reported('elsewhere', 'passed')], { branch: 'feature' });
  const names = async (order: 'flaky' | 'slowest' | 'failing' | 'newest', branch?: string) =>
    (await listSuiteTests(db, suite, { order, branch }, firstPage)).items.map(({ test: { name } }) => name);
  assert.deepEqual(await names('flaky'), ['wavers', 'failing', 'slow', 'late', 'elsewhere']);
  assert.deepEqual(await names('slowest', 'main'), ['slow', 'failing', 'late', 'wavers']);
  assert.deepEqual(await names('failing'), ['failing', 'slow', 'wavers', 'late', 'elsewhere']);
  assert.deepEqual(await names('newest'), ['elsewhere', 'late', 'wavers', 'failing', 'slow']);
  assert.deepEqual(await names('newest', 'feature'), ['elsewhere']);
  assert.deepEqual(await names('newest', 'nowhere'), []);
  const { items } = await listSuiteTests(db, suite, { order: 'failing', branch: 'main' }, firstPage);
  const { test: _, ...failing } = items[0]!;
  assert.deepEqual(failing, {
    runs: 5,
    failures: 3,
    transitions: 1,
    result: 'failed',
    medianMs: 5,
    score: 1 / 50,
  });
  assert.equal(items.find(({ test: { name } }) => name === 'slow')?.medianMs, 1002);
  const flaky = listFlakyTests(db, project.id, 10);
  assert.deepEqual(
    flaky.map(({ name }) => name),
    ['wavers'],
  );
  assert.equal(flaky[0]?.flakyFailedBuildId, flaky[0]?.flakyPassedBuildId);
  const found = findTest(db, project.id, flaky[0]!.id);
  assert.equal(found?.name, 'wavers');
  assert.equal(findTest(db, addProject(db).id, flaky[0]!.id), undefined, 'a test of another project');
});

test('the history of a test names its builds, newest first, and goes on over pages', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const builds: bigint[] = [];
  for (let n = 0; n < 7; n += 1) {
    const tests = n === 2 ? [reported('b', 'passed')] : [reported('a', n === 4 ? 'failed' : 'passed')];
    builds.push((await addReport(db, project, suite.id, tests, { branch: `branch-${n}` })).id);
  }
  const { items: listed } = await listSuiteTests(db, suite, { order: 'newest' }, firstPage);
  const a = listed.find(({ test: { name } }) => name === 'a')!.test;
  const first = await listTestHistory(db, a, { limit: 4, before: undefined });
  assert.deepEqual(
    first.items.map(({ buildId, result, branch, message }) => [
      builds.indexOf(buildId),
      result,
      branch,
      message,
    ]),
    [
      [6, 'passed', 'branch-6', ''],
      [5, 'passed', 'branch-5', ''],
      [4, 'failed', 'branch-4', 'a failed'],
      [3, 'passed', 'branch-3', ''],
    ],
  );
  const second = await listTestHistory(db, a, { limit: 4, before: first.next });
  assert.deepEqual(
    second.items.map(({ buildId }) => builds.indexOf(buildId)),
    [1, 0],
  );
  assert.equal(second.next, undefined);
});
