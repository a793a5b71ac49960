// Statistics about the tests of a suite over its latest builds: runs, failures, transitions, the newest result, and the
// median duration.

import type { ResultTable } from './comparison.ts';
import { isFailure, type TestResult, testResults } from './test-result.ts';

/** How many of the latest runs the median duration covers. */
export const MEDIAN_RUNS = 20;

export type TestStatistics = {
  /** Without those that were skipped. */
  runs: number;
  failures: number;
  /** How often a pass followed a failure, or the other way round. */
  transitions: number;
  /** The newest one. */
  result: TestResult;
  medianMs: number | undefined;
};

export type SuiteStatistics = {
  /** Adds a build. Builds are added newest first. */
  add(table: ResultTable): void;
  /** The numbers of all tests of these builds, ascending. */
  numbers(): number[];
  of(number: number): TestStatistics | undefined;
  /** 0 for a test that is not in these builds. */
  transitionsOf(number: number): number;
};

const isFailing = testResults.map(isFailure);
const SKIPPED = testResults.indexOf('skipped');

/** For tests whose numbers are below `size`. */
export function createSuiteStatistics(size: number): SuiteStatistics {
  const builds = new Uint16Array(size);
  const runs = new Uint16Array(size);
  const failures = new Uint16Array(size);
  const transitions = new Uint16Array(size);
  const newest = new Uint8Array(size);
  /** The last result that was not skipped, plus one. */
  const previous = new Uint8Array(size);
  const timed = new Uint8Array(size);
  const durations = new Uint32Array(size * MEDIAN_RUNS);

  const medianMs = (number: number) => {
    const count = timed[number] as number;
    if (count === 0) return undefined;
    const start = number * MEDIAN_RUNS;
    const sorted = durations.slice(start, start + count).sort();
    const middle = count >> 1;
    const upper = sorted[middle] as number;
    return (count % 2 === 1 ? upper : Math.round((upper + (sorted[middle - 1] as number)) / 2)) - 1;
  };

  return {
    add({ numbers, results, durations: lasted }) {
      for (let at = 0; at < numbers.length; at += 1) {
        const number = numbers[at] as number;
        const result = results[at] as number;
        if (number >= size) continue;
        if (builds[number] === 0) newest[number] = result;
        (builds[number] as number) += 1;
        if (result === SKIPPED) continue;
        (runs[number] as number) += 1;
        const fails = isFailing[result] as boolean;
        if (fails) (failures[number] as number) += 1;
        const later = previous[number] as number;
        if (later !== 0 && isFailing[later - 1] !== fails) (transitions[number] as number) += 1;
        previous[number] = result + 1;
        const count = timed[number] as number;
        if (count < MEDIAN_RUNS && lasted[at] !== 0) {
          durations[number * MEDIAN_RUNS + count] = lasted[at] as number;
          timed[number] = count + 1;
        }
      }
    },
    numbers() {
      const found: number[] = [];
      for (let number = 0; number < size; number += 1) if (builds[number] !== 0) found.push(number);
      return found;
    },
    transitionsOf: number => transitions[number] ?? 0,
    of: number =>
      builds[number]
        ? {
            runs: runs[number] as number,
            failures: failures[number] as number,
            transitions: transitions[number] as number,
            result: testResults[newest[number] as number] as TestResult,
            medianMs: medianMs(number),
          }
        : undefined,
  };
}
