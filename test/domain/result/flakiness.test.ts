// Which tests are flaky, and the statistics of tests over builds.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createResultTable, type ResultTable, setResult } from '../../../src/domain/result/comparison.ts';
import { createEvidence, isStillFlaky, scoreOf } from '../../../src/domain/result/flakiness.ts';
import { createSuiteStatistics } from '../../../src/domain/result/suite-statistics.ts';
import type { TestResult } from '../../../src/domain/result/test-result.ts';
import { finish } from '../../support/steps.ts';

/** A letter for each test: p(assed), f(ailed), e(rrored), s(kipped), w(avers in this build), - for one that is absent. */
function table(letters: string, durations: readonly (number | undefined)[] = []): ResultTable {
  const results: Record<string, TestResult> = {
    p: 'passed',
    f: 'failed',
    e: 'errored',
    s: 'skipped',
    w: 'passed',
  };
  const present = [...letters]
    .entries()
    .filter(([, letter]) => letter !== '-')
    .toArray();
  const made = createResultTable(present.length);
  for (const [at, [number, letter]] of present.entries())
    setResult(made, at, {
      number,
      result: results[letter] as TestResult,
      change: letter === 'w' ? 'flaky' : undefined,
      durationMs: durations[number],
    });
  return made;
}

const cases: [own: string, others: string[], evidence: [number, bigint, bigint][]][] = [
  ['pfes', [], []],
  ['pfes', ['pfes'], []],
  [
    'pf',
    ['fp'],
    [
      [0, 1n, 9n],
      [1, 9n, 1n],
    ],
  ],
  ['pe', ['es'], [[0, 1n, 9n]]],
  ['fe', ['ef'], []],
  ['pf-s', ['-sff'], []],
  ['w', ['p'], [[0, 9n, 9n]]],
  ['w', ['f'], [[0, 9n, 9n]]],
  ['p', ['p', 's', 'f', 'f'], [[0, 3n, 9n]]],
  ['-p', ['-f'], [[1, 1n, 9n]]],
];
for (const [own, others, evidence] of cases)
  test(`${own} after ${others.join(', ') || 'nothing'} with the same inputs: ${evidence.length} flaky`, () => {
    const { add, found } = createEvidence({ buildId: 9n, table: table(own) }, 100);
    for (const [at, letters] of others.entries())
      finish(add({ buildId: BigInt(at + 1), table: table(letters) }));
    assert.deepEqual(
      [...found]
        .toSorted(([a], [b]) => a - b)
        .map(([number, { failedBuildId, passedBuildId }]) => [number, failedBuildId, passedBuildId]),
      evidence,
    );
  });

test('of many tests that behave differently only the first are taken', () => {
  const { add, found } = createEvidence({ buildId: 9n, table: table('p'.repeat(50)) }, 20);
  finish(add({ buildId: 1n, table: table('f'.repeat(50)) }));
  assert.equal(found.size, 20);
});

const DAY = 24 * 3600_000;
const ages: [ageMs: number, runs: number, isFlaky: boolean][] = [
  [0, 0, true],
  [14 * DAY - 1, 99, true],
  [14 * DAY, 0, false],
  [0, 100, false],
];
for (const [ageMs, runs, isFlaky] of ages)
  test(`${ageMs / DAY} days and ${runs} runs later a test is ${isFlaky ? 'still' : 'no longer'} flaky`, () =>
    assert.equal(isStillFlaky({ flakyAt: 1000, runs }, 1000 + ageMs), isFlaky));

test('statistics count runs, failures and transitions, and take the newest result and the median of 20 runs', () => {
  const statistics = createSuiteStatistics(4);
  // Newest first.
  const builds = ['pf-s', 'ff-s', 'sf--', 'pfp-', 'fe--'];
  for (const [at, letters] of builds.entries())
    statistics.add(table(letters, [[5, 40, 10, undefined, 20][at], undefined, 7]));
  assert.deepEqual(statistics.numbers(), [0, 1, 2, 3]);
  assert.deepEqual(statistics.of(0), {
    runs: 4,
    failures: 2,
    transitions: 3,
    result: 'passed',
    medianMs: 20,
  });
  assert.deepEqual(statistics.of(1), {
    runs: 5,
    failures: 5,
    transitions: 0,
    result: 'failed',
    medianMs: undefined,
  });
  assert.deepEqual(statistics.of(2), { runs: 1, failures: 0, transitions: 0, result: 'passed', medianMs: 7 });
  assert.deepEqual(statistics.of(3), {
    runs: 0,
    failures: 0,
    transitions: 0,
    result: 'skipped',
    medianMs: undefined,
  });
  assert.equal(statistics.of(4), undefined);
});

test('the median covers the 20 newest durations, and an even number of them has the mean of two', () => {
  const statistics = createSuiteStatistics(2);
  for (let build = 0; build < 30; build += 1) statistics.add(table('p', [build < 20 ? build : 10_000]));
  assert.equal(statistics.of(0)?.medianMs, 10);
});

test('the score is the share of transitions in 50 builds', () => {
  const statistics = createSuiteStatistics(1);
  for (let build = 0; build < 50; build += 1) statistics.add(table(build % 2 === 0 ? 'p' : 'f'));
  assert.equal(scoreOf(statistics.of(0)?.transitions ?? 0), 0.98);
});
