// Compares the test results of a build with those of another one.

import { inSteps, type Steps } from './steps.ts';
import {
  isFailure,
  type TestChange,
  type TestCounts,
  type TestResult,
  testChanges,
  testResults,
} from './test-result.ts';

/**
 * The results of a build's tests, by position: the arrays have the same length. A suite may have 100,000 tests, so they are
 * numbers.
 */
export type ResultTable = {
  /** The tests' numbers in their suite, ascending. */
  numbers: Uint32Array;
  /** Indexes of `testResults`. */
  results: Uint8Array;
  /** 0, or 1 + an index of `testChanges`. */
  changes: Uint8Array;
  /** 0 if the duration is not known, or else 1 + milliseconds. */
  durations: Uint32Array;
};

export function createResultTable(length: number): ResultTable {
  return {
    numbers: new Uint32Array(length),
    results: new Uint8Array(length),
    changes: new Uint8Array(length),
    durations: new Uint32Array(length),
  };
}

const codeOf = (change: TestChange | undefined) =>
  change === undefined ? 0 : 1 + testChanges.indexOf(change);
const MAX_DURATION_MS = 2 ** 32 - 2;

export const resultAt = (table: ResultTable, at: number) =>
  testResults[table.results[at] as number] as TestResult;
export const changeAt = (table: ResultTable, at: number): TestChange | undefined =>
  testChanges[(table.changes[at] as number) - 1];
export const durationAt = ({ durations }: ResultTable, at: number) =>
  durations[at] === 0 ? undefined : (durations[at] as number) - 1;

export function setResult(
  table: ResultTable,
  at: number,
  test: {
    number: number;
    result: TestResult;
    change: TestChange | undefined;
    durationMs: number | undefined;
  },
): void {
  table.numbers[at] = test.number;
  table.results[at] = testResults.indexOf(test.result);
  table.changes[at] = codeOf(test.change);
  table.durations[at] =
    test.durationMs === undefined
      ? 0
      : 1 + Math.min(Math.max(0, Math.round(test.durationMs)), MAX_DURATION_MS);
}

/** The position of a test in the table; -1 if it is not there. */
export function findPosition({ numbers }: ResultTable, number: number): number {
  let low = 0;
  let high = numbers.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const found = numbers[middle] as number;
    if (found === number) return middle;
    if (found < number) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

/** `before` is the result in the other build; undefined if the test did not run there or there is no such build. */
export function classifyChange(
  test: { result: TestResult; isFlaky: boolean },
  before: TestResult | undefined,
): TestChange | undefined {
  const failedBefore = before !== undefined && isFailure(before);
  if (isFailure(test.result)) return failedBefore ? 'still' : 'new';
  if (test.result !== 'passed') return undefined;
  if (test.isFlaky) return 'flaky';
  return failedBefore ? 'fixed' : undefined;
}

/** Sets the changes of a table that was compared with no other build: those since the build that has the results `before`. */
export function* compareWith(table: ResultTable, before: ResultTable): Steps {
  let there = 0;
  yield* inSteps(table.numbers.length, (from, to) => {
    for (let at = from; at < to; at += 1) {
      const number = table.numbers[at] as number;
      while ((before.numbers[there] as number) < number) there += 1;
      if (before.numbers[there] !== number) continue;
      const resultBefore = resultAt(before, there);
      // Others make no difference.
      if (!isFailure(resultBefore)) continue;
      const isFlaky = changeAt(table, at) === 'flaky';
      table.changes[at] = codeOf(classifyChange({ result: resultAt(table, at), isFlaky }, resultBefore));
    }
  });
}

export function* countResults(table: ResultTable): Steps<TestCounts> {
  const results = testResults.map(() => 0);
  const changes = [0, ...testChanges.map(() => 0)];
  yield* inSteps(table.numbers.length, (from, to) => {
    for (let at = from; at < to; at += 1) {
      (results[table.results[at] as number] as number) += 1;
      (changes[table.changes[at] as number] as number) += 1;
    }
  });
  const ofResult = (result: TestResult) => results[testResults.indexOf(result)] as number;
  const ofChange = (change: TestChange) => changes[1 + testChanges.indexOf(change)] as number;
  return {
    passed: ofResult('passed'),
    failed: ofResult('failed'),
    errored: ofResult('errored'),
    skipped: ofResult('skipped'),
    newFailures: ofChange('new'),
    fixed: ofChange('fixed'),
    flaky: ofChange('flaky'),
  };
}

/** What a list shows first: new failures, then other failures, flaky and fixed tests, passed and skipped ones. */
const rankOf = (result: TestResult, change: TestChange | undefined) =>
  change === undefined ? (result === 'passed' ? 4 : 5) : ['new', 'still', 'flaky', 'fixed'].indexOf(change);
const RANKS = 6;

/** By change and result, as tables have them. */
const ranks = Uint8Array.from(
  [undefined, ...testChanges].flatMap(change => testResults.map(result => rankOf(result, change))),
);

/** The positions of the tests in the order in which a list shows them. */
export function* positionsByRank({ numbers, results, changes }: ResultTable): Steps<Uint32Array> {
  const { length } = numbers;
  const rankAt = (at: number) =>
    ranks[(changes[at] as number) * testResults.length + (results[at] as number)] as number;
  const starts = new Uint32Array(RANKS + 1);
  yield* inSteps(length, (from, to) => {
    for (let at = from; at < to; at += 1) (starts[rankAt(at) + 1] as number) += 1;
  });
  for (let rank = 0; rank < RANKS; rank += 1) (starts[rank + 1] as number) += starts[rank] as number;
  const positions = new Uint32Array(length);
  yield* inSteps(length, (from, to) => {
    for (let at = from; at < to; at += 1) {
      const rank = rankAt(at);
      positions[starts[rank] as number] = at;
      (starts[rank] as number) += 1;
    }
  });
  return positions;
}
