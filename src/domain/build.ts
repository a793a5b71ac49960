// The states of builds, build requests, commits and projects, and the folds that derive the upper ones from the lower.

import type { Machine } from './machine.ts';

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

const unfinishedBuilds: readonly BuildState[] = ['enqueued', 'running'];
const unfinishedRequests: readonly BuildRequestState[] = ['enqueued', 'fetching', 'building'];

export function isFinishedBuild(state: BuildState): boolean {
  return !unfinishedBuilds.includes(state);
}

export function isFinishedRequest(state: BuildRequestState): boolean {
  return !unfinishedRequests.includes(state);
}

/** What a request's builds, the newest of each suite, say of it: undefined while one is unfinished. */
export function foldBuilds(states: readonly BuildState[]): BuildRequestEvent | undefined {
  if (states.some(state => !isFinishedBuild(state))) return undefined;
  if (states.includes('failed')) return 'fail';
  if (states.includes('errored') || states.includes('timed_out')) return 'error';
  if (states.includes('canceled')) return 'cancel';
  return 'pass';
}

/** A commit's state: that of its newest request; `started` tells whether one of its builds has begun. */
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

/** Ended without a pass, and not because somebody wanted it to end: what is run again with the others of its kind. */
export const isRerunCandidate = (state: BuildState) => ['failed', 'errored', 'timed_out'].includes(state);

/** A project's state: building while a request is under way, else its newest request without a commit, else its newest commit. */
export function projectState(facts: {
  unfinishedRequest: boolean;
  newestRequestWithoutCommit: BuildRequestState | undefined;
  newestCommit: CommitState | undefined;
}): ProjectState {
  if (facts.unfinishedRequest) return 'building';
  if (facts.newestRequestWithoutCommit === 'errored') return 'errored';
  if (facts.newestCommit === 'waiting_for_builds') return 'building';
  return facts.newestCommit ?? 'new';
}
