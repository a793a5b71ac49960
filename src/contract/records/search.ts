// The records of log lines that a search found, and of error lines that were seen before, and functions that create them.

import { type BuildState, buildMachine } from '../../domain/build.ts';
import { idPair, idPairShape, record, shape, wireTime } from '../wire.ts';

const localShape = shape.boolean('Present, and true, for a local run: somebody’s working tree.');

export const foundLineShape = record(
  'FoundLine',
  {
    ...idPairShape('build_id', 'The build.'),
    ...idPairShape('suite_id', 'Its suite.'),
    suite: shape.string('The name of the suite.'),
    ...idPairShape('commit_id', 'Its commit.'),
    branch: shape.string('The branch that was requested; empty for a tag or a commit hash.'),
    build_state: shape.oneOf(Object.keys(buildMachine), 'State of the build.'),
    created_at: shape.time('When the build was queued.'),
    line: shape.integer('The number of the line in the log, starting at 1.'),
    offset: shape.integer('The byte of the log where the line begins.'),
    text: shape.string('The line without colours, at most 500 characters around the match.'),
    local: localShape,
  },
  ['local'],
);

export function presentFoundLine(
  build: {
    id: bigint;
    suiteId: bigint;
    suiteName: string;
    commitId: bigint;
    branch: string;
    buildState: BuildState;
    createdAt: number;
    local: boolean;
  },
  { line, offset, text }: { line: number; offset: number; text: string },
) {
  return {
    ...idPair('build_id', build.id),
    ...idPair('suite_id', build.suiteId),
    suite: build.suiteName,
    ...idPair('commit_id', build.commitId),
    branch: build.branch,
    build_state: build.buildState,
    created_at: wireTime(build.createdAt),
    line,
    offset,
    text,
    ...(build.local && { local: true }),
  };
}

const seenBuildShape = record(
  'SeenBuild',
  {
    ...idPairShape('build_id', 'The build.'),
    suite: shape.string('The name of its suite.'),
    branch: shape.string('The branch that was requested; empty for a tag or a commit hash.'),
    build_state: shape.oneOf(Object.keys(buildMachine), 'State of the build.'),
    created_at: shape.time('When it was queued.'),
    local: localShape,
  },
  ['local'],
);

export const seenLineShape = record(
  'SeenLine',
  {
    line: shape.integer('The number of the line in the log, starting at 1; 0 for the failure of a test.'),
    text: shape.string('The line without colours, at most 500 characters.'),
    other_builds: shape.integer(
      'How many other builds of the project have the same line, apart from times and numbers; at most 1000.',
    ),
    first: seenBuildShape,
    last: seenBuildShape,
  },
  ['first', 'last'],
);

type SeenBuildRow = {
  id: bigint;
  suiteName: string;
  branch: string;
  buildState: BuildState;
  createdAt: number;
  local: boolean;
};

const presentSeenBuild = (build: SeenBuildRow) => ({
  ...idPair('build_id', build.id),
  suite: build.suiteName,
  branch: build.branch,
  build_state: build.buildState,
  created_at: wireTime(build.createdAt),
  ...(build.local && { local: true }),
});

export function presentSeenLine(seen: {
  line: number;
  text: string;
  otherBuilds: number;
  first: SeenBuildRow | undefined;
  last: SeenBuildRow | undefined;
}) {
  return {
    line: seen.line,
    text: seen.text,
    other_builds: seen.otherBuilds,
    ...(seen.first && { first: presentSeenBuild(seen.first) }),
    ...(seen.last && { last: presentSeenBuild(seen.last) }),
  };
}
