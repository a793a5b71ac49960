// The results of tests in a build, as its test reports state them.

export type TestResult = 'passed' | 'failed' | 'errored' | 'skipped';

/**
 * What changed since the build that a build is compared with: `new` and `still` for a failing test, `fixed` for one that
 * failed there and passes here, `flaky` for one that failed and then passed in this build.
 */
export type TestChange = 'new' | 'still' | 'fixed' | 'flaky';

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
