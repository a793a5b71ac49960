// The records of build requests, commits, builds and the decisions about suites: their schemas, and functions that create them from rows.

import {
  type BuildRequestState,
  type BuildState,
  buildMachine,
  buildRequestMachine,
  type CommitState,
  isRerunCandidate,
} from '../../domain/build.ts';
import type { TestCounts } from '../../domain/result/test-result.ts';
import { type RequestTrigger, requestTriggers } from '../../domain/trigger/trigger.ts';
import { idPair, idPairShape, ids, record, shape, wireTime, wireTimeOrNull } from '../wire.ts';

export const commitStates = [
  'waiting_for_builds',
  'building',
  'passed',
  'failed',
  'errored',
  'canceled',
  'skipped',
];

export const buildRequestShape = record(
  'BuildRequest',
  {
    ...ids,
    build_state: shape.oneOf(Object.keys(buildRequestMachine), 'State of the request.'),
    commit_ref: shape.string(
      'The requested branch, tag or commit hash; for a snapshot, the branch of its working tree.',
    ),
    commit_id: shape.nullable(shape.id('Null while the commit is being fetched.')),
    commit_id_str: shape.string('The id as a decimal string; empty while commit_id is null.'),
    created_by: shape.email('Who requested it.'),
    created_at: shape.time('When it was requested.'),
    error: shape.string('Present when the request errored or was skipped for a reason: the reason.'),
    trigger: shape.oneOf(
      requestTriggers,
      'Present when a trigger started it: its type. `local`: a working tree.',
    ),
    ...idPairShape('trigger_id', 'Present when a trigger started it.'),
    pushed_by: shape.string('Present when the forge said who pushed. Not verified.'),
    pull_request: shape.integer('Present for a pull request from a fork: its number.'),
    ...idPairShape('snapshot_id', 'Present when it runs on a snapshot, which may have been deleted since.'),
    branch: shape.string(
      'Present with `details`: the branch that commit_ref names; empty for a tag, a hash, or before the fetch.',
    ),
    finished_at: shape.nullable(shape.time('Present with `details`: when it ended.')),
    commit: record('CommitSummary', {
      ref: shape.string('The full hash.'),
      subject: shape.string('The first line of its message.'),
      scm_author_name: shape.string('Author.'),
    }),
    suites: record('SuiteCounts', {
      ...Object.fromEntries(
        Object.keys(buildMachine).map(state => [
          state,
          shape.integer(`How many suites are ${state.replace('_', ' ')}, by their newest build.`),
        ]),
      ),
      not_passed: shape.list(shape.string('A suite that failed, errored or timed out; the first 10.')),
    }),
  },
  [
    'error',
    'trigger',
    'trigger_id',
    'trigger_id_str',
    'pushed_by',
    'pull_request',
    'snapshot_id',
    'snapshot_id_str',
    'branch',
    'finished_at',
    'commit',
    'suites',
  ],
);

type BuildRequestRow = {
  id: bigint;
  buildState: BuildRequestState;
  commitRef: string;
  commitId: bigint | null;
  createdBy: string;
  createdAt: number;
  error: string | null;
  trigger: RequestTrigger | null;
  triggerId: bigint | null;
  pushedBy: string | null;
  pullRequest: number | null;
  snapshotId: bigint | null;
};

export function presentBuildRequest(request: BuildRequestRow) {
  return {
    ...idPair('id', request.id),
    build_state: request.buildState,
    commit_ref: request.commitRef,
    ...idPair('commit_id', request.commitId),
    created_by: request.createdBy,
    created_at: wireTime(request.createdAt),
    ...(request.error !== null && { error: request.error }),
    ...(request.trigger !== null && {
      trigger: request.trigger,
      ...(request.triggerId !== null && idPair('trigger_id', request.triggerId)),
    }),
    ...(request.pushedBy !== null && { pushed_by: request.pushedBy }),
    ...(request.pullRequest !== null && { pull_request: request.pullRequest }),
    ...(request.snapshotId !== null && idPair('snapshot_id', request.snapshotId)),
  };
}

const MAX_NAMES = 10;

/** What `details` adds: `newest` has the newest build of each suite. */
export function presentRequestDetails(
  request: { branch: string; finishedAt: number | null },
  commit: { ref: string; message: string; authorName: string } | undefined,
  newest: readonly { suiteName: string; state: BuildState }[],
) {
  const states = Object.keys(buildMachine) as BuildState[];
  const counts = Object.fromEntries(
    states.map(state => [state, newest.filter(build => build.state === state).length]),
  ) as Record<BuildState, number>;
  return {
    branch: request.branch,
    finished_at: wireTimeOrNull(request.finishedAt),
    ...(commit && {
      commit: {
        ref: commit.ref,
        subject: commit.message.split('\n', 1)[0] as string,
        scm_author_name: commit.authorName,
      },
    }),
    suites: {
      ...counts,
      not_passed: newest
        .filter(({ state }) => isRerunCandidate(state))
        .slice(0, MAX_NAMES)
        .map(({ suiteName }) => suiteName),
    },
  };
}

const commitItem = {
  ...ids,
  version: shape.integer('Increases by one when a force push overwrites the commit.'),
  ref: shape.string('The full hash.'),
  build_state: shape.oneOf(commitStates, 'State of its newest build request.'),
};
export const commitItemShape = record('CommitItem', commitItem);
export const commitShape = record('Commit', {
  ...commitItem,
  message: shape.string('Commit message.'),
  scm_author_name: shape.string('Author.'),
  scm_author_email: shape.email('Author.'),
  scm_authored_date: shape.time('With the UTC offset that git recorded.'),
  scm_committer_name: shape.string('Committer.'),
  scm_committer_email: shape.email('Committer.'),
  scm_committed_date: shape.time('With the UTC offset that git recorded.'),
});

type CommitItemRow = { id: bigint; version: number; ref: string; buildState: CommitState };

export function presentCommitItem(commit: CommitItemRow) {
  return {
    ...idPair('id', commit.id),
    version: commit.version,
    ref: commit.ref,
    build_state: commit.buildState,
  };
}

export function presentCommit(
  commit: CommitItemRow & {
    message: string;
    authorName: string;
    authorEmail: string;
    authoredDate: string;
    committerName: string;
    committerEmail: string;
    committedDate: string;
  },
) {
  return {
    ...presentCommitItem(commit),
    message: commit.message,
    scm_author_name: commit.authorName,
    scm_author_email: commit.authorEmail,
    scm_authored_date: commit.authoredDate,
    scm_committer_name: commit.committerName,
    scm_committer_email: commit.committerEmail,
    scm_committed_date: commit.committedDate,
  };
}

const evaluatedRule = record('EvaluatedRule', {
  subject: shape.string('The attribute that was compared.'),
  operator: shape.string('How it was compared.'),
  value: shape.string('What it was compared with.'),
  holds: shape.boolean('Whether the rule is met.'),
  saw: { type: ['string', 'array'], items: { type: 'string' }, description: 'The value of the attribute.' },
});
export const logTimesShape = record('LogTimes', {
  times: shape.list({
    ...shape.list(shape.integer('An offset in bytes, or a time in milliseconds since 1970.')),
    description:
      'The length that the log had at a time, and that time: the last write of each second. What is between two lengths was written between the times.',
  }),
});

export const suiteDecisionShape = record('SuiteDecision', {
  ...idPairShape('suite_id', 'The suite.'),
  suite: shape.string('Its name.'),
  ...idPairShape('build_request_id', 'The build request.'),
  runs: shape.boolean('Whether the suite runs for this commit.'),
  rules: shape.list(evaluatedRule),
});

export function presentSuiteDecision(decision: {
  suiteId: bigint;
  suiteName: string;
  buildRequestId: bigint;
  runs: boolean;
  rules: readonly unknown[];
}) {
  return {
    ...idPair('suite_id', decision.suiteId),
    suite: decision.suiteName,
    ...idPair('build_request_id', decision.buildRequestId),
    runs: decision.runs,
    rules: decision.rules,
  };
}

const testCountsShape = record('TestCounts', {
  passed: shape.integer('Tests that passed.'),
  failed: shape.integer('Tests that failed.'),
  errored: shape.integer('Tests that could not run to their end.'),
  skipped: shape.integer('Tests that were skipped.'),
  new_failures: shape.integer(
    'Failed or errored tests that did not fail in the build that it is compared with.',
  ),
  fixed: shape.integer('Tests that failed there and passed here.'),
  flaky: shape.integer('Tests that failed and then passed in this build.'),
});

/** Of a queued build or compile. */
export const waitingShape = record('Waiting', {
  position: shape.integer('Position in the queue, starting at 1.'),
  reason: shape.string('Why it waits.'),
});
export const buildShape = record(
  'Build',
  {
    ...ids,
    ...idPairShape('suite_id', 'The suite.'),
    ...idPairShape('commit_id', 'The commit.'),
    ...idPairShape('build_request_id', 'The build request.'),
    build_state: shape.oneOf(Object.keys(buildMachine), 'State of the build.'),
    exit_code: shape.nullable(
      shape.integer("The command's exit status; null unless the command exited by itself."),
    ),
    created_at: shape.time('When it was queued.'),
    started_at: shape.nullable(shape.time('When it started.')),
    finished_at: shape.nullable(shape.time('When it ended.')),
    error: shape.string('Present when the build errored: the reason.'),
    waiting: waitingShape,
    estimated_seconds: shape.integer(
      'Present while the build is unfinished, in responses and in its own firehose: how long it will probably run. The median of the last 5 builds of the suite that passed, absent if there are none.',
    ),
    artifacts: shape.integer('Present when the build has artifacts: how many.'),
    artifacts_bytes: shape.integer('Present when the build has artifacts: their size.'),
    artifacts_truncated: shape.boolean('Present, and true, when files were left out because of a limit.'),
    keep: shape.boolean('Present, and true, when the artifacts are kept until somebody deletes them.'),
    tests: testCountsShape,
    node: shape.string(
      'Present when the server has several machines and the build has started: the name of the one that it runs on or ran on last.',
    ),
    suite: shape.string('Present in the list of the builds of a request: the name of the suite.'),
  },
  [
    'error',
    'waiting',
    'estimated_seconds',
    'artifacts',
    'artifacts_bytes',
    'artifacts_truncated',
    'keep',
    'tests',
    'node',
    'suite',
  ],
);

export type BuildRow = {
  id: bigint;
  suiteId: bigint;
  commitId: bigint;
  buildRequestId: bigint;
  buildState: BuildState;
  exitCode: number | null;
  createdAt: number;
  startedAt: number | null;
  finishedAt: number | null;
  error: string | null;
  artifacts: number;
  artifactsBytes: number;
  artifactsTruncated: boolean;
  keep: boolean;
  tests: TestCounts | null;
  node: string | null;
};

function presentTestCounts({ newFailures, ...counts }: TestCounts) {
  return { ...counts, new_failures: newFailures };
}

/** Known only while a build is unfinished, and at the time of the request. */
type Outlook = {
  waiting?: { position: number; reason: string } | undefined;
  estimatedSeconds?: number | undefined;
};

export function presentBuild(build: BuildRow, { waiting, estimatedSeconds }: Outlook = {}) {
  return {
    ...idPair('id', build.id),
    ...idPair('suite_id', build.suiteId),
    ...idPair('commit_id', build.commitId),
    ...idPair('build_request_id', build.buildRequestId),
    build_state: build.buildState,
    exit_code: build.exitCode,
    created_at: wireTime(build.createdAt),
    started_at: wireTimeOrNull(build.startedAt),
    finished_at: wireTimeOrNull(build.finishedAt),
    ...(build.error !== null && { error: build.error }),
    ...(waiting && { waiting }),
    ...(estimatedSeconds !== undefined && { estimated_seconds: estimatedSeconds }),
    ...(build.artifacts > 0 && { artifacts: build.artifacts, artifacts_bytes: build.artifactsBytes }),
    ...(build.artifactsTruncated && { artifacts_truncated: true }),
    ...(build.keep && { keep: true }),
    ...(build.tests && { tests: presentTestCounts(build.tests) }),
    ...(build.node !== null && { node: build.node }),
  };
}
