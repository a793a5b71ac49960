// The steps of a compile as its page describes them, and the message after a change.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Dependency } from '../../../src/store/dependencies.ts';
import { describeSaved } from '../../../src/web/dependency/edit.ts';
import { describeSteps, renderProgress } from '../../../src/web/dependency/progress.ts';

const lastTimes = JSON.stringify([
  { name: 'unpack', ms: 1_000 },
  { name: 'command', ms: 60_000 },
  { name: 'keep', ms: 2_000 },
]);
const compile = (fields: Partial<Dependency>) =>
  ({
    compileState: 'compiling',
    stepsBegun: null,
    compileSteps: null,
    startedAt: 1_000_000,
    finishedAt: null,
    error: null,
    ...fields,
  }) as Dependency;
const begun = (...steps: [name: string, beganAt: number][]) =>
  JSON.stringify(steps.map(([name, began_at]) => ({ name, began_at })));
const render = async (...options: Parameters<typeof renderProgress>) =>
  String(await renderProgress(...options));

test('a running compile has steps that are done, running and pending', () => {
  const dependency = compile({
    stepsBegun: begun(['unpack', 1_000_000], ['command', 1_003_000]),
    compileSteps: lastTimes,
  });
  assert.deepEqual(
    describeSteps(dependency, 1_013_000).map(({ state, ms, lastMs }) => [state, ms, lastMs]),
    [
      ['done', 3_000, 1_000],
      ['running', 10_000, 60_000],
      ['pending', undefined, 2_000],
    ],
  );
});

test('a step never lasts less than nothing when the clock is set back', () => {
  const dependency = compile({ stepsBegun: begun(['unpack', 1_000_000]) });
  assert.equal(describeSteps(dependency, 900_000)[0]?.ms, 0);
});

test('the last step of a failed or canceled compile is marked, and the others were skipped', () => {
  const ended = { stepsBegun: begun(['unpack', 1_000_000]), finishedAt: 1_002_000 };
  const failed = compile({ ...ended, compileState: 'compile_failed', error: 'No space.' });
  const canceled = compile({ ...ended, compileState: 'compile_failed', error: 'The compile was canceled.' });
  const statesOf = (dependency: Dependency) => describeSteps(dependency, 0).map(({ state }) => state);
  assert.deepEqual(statesOf(failed), ['failed', 'skipped', 'skipped']);
  assert.deepEqual(statesOf(canceled), ['canceled', 'skipped', 'skipped']);
});

test('a compile that was reused has no steps, and says so', async () => {
  const dependency = compile({ compileState: 'compiled', finishedAt: 1_001_000, compileSteps: lastTimes });
  assert.deepEqual(describeSteps(dependency, 0), []);
  assert.match(
    await render(dependency, 0, undefined),
    /Nothing has changed, so an earlier compile is reused\./,
  );
  assert.equal(await render({ ...dependency, compileSteps: null }, 0, undefined), '');
});

test('the bar stops at the end of a step that takes longer than last time', async () => {
  const bar = async (now: number) => {
    const dependency = compile({
      stepsBegun: begun(['unpack', 1_000_000], ['command', 1_004_000]),
      compileSteps: lastTimes,
    });
    return /<progress max="(\d+)" value="(\d+)" data-running-until="(\d+)"/
      .exec(await render(dependency, now, undefined))
      ?.slice(1);
  };
  assert.deepEqual(await bar(1_014_000), ['63000', '11000', '61000']);
  assert.deepEqual(await bar(2_000_000), ['63000', '61000', '61000']);
});

test('the first compile has no bar, because there is nothing to estimate by', async () => {
  const text = await render(compile({ stepsBegun: begun(['unpack', 1_000_000]) }), 1_005_000, undefined);
  assert.doesNotMatch(text, /<progress|Last time/);
  assert.match(text, /data-running-ms="5000"/);
});

test('a queued compile shows its position and why it waits', async () => {
  const dependency = compile({ compileState: 'enqueued_for_compile', startedAt: null });
  const waiting = { position: 2, reason: 'Waiting for zlib to be compiled.' };
  assert.match(
    await render(dependency, 0, waiting),
    /Number 2 in the queue: Waiting for zlib to be compiled\./,
  );
});

test('the message after a change says what takes effect with the next compile and what with the next build', () => {
  type Saved = Parameters<typeof describeSaved>[0];
  const before = {
    command: 'make',
    prefix: '/a',
    archive_file_size: 9,
    related_dependencies: [],
  } as unknown as Saved;
  const after = (changes: object) => describeSaved(before, { ...before, ...changes } as Saved);
  assert.equal(after({ description: 'new' }), 'Saved.');
  assert.equal(after({ command: 'make all' }), 'Saved. The new command takes effect with the next compile.');
  assert.equal(
    after({ command: 'x', prefix: '/b', image: 'debian', environment: 'A=1', library_path: false }),
    'Saved. The new command, prefix, and image take effect with the next compile. The new environment and LD_LIBRARY_PATH take effect with the next build.',
  );
  assert.equal(after({ command: 'x', archive_file_size: null }), 'Saved.');
});
