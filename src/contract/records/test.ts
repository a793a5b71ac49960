// The records of tests: those of a build, those of a suite, and the runs of one. Their schemas, and functions that create them from rows.

import { type BuildState, buildMachine } from '../../domain/build.ts';
import {
  type TestChange,
  type TestResult,
  testChanges,
  testResults,
} from '../../domain/result/test-result.ts';
import { idPair, idPairShape, ids, record, shape, wireTime } from '../wire.ts';

const nameShapes = {
  classname: shape.string('The class of the test, or the suites around it, as the report names them.'),
  name: shape.string('Its name.'),
  file: shape.nullable(shape.string('The file that it is in; null if the report does not name it.')),
};
const resultShape = shape.oneOf(testResults, 'Its result.');
const changeShape = shape.oneOf(
  testChanges,
  'Present when the test failed or was fixed: `new` if it did not fail in the build that this one is compared with, `still` if it did, `fixed` if it failed there and passed here, `flaky` if it failed and then passed in this build.',
);
const durationShape = shape.nullable(
  shape.integer('How long it took, in milliseconds; null if the report does not say.'),
);
const messageShapes = {
  message: shape.string(
    'Present when the test failed or is flaky: what the report says. The first 1,000 have one.',
  ),
  details: shape.string('Present with `message`: the stack trace and other details; may be empty.'),
};

type TestRow = {
  id: bigint;
  suiteId: bigint;
  classname: string;
  name: string;
  file: string | null;
  firstBuildId: bigint;
  flakyAt: number | null;
  flakyFailedBuildId: bigint | null;
  flakyPassedBuildId: bigint | null;
};
type Outcome = {
  result: TestResult;
  change: TestChange | undefined;
  durationMs: number | undefined;
  message: string;
  details: string;
};

const presentNames = ({ classname, name, file }: TestRow) => ({ classname, name, file });
const presentOutcome = ({ result, change, durationMs, message, details }: Outcome) => ({
  result,
  ...(change && { change }),
  duration_ms: durationMs ?? null,
  ...((message !== '' || details !== '') && { message, details }),
});

export const buildTestShape = record(
  'BuildTest',
  {
    ...ids,
    ...nameShapes,
    result: resultShape,
    change: changeShape,
    duration_ms: durationShape,
    flaky: shape.boolean('Whether the test is flaky now, because of this build or another one.'),
    retries: shape.integer('Present when the report has the test several times: how many more than once.'),
    ...messageShapes,
  },
  ['change', 'retries', 'message', 'details'],
);

export function presentBuildTest(
  { test, retries, ...outcome }: Outcome & { test: TestRow; retries: number },
  isFlaky: boolean,
) {
  return {
    ...idPair('id', test.id),
    ...presentNames(test),
    ...presentOutcome(outcome),
    flaky: isFlaky,
    ...(retries > 0 && { retries }),
  };
}

const buildsCovered = 'in the latest 50 builds with a report';

export const testShape = record(
  'Test',
  {
    ...ids,
    ...idPairShape('suite_id', 'The suite. It may have been deleted since.'),
    ...nameShapes,
    ...idPairShape('first_build_id', 'The first build whose report has the test.'),
    result: shape.nullable(
      shape.oneOf(testResults, `Its newest result; null if it is not ${buildsCovered}.`),
    ),
    runs: shape.integer(`How often it ran ${buildsCovered}. Skipped tests do not run.`),
    failures: shape.integer('How often it failed in these.'),
    median_duration_ms: shape.nullable(
      shape.integer('The median of its latest 20 runs, in milliseconds; null if no report states it.'),
    ),
    score: shape.number(
      'How often its result changed between passed and failed in the latest 50 builds of the default branch, divided by 50.',
    ),
    flaky: shape.boolean(
      'Whether it is flaky: in the last 14 days it failed and then passed in one build, or it passed and failed in two builds of the same commit with the same inputs; and it has not run 100 times since without doing so.',
    ),
    flaky_at: shape.time('Present when it is flaky: when it last was.'),
    ...idPairShape('flaky_failed_build_id', 'Present when it is flaky: the build in which it failed.'),
    ...idPairShape('flaky_passed_build_id', 'Present when it is flaky: the build in which it passed.'),
  },
  [
    'flaky_at',
    'flaky_failed_build_id',
    'flaky_failed_build_id_str',
    'flaky_passed_build_id',
    'flaky_passed_build_id_str',
  ],
);

export function presentTest(
  test: TestRow,
  statistics:
    | { result: TestResult; runs: number; failures: number; medianMs: number | undefined; score: number }
    | undefined,
  isFlaky: boolean,
) {
  return {
    ...idPair('id', test.id),
    ...idPair('suite_id', test.suiteId),
    ...presentNames(test),
    ...idPair('first_build_id', test.firstBuildId),
    result: statistics?.result ?? null,
    runs: statistics?.runs ?? 0,
    failures: statistics?.failures ?? 0,
    median_duration_ms: statistics?.medianMs ?? null,
    score: statistics?.score ?? 0,
    flaky: isFlaky,
    ...(isFlaky && {
      flaky_at: wireTime(test.flakyAt as number),
      ...idPair('flaky_failed_build_id', test.flakyFailedBuildId),
      ...idPair('flaky_passed_build_id', test.flakyPassedBuildId),
    }),
  };
}

export const testRunShape = record(
  'TestRun',
  {
    ...idPairShape('build_id', 'The build.'),
    ...idPairShape('commit_id', 'Its commit.'),
    ref: shape.string('The hash that was built.'),
    branch: shape.string('The branch that was requested; empty for a tag or a hash.'),
    build_state: shape.oneOf(Object.keys(buildMachine), 'State of the build.'),
    created_at: shape.time('When the build was queued.'),
    result: resultShape,
    change: changeShape,
    duration_ms: durationShape,
    ...messageShapes,
  },
  ['change', 'message', 'details'],
);

export function presentTestRun(
  run: Outcome & {
    buildId: bigint;
    commitId: bigint;
    commitRef: string;
    branch: string;
    buildState: BuildState;
    createdAt: number;
  },
) {
  return {
    ...idPair('build_id', run.buildId),
    ...idPair('commit_id', run.commitId),
    ref: run.commitRef,
    branch: run.branch,
    build_state: run.buildState,
    created_at: wireTime(run.createdAt),
    ...presentOutcome(run),
  };
}
