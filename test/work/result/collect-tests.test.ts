// Test reports of real builds: what becomes of them in the record, the log and the API, and that they never change a verdict.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';

/** Writes a report from the file `results` of the checkout: a line with a name and a result for each test. */
const COMMAND = [
  'status=0',
  '{',
  '  echo "<testsuite name=\\"unit\\">"',
  '  while read -r name result; do',
  '    echo "<testcase classname=\\"unit\\" name=\\"$name\\" time=\\"0.25\\">"',
  '    case $result in',
  '      failed) status=1; echo "<failure message=\\"$name broke with $TOKEN\\">at line 1</failure>" ;;',
  '      skipped) echo "<skipped/>" ;;',
  '    esac',
  '    echo "</testcase>"',
  '  done <results',
  '  echo "</testsuite>"',
  '} >/srv/artifacts/junit.xml',
  'exit $status',
].join('\n');

describe('Test reports', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3 });
  });
  after(() => assay.close());

  const listOf = async (project: Awaited<ReturnType<Appliance['project']>>, path: string) =>
    (await project.ask('GET', path)) as unknown as Wire[];
  const commit = (results: string, message = 'Change\n') => ({ message, files: { results } });

  test('are counted in the build, compared with the parent, and masked', async () => {
    const repository = assay.repository(commit('a passed\nb failed\nc passed\n'));
    const project = await assay.project(repository);
    const suiteId = await project.suite({ command: COMMAND, variables: { TOKEN: 'supersecretvalue' } });
    const first = (await project.run()).of(suiteId);
    assert.equal(first.build.build_state, 'failed');
    assert.deepEqual(first.build.tests, {
      passed: 2,
      failed: 1,
      errored: 0,
      skipped: 0,
      new_failures: 1,
      fixed: 0,
      flaky: 0,
    });
    assert.match(first.log, /^\[assay\] tests: 2 passed, 1 failed; 1 new test failure$/m);
    assert.ok(!first.log.includes('supersecretvalue'));

    const [next = ''] = repository.add(commit('a failed\nb failed\nc skipped\nd passed\n', 'Break a\n'));
    // Built on a branch of its own, after another build of main that is no ancestor.
    repository.git('branch', 'feature', next);
    const second = (await project.run('feature')).of(suiteId);
    assert.match(
      second.log,
      /^\[assay\] tests: 1 passed, 2 failed, 1 skipped; 1 new test failure, 1 known$/m,
    );
    const tests = await listOf(project, `/builds/${second.build.id_str}/tests`);
    assert.deepEqual(
      tests.map(({ name, result, change, duration_ms, message }) => [
        name,
        result,
        change,
        duration_ms,
        message,
      ]),
      [
        ['a', 'failed', 'new', 250, 'a broke with ***'],
        ['b', 'failed', 'still', 250, 'b broke with ***'],
        ['d', 'passed', undefined, 250, undefined],
        ['c', 'skipped', undefined, 250, undefined],
      ],
    );
    const history = await listOf(project, `/tests/${tests[1]?.id_str}/history`);
    assert.deepEqual(
      history.map(({ build_id_str, result, branch }) => [build_id_str, result, branch]),
      [
        [second.build.id_str, 'failed', 'feature'],
        [first.build.id_str, 'failed', 'main'],
      ],
    );
  });

  test('show a test as flaky that fails and then passes in a rerun, and not if the command was changed', async () => {
    const project = await assay.project();
    const report = (result: string) =>
      `echo '<testsuite><testcase classname="x" name="t">${result}</testcase></testsuite>' >/srv/artifacts/r.xml`;
    // Fails the first time, as the cache shows.
    const wavering = `if mkdir /srv/cache/ran 2>/dev/null; then ${report('<failure/>')}; exit 1; fi; ${report('')}`;
    const suiteId = await project.suite({ command: wavering });
    const first = (await project.run()).of(suiteId).build;
    const rerun = await project.finishedBuild(await project.rerun(first.id_str as string));
    assert.deepEqual([first.build_state, rerun.build_state], ['failed', 'passed']);
    const [found] = await listOf(project, `/suites/${suiteId}/tests?sort=flaky`);
    assert.deepEqual(
      [found?.flaky, found?.flaky_failed_build_id_str, found?.flaky_passed_build_id_str],
      [true, first.id_str, rerun.id_str],
    );

    const other = await project.suite({ command: `${report('<failure/>')}; exit 1` });
    const failed = (await project.run()).of(other).build;
    await project.ask('PUT', `/suites/${other}`, { command: report('') });
    const passed = await project.finishedBuild(await project.rerun(failed.id_str as string));
    assert.deepEqual([failed.build_state, passed.build_state], ['failed', 'passed']);
    const [unflaky] = await listOf(project, `/suites/${other}/tests?sort=flaky`);
    assert.deepEqual([unflaky?.flaky, unflaky?.runs, unflaky?.failures], [false, 2, 1]);
  });

  test('that are cut off or are no XML are explained in the log, and the verdict stays', async () => {
    const project = await assay.project();
    const { build, log } = await project.runOne({
      command: [
        `echo '<testsuite><testcase name="a"/><testcase name="b"><failure>x' >/srv/artifacts/cut.xml`,
        'mkdir out; echo nonsense >out/none.xml',
      ].join('\n'),
      reports: 'out/*.xml',
    });
    assert.equal(build.build_state, 'passed', 'a failed test does not change it');
    assert.deepEqual([(build.tests as Wire).passed, (build.tests as Wire).failed], [1, 1]);
    assert.match(log, /^\[assay\] test report cut\.xml, line 2: /m);
    assert.match(log, /^\[assay\] test report out\/none\.xml/m);
  });

  test('that cannot be recorded leave one line in the log, and the verdict stays', async () => {
    const project = await assay.project();
    const { db } = assay.app;
    db.sqlite.exec(
      "CREATE TRIGGER refuse BEFORE INSERT ON tests WHEN new.name = 'refused' BEGIN SELECT raise(ABORT, 'no more tests'); END",
    );
    const { build, log } = await project.runOne({
      command: `echo '<testsuite><testcase name="refused"/></testsuite>' >/srv/artifacts/r.xml`,
    });
    assert.equal(build.build_state, 'passed');
    assert.equal(build.tests, undefined);
    assert.equal(build.artifacts, 1);
    assert.match(log, /^\[assay\] the test results were not recorded: no more tests$/m);
    assert.ok(assay.logged.some(line => line.includes('test results could not be recorded')));
  });
});
