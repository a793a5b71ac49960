// Tests through the API: of a build, of a suite, one, and its history.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findProject, type Project } from '../../../src/store/projects.ts';
import { addReport, reported } from '../../store/result/reported.ts';
import { bootApp, type Planted, type TestApp } from '../../support/app.ts';
import { errors, type Wire } from '../../support/client.ts';
import { ok, plain, takeTime } from '../shape.ts';

let app: TestApp;
let planted: Planted;
let build: Wire;
before(async () => {
  app = await bootApp();
  planted = app.plant();
  deleteReport(planted.build_id);
  const project = findProject(app.db, planted.project_id) as Project;
  const add = (letters: string, others: Parameters<typeof addReport>[4] = {}) =>
    addReport(
      app.db,
      project,
      planted.suite_id,
      [...letters].entries().map(([at, letter]) =>
        reported(`test ${at}`, letter === 'f' ? 'failed' : letter === 's' ? 'skipped' : 'passed', {
          durationMs: 10 * at,
          isFlaky: letter === 'w',
          ...(letter === 'w' && { message: 'sometimes' }),
        }),
      ),
      others,
    );
  await add('pfps');
  await add('ffwp');
  await add('pppp', { branch: 'feature' });
  const last = await add('fppf');
  build = ok(await get(`${path()}/builds/${last.id}`)).record;
});
after(() => app.close());

const deleteReport = (buildId: bigint) =>
  app.db.sqlite.prepare('DELETE FROM build_reports WHERE build_id = ?').run(buildId);
const get = (to: string) => app.client.get(to, app.people.owner.as);
const path = () => `/projects/${planted.project_id}`;
const namesOf = (list: Wire[]) => list.map(({ name }) => name);

test('a build record counts its tests', () => {
  assert.deepEqual(build.tests, {
    passed: 2,
    failed: 2,
    errored: 0,
    skipped: 0,
    new_failures: 1,
    fixed: 1,
    flaky: 0,
  });
});

test('the finished event of a build counts its tests', async () => {
  const { list } = ok(await get(`${path()}/events?limit=1000`));
  const finished = list.filter(({ type }) => type === 'build.finished').map(one => one.build as Wire);
  assert.deepEqual(finished.find(({ id }) => id === build.id)?.tests, build.tests);
});

test('the tests of a build are listed, failing first, and filtered', async () => {
  const list = async (query = '') => ok(await get(`${path()}/builds/${build.id}/tests${query}`)).list;
  const all = await list();
  assert.deepEqual(namesOf(all), ['test 3', 'test 0', 'test 1', 'test 2']);
  assert.deepEqual(plain(all[0] as Wire), {
    classname: 'suite.Class',
    name: 'test 3',
    file: null,
    result: 'failed',
    change: 'new',
    duration_ms: 30,
    flaky: false,
    message: 'test 3 failed',
    details: 'at test 3',
  });
  assert.deepEqual(
    all.map(({ change, flaky }) => [change, flaky]),
    [
      ['new', false],
      ['still', false],
      ['fixed', false],
      [undefined, true],
    ],
  );
  assert.deepEqual(namesOf(await list('?result=failed')), ['test 3', 'test 0']);
  assert.deepEqual(namesOf(await list('?new=true')), ['test 3']);
  assert.deepEqual(namesOf(await list('?result=passed&q=TEST%202')), ['test 2']);
  assert.deepEqual(await list('?q=nowhere'), []);
});

test('the lists have pages', async () => {
  for (const list of [
    `builds/${build.id}/tests?limit=3`,
    `suites/${planted.suite_id}/tests?limit=3&sort=slowest`,
  ]) {
    const first = ok(await get(`${path()}/${list}`));
    assert.equal(first.list.length, 3);
    const [, next = ''] = /<([^>]+)>; rel="next"/.exec(String(first.headers.link)) ?? [];
    const second = ok(await get(next.replace(app.url, '')));
    assert.equal(second.list.length, 1);
    assert.equal(second.headers.link, undefined);
    assert.equal(new Set(namesOf([...first.list, ...second.list])).size, 4);
  }
});

test('the tests of a suite are listed in the wanted order', async () => {
  const list = async (query = '') => ok(await get(`${path()}/suites/${planted.suite_id}/tests${query}`)).list;
  assert.deepEqual(namesOf(await list()), ['test 3', 'test 2', 'test 1', 'test 0']);
  assert.deepEqual(namesOf(await list('?sort=slowest')), ['test 3', 'test 2', 'test 1', 'test 0']);
  assert.deepEqual(namesOf(await list('?sort=flaky')).slice(0, 2), ['test 2', 'test 0']);
  assert.deepEqual(namesOf(await list('?sort=failing')).slice(0, 2), ['test 0', 'test 1']);
  const [one] = await list('?sort=failing&branch=feature');
  assert.equal(one?.runs, 1);
});

test('a test names the builds that show that it is flaky', async () => {
  const { list } = ok(await get(`${path()}/suites/${planted.suite_id}/tests?sort=flaky&limit=1`));
  const found = ok(await get(`${path()}/tests/${list[0]?.id}`)).record;
  assert.deepEqual(found, list[0]);
  assert.equal(found.flaky_failed_build_id, found.flaky_passed_build_id);
  const rest = plain(found, {
    id: 'id_str',
    suite_id: 'suite_id_str',
    first_build_id: 'first_build_id_str',
    flaky_failed_build_id: 'flaky_failed_build_id_str',
    flaky_passed_build_id: 'flaky_passed_build_id_str',
  });
  takeTime(rest, 'flaky_at');
  assert.deepEqual(rest, {
    classname: 'suite.Class',
    name: 'test 2',
    file: null,
    result: 'passed',
    runs: 4,
    failures: 0,
    median_duration_ms: 20,
    score: 0,
    flaky: true,
  });
});

test('a test that no report of the latest builds names has no result', async () => {
  const { project_id, build_id, test_id } = app.plant();
  deleteReport(build_id);
  const found = ok(await get(`/projects/${project_id}/tests/${test_id}`)).record;
  assert.deepEqual([found.result, found.runs, found.flaky, found.flaky_at], [null, 0, false, undefined]);
  for (const list of [`tests/${test_id}/history`, `builds/${build_id}/tests`])
    assert.deepEqual(ok(await get(`/projects/${project_id}/${list}`)).list, []);
});

test('the history of a test lists its builds, newest first', async () => {
  const { list } = ok(await get(`${path()}/builds/${build.id}/tests?limit=1`));
  const runs = ok(await get(`${path()}/tests/${list[0]?.id}/history`)).list;
  const first = plain(runs[0] as Wire, { build_id: 'build_id_str', commit_id: 'commit_id_str' });
  takeTime(first, 'created_at');
  assert.match(String(first.ref), /^a{30}/);
  assert.deepEqual(
    { ...first, ref: '' },
    {
      ref: '',
      branch: 'main',
      build_state: 'failed',
      result: 'failed',
      change: 'new',
      duration_ms: 30,
      message: 'test 3 failed',
      details: 'at test 3',
    },
  );
  assert.deepEqual(
    runs.map(({ result, branch }) => [result, branch]),
    [
      ['failed', 'main'],
      ['passed', 'feature'],
      ['passed', 'main'],
      ['skipped', 'main'],
    ],
  );
  const older = ok(await get(`${path()}/tests/${list[0]?.id}/history?before=${runs[1]?.build_id}`));
  assert.equal(older.list.length, 2);
});

test('wrong parameters are refused, by name', async () => {
  for (const [query, field] of [
    ['result=broken', 'result'],
    ['new=maybe', 'new'],
    ['before=', 'before'],
    [`q=${'x'.repeat(300)}`, 'q'],
  ]) {
    const answer = await get(`${path()}/builds/${build.id}/tests?${query}`);
    assert.deepEqual([answer.status, answer.json], [403, errors(field as string, 'invalid_format')]);
  }
  const answer = await get(`${path()}/suites/${planted.suite_id}/tests?sort=size`);
  assert.deepEqual([answer.status, answer.json], [403, errors('sort', 'invalid_format')]);
});
