// Which tests are flaky. A test is flaky if it failed and then passed in one build, or if it passed and failed in two builds
// of the same commit with the same inputs. It stops to be flaky after two weeks, or after many runs without either.

import type { ResultTable } from './comparison.ts';
import { inSteps, type Steps } from './steps.ts';
import { isFailure, testChanges, testResults } from './test-result.ts';

export const FLAKY_MS = 14 * 24 * 3600_000;
export const CONSISTENT_RUNS = 100;
/** How many builds of the default branch the score covers. */
export const SCORE_BUILDS = 50;

/** The builds that show that a test is flaky. They are the same if it failed and passed in one. */
export type Evidence = { failedBuildId: bigint; passedBuildId: bigint };

/** Gathers the evidence of a build's results, for at most `max` tests. */
export function createEvidence(
  own: { buildId: bigint; table: ResultTable },
  max: number,
): {
  /** Adds a build of the same commit with the same inputs. Builds are added newest first. */
  add(other: { buildId: bigint; table: ResultTable }): Steps;
  /** By the tests' numbers. */
  found: Map<number, Evidence>;
} {
  const found = new Map<number, Evidence>();
  const { buildId, table } = own;
  const { length } = table.numbers;
  for (let at = 0; at < length && found.size < max; at += 1)
    if (table.changes[at] === FLAKY)
      found.set(table.numbers[at] as number, { failedBuildId: buildId, passedBuildId: buildId });
  return {
    found,
    *add(other) {
      const theirs = other.table;
      let there = 0;
      yield* inSteps(length, (from, to) => {
        for (let at = from; at < to && found.size < max; at += 1) {
          const number = table.numbers[at] as number;
          while ((theirs.numbers[there] as number) < number) there += 1;
          if (theirs.numbers[there] !== number) continue;
          const result = outcomes[table.results[at] as number];
          const otherResult = outcomes[theirs.results[there] as number];
          if (result === otherResult || result === NO_RUN || otherResult === NO_RUN || found.has(number))
            continue;
          found.set(
            number,
            result === PASS
              ? { failedBuildId: other.buildId, passedBuildId: buildId }
              : { failedBuildId: buildId, passedBuildId: other.buildId },
          );
        }
      });
    },
  };
}

const FLAKY = 1 + testChanges.indexOf('flaky');
const [NO_RUN, PASS, FAILURE] = [0, 1, 2];
/** By the index of a result. A test that was skipped did not run. */
const outcomes = testResults.map(result =>
  result === 'skipped' ? NO_RUN : isFailure(result) ? FAILURE : PASS,
);

/** Whether a test is still flaky that last was at `flakyAt`, and has run `runs` times since. */
export const isStillFlaky = ({ flakyAt, runs }: { flakyAt: number; runs: number }, now: number) =>
  now - flakyAt < FLAKY_MS && runs < CONSISTENT_RUNS;

export const scoreOf = (transitions: number) => transitions / SCORE_BUILDS;
