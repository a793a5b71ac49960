// Which tests are flaky. A test is flaky if it failed and then passed in one build, or if it passed and failed in two builds
// of the same commit with the same inputs. It stops to be flaky after two weeks, or after many runs without either.

import { findPosition, type ResultTable, resultAt } from './comparison.ts';
import { isFailure, type TestResult } from './test-result.ts';

export const FLAKY_MS = 14 * 24 * 3600_000;
export const CONSISTENT_RUNS = 100;
/** How many builds of the default branch the score covers. */
export const SCORE_BUILDS = 50;

/** The builds that show that a test is flaky. They are the same if it failed and passed in one. */
export type Evidence = { failedBuildId: bigint; passedBuildId: bigint };

/** By the tests' numbers. `others` have the same commit and the same inputs, newest first. */
export function findEvidence(
  own: { buildId: bigint; table: ResultTable },
  others: readonly { buildId: bigint; table: ResultTable }[],
  max: number,
): Map<number, Evidence> {
  const found = new Map<number, Evidence>();
  const { buildId, table } = own;
  for (let at = 0; at < table.numbers.length && found.size < max; at += 1) {
    const number = table.numbers[at] as number;
    const evidence = isFlakyAt(table, at)
      ? { failedBuildId: buildId, passedBuildId: buildId }
      : contradiction(own, at, others);
    if (evidence) found.set(number, evidence);
  }
  return found;
}

const isFlakyAt = ({ changes }: ResultTable, at: number) => changes[at] === FLAKY;
const FLAKY = 4;

function contradiction(
  { buildId, table }: { buildId: bigint; table: ResultTable },
  at: number,
  others: readonly { buildId: bigint; table: ResultTable }[],
): Evidence | undefined {
  const passed = passes(resultAt(table, at));
  if (passed === undefined) return undefined;
  const other = others.find(({ table: theirs }) => {
    const position = findPosition(theirs, table.numbers[at] as number);
    return position >= 0 && passes(resultAt(theirs, position)) === !passed;
  });
  if (!other) return undefined;
  return passed
    ? { failedBuildId: other.buildId, passedBuildId: buildId }
    : { failedBuildId: buildId, passedBuildId: other.buildId };
}

/** Undefined for a test that was skipped, which is no run. */
const passes = (result: TestResult) => (result === 'skipped' ? undefined : !isFailure(result));

/** Whether a test is still flaky that last was at `flakyAt`, and has run `runs` times since. */
export const isStillFlaky = ({ flakyAt, runs }: { flakyAt: number; runs: number }, now: number) =>
  now - flakyAt < FLAKY_MS && runs < CONSISTENT_RUNS;

export const scoreOf = (transitions: number) => transitions / SCORE_BUILDS;
