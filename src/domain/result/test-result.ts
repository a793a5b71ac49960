// The results of tests in a build, as its test reports state them.

import { countOf, formatCount } from '../text/count.ts';

export const testResults = ['passed', 'failed', 'errored', 'skipped'] as const;
export type TestResult = (typeof testResults)[number];

export const isFailure = (result: TestResult) => result === 'failed' || result === 'errored';

/**
 * What changed since the build that a build is compared with: `new` and `still` for a failing test, `fixed` for one that
 * failed there and passes here, `flaky` for one that failed and then passed in this build.
 */
export const testChanges = ['new', 'still', 'fixed', 'flaky'] as const;
export type TestChange = (typeof testChanges)[number];

export type TestCounts = Record<TestResult, number> & { newFailures: number; fixed: number; flaky: number };

/** The counts of several builds together; undefined if none has any. */
export function addCounts(all: readonly (TestCounts | null)[]): TestCounts | undefined {
  const counted = all.filter(counts => counts !== null);
  const sum = (name: keyof TestCounts) => counted.reduce((total, counts) => total + counts[name], 0);
  if (counted.length === 0) return undefined;
  return {
    passed: sum('passed'),
    failed: sum('failed'),
    errored: sum('errored'),
    skipped: sum('skipped'),
    newFailures: sum('newFailures'),
    fixed: sum('fixed'),
    flaky: sum('flaky'),
  };
}

/** Such as `2 new test failures, 5 known` or `120 tests passed`. */
export function describeCounts({ passed, failed, errored, newFailures }: TestCounts): string {
  const failures = failed + errored;
  if (failures === 0) return `${countOf(passed, 'test')} passed`;
  const known = failures === newFailures ? '' : `, ${formatCount(failures - newFailures)} known`;
  return `${newFailures === 0 ? 'no new test failures' : countOf(newFailures, 'new test failure')}${known}`;
}

/** A test case of a report. A case that a report repeats is one test. */
export type ReportedTest = {
  /** The names of the enclosing suites if the report has no class name. */
  classname: string;
  name: string;
  file: string | undefined;
  result: TestResult;
  durationMs: number | undefined;
  /** Whether it failed and then passed. */
  isFlaky: boolean;
  /** How often it was repeated. */
  retries: number;
  /** Of the failure; empty for a test that passed. */
  message: string;
  details: string;
};

/** The tests of a build. They are made one by one when they are asked for: there may be 100,000. */
export type ReportedTests = { readonly length: number; at(index: number): ReportedTest | undefined };
