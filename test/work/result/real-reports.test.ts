// Test runners write their reports in real builds, and Assay shows the results that they state.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { inspect } from 'node:util';
import { type Appliance, startAppliance } from '../../support/appliance.ts';
import type { Wire } from '../../support/client.ts';
import { countTests, readReport } from '../../support/report.ts';

const nodeTests = `
const { describe, it, test } = require('node:test');
const assert = require('node:assert');
describe('cart', () => {
  describe('total', () => {
    it('adds', () => {});
    it('rounds', () => assert.equal(1, 2, 'rounded to <1> ]]> & more'));
  });
  it('ships', { skip: 'later' }, () => {});
});
test('starts', () => console.log('noise'));
`;

const pythonTests = `
import os
import pytest

@pytest.mark.parametrize('count', [1, 2])
def test_total(count):
    print('the token is', os.environ['TOKEN'])
    assert count == 1, 'wrong \\x1b[31mtotal\\x1b[0m'

@pytest.fixture
def broken():
    raise OSError('no database')

def test_uses_broken(broken):
    pass

@pytest.mark.skip(reason='later')
def test_later():
    pass

class TestOutput:
    def test_prints(self):
        print('<&> é')
`;

const cmakeLists = `
cmake_minimum_required(VERSION 3.21)
project(cart NONE)
enable_testing()
add_test(NAME adds COMMAND true)
add_test(NAME fails COMMAND sh -c "echo wrong total; exit 1")
add_test(NAME skips COMMAND sh -c "exit 77")
set_tests_properties(skips PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME off COMMAND true)
set_tests_properties(off PROPERTIES DISABLED ON)
`;

const files = {
  'a.test.js': nodeTests,
  'b.test.js': nodeTests.replace('assert.equal(1, 2', 'assert.equal(2, 2'),
  'test_cart.py': pythonTests,
  'CMakeLists.txt': cmakeLists,
};

/** A container has the host's /usr. */
const hasNode = existsSync('/usr/bin/node') || existsSync('/usr/local/bin/node');

describe('The test results of a build', () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3 });
  });
  after(() => assay.close());

  /** Runs the command, and returns the counts of the build and `classname | name` of each test by result. */
  const run = async (command: string, reports = '') => {
    const project = await assay.project(assay.repository({ message: 'Tests\n', files }));
    const { build, log } = await project.runOne({
      command,
      reports,
      variables: { TOKEN: 'correct-horse-battery' },
    });
    const listed = (await project.ask('GET', `/builds/${build.id_str}/tests`)) as unknown as Wire[];
    const tests = Object.fromEntries(
      listed.map(one => [
        `${one.classname} | ${one.name}`,
        one as Wire & { result: string; message?: string },
      ]),
    );
    const { passed, failed, errored, skipped } = build.tests as Record<string, number>;
    return { build, log, tests, counts: { passed, failed, errored, skipped } };
  };
  const resultsOf = (tests: Record<string, Wire>) =>
    Object.fromEntries(Object.entries(tests).map(([name, { result }]) => [name, result]));

  test('are those of node --test', { skip: !hasNode && 'Node is not below /usr' }, async () => {
    const { build, log, tests, counts } = await run(
      'node --test --test-reporter=junit --test-reporter-destination=$ASSAY_ARTIFACTS/node.xml a.test.js b.test.js',
    );
    assert.equal(build.build_state, 'failed');
    assert.deepEqual(counts, { passed: 5, failed: 1, errored: 0, skipped: 2 }, log);
    const failing = Object.values(tests).filter(({ result }) => result === 'failed');
    assert.deepEqual(
      failing.map(({ name, message }) => [name, message]),
      [['rounds', 'rounded to <1> ]]> & more']],
    );
  });

  test('are those of pytest, without colours and secrets', async () => {
    const { build, log, tests, counts } = await run(
      'pytest-3 -p no:cacheprovider -q --junitxml=out/pytest.xml -o junit_logging=all',
      'out/*.xml',
    );
    assert.equal(build.build_state, 'failed');
    assert.deepEqual(counts, { passed: 2, failed: 1, errored: 1, skipped: 1 }, log);
    assert.deepEqual(resultsOf(tests), {
      'test_cart | test_total[2]': 'failed',
      'test_cart | test_uses_broken': 'errored',
      'test_cart | test_total[1]': 'passed',
      'test_cart | test_later': 'skipped',
      'test_cart.TestOutput | test_prints': 'passed',
    });
    const failure = tests['test_cart | test_total[2]'] as Wire;
    assert.equal(failure.message, 'AssertionError: wrong total\nassert 2 == 1');
    assert.match(failure.details as string, /the token is \*\*\*/);
    assert.ok(!inspect(tests, { depth: null }).includes('correct-horse'));
  });

  test('are those of CTest, and do not change the state of the build', async () => {
    const { build, log, tests, counts } = await run(
      'cmake -S . -B /tmp/out && ctest --test-dir /tmp/out --output-junit $ASSAY_ARTIFACTS/ctest.xml || true',
    );
    assert.equal(build.build_state, 'passed');
    assert.deepEqual(counts, { passed: 1, failed: 1, errored: 0, skipped: 2 }, log);
    assert.equal((tests['fails | fails'] as Wire).message, 'wrong total');
  });
});

test('a report that the newest Node wrote is read', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'assay-node-'));
  try {
    const names = ['a.test.js', 'b.test.js'] as const;
    for (const name of names) writeFileSync(join(directory, name), files[name]);
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const ran = spawnSync(process.execPath, ['--test', '--test-reporter=junit', ...names], {
      cwd: directory,
      env,
      timeout: 60_000,
    });
    const { tests, problem } = await readReport(ran.stdout);
    assert.equal(problem, undefined);
    assert.deepEqual(countTests(tests), { passed: 5, failed: 1, skipped: 2 });
    assert.equal(tests.find(({ result }) => result === 'failed')?.message, 'rounded to <1> ]]> & more');
  } finally {
    rmSync(directory, { recursive: true });
  }
});

// Written by gotestsum 1.8.2 with Go 1.19: installing Go takes too long for a test.
test('a report that gotestsum wrote is read', async () => {
  const { tests, problem } = await readReport(
    readFileSync(join(import.meta.dirname, '../../engine/fixtures/gotestsum.xml')),
  );
  assert.equal(problem, undefined);
  assert.deepEqual(countTests(tests), { passed: 2, failed: 2, skipped: 1 });
  assert.match(tests.find(({ name }) => name === 'TestTotal/with_tax')?.details ?? '', /got 1, want 2/);
});
