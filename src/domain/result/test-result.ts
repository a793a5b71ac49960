// The results of tests in a build, as its test reports state them.

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
