// The state machines of builds and build requests, and the functions that derive the states of requests, commits and projects.

import { type Machine, unfinishedStates } from './machine.ts';

export type BuildState = 'enqueued' | 'running' | 'passed' | 'failed' | 'errored' | 'timed_out' | 'canceled';
export type BuildEvent = 'start' | 'pass' | 'fail' | 'error' | 'time_out' | 'cancel' | 'requeue';

export const buildMachine: Machine<BuildState, BuildEvent> = {
  enqueued: { start: 'running', cancel: 'canceled', error: 'errored' },
  running: {
    pass: 'passed',
    fail: 'failed',
    error: 'errored',
    time_out: 'timed_out',
    cancel: 'canceled',
    requeue: 'enqueued',
  },
  passed: {},
  failed: {},
  errored: {},
  timed_out: {},
  canceled: {},
};

export type BuildRequestState =
  | 'enqueued'
  | 'fetching'
  | 'building'
  | 'passed'
  | 'failed'
  | 'errored'
  | 'canceled'
  | 'skipped';
export type BuildRequestEvent =
  | 'fetch'
  | 'build'
  | 'pass'
  | 'fail'
  | 'error'
  | 'cancel'
  | 'skip'
  | 'requeue'
  | 'rerun';

export const buildRequestMachine: Machine<BuildRequestState, BuildRequestEvent> = {
  enqueued: { fetch: 'fetching', cancel: 'canceled', error: 'errored' },
  fetching: {
    build: 'building',
    skip: 'skipped',
    error: 'errored',
    cancel: 'canceled',
    requeue: 'enqueued',
  },
  building: { pass: 'passed', fail: 'failed', error: 'errored', cancel: 'canceled' },
  passed: { rerun: 'building' },
  failed: { rerun: 'building' },
  errored: { rerun: 'building' },
  canceled: { rerun: 'building' },
  skipped: {},
};

export type CommitState =
  | 'waiting_for_builds'
  | 'building'
  | 'passed'
  | 'failed'
  | 'errored'
  | 'canceled'
  | 'skipped';
export type ProjectState = 'new' | Exclude<CommitState, 'waiting_for_builds'>;

export const UNFINISHED_BUILDS: readonly BuildState[] = unfinishedStates(buildMachine);
export const UNFINISHED_REQUESTS: readonly BuildRequestState[] = unfinishedStates(
  buildRequestMachine,
  'rerun',
);
export const FINISHED_REQUESTS = (Object.keys(buildRequestMachine) as BuildRequestState[]).filter(
  isFinishedRequest,
);

export function isFinishedBuild(state: BuildState): boolean {
  return !UNFINISHED_BUILDS.includes(state);
}

export function isFinishedCommit(state: CommitState): boolean {
  return state !== 'waiting_for_builds' && state !== 'building';
}

export function isFinishedRequest(state: BuildRequestState): boolean {
  return !UNFINISHED_REQUESTS.includes(state);
}

/** The event that finishes a request, given the newest build of each suite. Undefined while a build is unfinished. */
export function foldBuilds(states: readonly BuildState[]): BuildRequestEvent | undefined {
  if (states.some(state => !isFinishedBuild(state))) return undefined;
  if (states.includes('failed')) return 'fail';
  if (states.includes('errored') || states.includes('timed_out')) return 'error';
  if (states.includes('canceled')) return 'cancel';
  return 'pass';
}

/** A commit has the state of its newest request. `started` is true once one of its builds has started. */
export function commitState(newestRequest: BuildRequestState, started: boolean): CommitState {
  switch (newestRequest) {
    case 'enqueued':
    case 'fetching':
      return 'waiting_for_builds';
    case 'building':
      return started ? 'building' : 'waiting_for_builds';
    default:
      return newestRequest;
  }
}

/** The states of builds that ran to an end. A canceled build says nothing about its suite. */
export const COMPLETED_BUILDS: readonly BuildState[] = ['passed', 'failed', 'errored', 'timed_out'];

/** Whether "rerun failed" includes the build. A canceled build was ended on purpose and is not included. */
export const isRerunCandidate = (state: BuildState) => ['failed', 'errored', 'timed_out'].includes(state);

/** Building while a request is unfinished; else errored if the newest request found no commit; else the newest commit's state. */
export function projectState(project: {
  unfinishedRequest: boolean;
  newestRequestWithoutCommit: BuildRequestState | undefined;
  newestCommit: CommitState | undefined;
}): ProjectState {
  if (project.unfinishedRequest) return 'building';
  if (project.newestRequestWithoutCommit === 'errored') return 'errored';
  if (project.newestCommit === 'waiting_for_builds') return 'building';
  return project.newestCommit ?? 'new';
}
