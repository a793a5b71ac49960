// The figures of a history: medians, time to fix, and steps.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { figuresOf, median, medianSteps, stepsBetween } from '../../../src/domain/result/history.ts';

const run = (state: string, finishedAt: number, branch = 'main') => ({
  state,
  startedAt: finishedAt - 10,
  finishedAt,
  branch,
});

test('a median is the middle value, or between the two in the middle', () => {
  assert.equal(median([]), undefined);
  assert.equal(median([7]), 7);
  assert.equal(median([9, 1, 5]), 5);
  assert.equal(median([10, 1, 4, 5]), 5);
});

test('a failure lasts from its first run to the next one that passes on the same branch', () => {
  const { timeToFix, failing, passed, counted } = figuresOf([
    run('failed', 100),
    run('failed', 200),
    run('passed', 250, 'topic'),
    run('errored', 260),
    run('passed', 400),
    run('passed', 500),
    run('timed_out', 600),
    run('failed', 610, ''),
    run('passed', 620, ''),
  ]);
  assert.deepEqual(timeToFix, { count: 1, medianMs: 300, lastMs: 300 });
  assert.deepEqual(failing, [{ branch: 'main', since: 600 }]);
  assert.deepEqual([passed, counted], [4, 8]);
});

test('nothing is known without runs, and a clock that was set back gives no negative durations', () => {
  assert.deepEqual(figuresOf([]), {
    counted: 0,
    passed: 0,
    medianMs: undefined,
    timeToFix: undefined,
    failing: [],
  });
  assert.equal(figuresOf([run('failed', 100), run('passed', 50)]).timeToFix?.lastMs, 0);
  assert.deepEqual(stepsBetween([{ name: 'prepare', at: 100 }], 50), { prepare: 0 });
});

test('a step lasts until the next one begins', () => {
  const marks = [
    { name: 'prepare', at: 0 },
    { name: 'checkout', at: 5 },
    { name: 'command', at: 20 },
    { name: 'collect', at: 100 },
  ];
  assert.deepEqual(stepsBetween(marks, 130), { prepare: 5, checkout: 15, command: 80, collect: 30 });
  assert.deepEqual(medianSteps([{ checkout: 5, command: 10 }, { command: 30 }, { command: 20 }]), [
    { name: 'command', medianMs: 20 },
    { name: 'checkout', medianMs: 5 },
  ]);
});
