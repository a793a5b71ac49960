// How states are derived: of a request from its builds, of a commit from its requests, of a project from its commits.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type BuildRequestEvent,
  type BuildRequestState,
  type BuildState,
  buildMachine,
  buildRequestMachine,
  type CommitState,
  commitState,
  foldBuilds,
  isFinishedBuild,
  isFinishedRequest,
  type ProjectState,
  projectState,
} from '../../src/domain/build.ts';

const buildStates = Object.keys(buildMachine) as BuildState[];
const requestStates = Object.keys(buildRequestMachine) as BuildRequestState[];

const folds: [builds: BuildState[], verdict: BuildRequestEvent | undefined][] = [
  [[], 'pass'],
  [['passed'], 'pass'],
  [['passed', 'passed'], 'pass'],
  [['failed'], 'fail'],
  [['errored'], 'error'],
  [['timed_out'], 'error'],
  [['canceled'], 'cancel'],
  [['passed', 'canceled'], 'cancel'],
  [['canceled', 'errored'], 'error'],
  [['canceled', 'timed_out', 'passed'], 'error'],
  [['errored', 'failed'], 'fail'],
  [['timed_out', 'failed', 'canceled', 'passed'], 'fail'],
  [['enqueued'], undefined],
  [['running', 'failed'], undefined],
  [['enqueued', 'failed', 'passed'], undefined],
];
for (const [builds, verdict] of folds)
  test(`builds that are ${builds.join(', ') || 'none'} make their request ${verdict ?? 'wait'}`, () => {
    assert.equal(foldBuilds(builds), verdict);
    assert.equal(foldBuilds(builds.toReversed()), verdict);
  });

test('of any two builds the worse one decides: failed, errored or timed out, canceled, passed', () => {
  const weight: Partial<Record<BuildState, number>> = {
    passed: 0,
    canceled: 1,
    errored: 2,
    timed_out: 2,
    failed: 3,
  };
  const verdicts = ['pass', 'cancel', 'error', 'fail'];
  for (const one of buildStates)
    for (const other of buildStates) {
      const finished = one in weight && other in weight;
      const worst = Math.max(weight[one] ?? 0, weight[other] ?? 0);
      assert.equal(foldBuilds([one, other]), finished ? verdicts[worst] : undefined, `${one} ${other}`);
    }
});

test('the verdict of builds is a transition of a request that is building', () => {
  for (const state of buildStates) {
    const verdict = foldBuilds([state]);
    if (verdict) assert.ok(buildRequestMachine.building[verdict], verdict);
  }
});

test('enqueued and running builds are unfinished, all others are finished', () => {
  assert.deepEqual(
    buildStates.filter(state => !isFinishedBuild(state)),
    ['enqueued', 'running'],
  );
  assert.deepEqual(
    requestStates.filter(state => !isFinishedRequest(state)),
    ['enqueued', 'fetching', 'building'],
  );
});

const commits: [request: BuildRequestState, started: boolean, state: CommitState][] = [
  ['enqueued', false, 'waiting_for_builds'],
  ['fetching', false, 'waiting_for_builds'],
  ['building', false, 'waiting_for_builds'],
  ['building', true, 'building'],
  ['passed', true, 'passed'],
  ['failed', true, 'failed'],
  ['errored', true, 'errored'],
  ['errored', false, 'errored'],
  ['canceled', true, 'canceled'],
  ['canceled', false, 'canceled'],
  ['skipped', false, 'skipped'],
];
for (const [request, started, state] of commits)
  test(`a commit whose newest request is ${request}${started ? ' and has begun' : ''} is ${state}`, () => {
    assert.equal(commitState(request, started), state);
  });

const projects: [
  unfinished: boolean,
  requestWithoutCommit: BuildRequestState | undefined,
  commit: CommitState | undefined,
  state: ProjectState,
][] = [
  [false, undefined, undefined, 'new'],
  [true, undefined, undefined, 'building'],
  [true, 'enqueued', 'passed', 'building'],
  [true, undefined, 'failed', 'building'],
  [false, undefined, 'passed', 'passed'],
  [false, undefined, 'failed', 'failed'],
  [false, undefined, 'errored', 'errored'],
  [false, undefined, 'canceled', 'canceled'],
  [false, undefined, 'skipped', 'skipped'],
  [false, undefined, 'building', 'building'],
  [false, undefined, 'waiting_for_builds', 'building'],
  [false, 'errored', undefined, 'errored'],
  [false, 'errored', 'passed', 'errored'],
  [false, 'canceled', 'passed', 'passed'],
  [false, 'canceled', undefined, 'new'],
];
for (const [unfinishedRequest, newestRequestWithoutCommit, newestCommit, state] of projects)
  test(`a project ${unfinishedRequest ? 'with unfinished requests' : 'without unfinished requests'}, newest commit ${newestCommit ?? 'none'}, newest request without one ${newestRequestWithoutCommit ?? 'none'}, is ${state}`, () => {
    assert.equal(projectState({ unfinishedRequest, newestRequestWithoutCommit, newestCommit }), state);
  });
