// Results of tests compared with those of another build.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  changeAt,
  classifyChange,
  compareWith,
  countResults,
  createResultTable,
  durationAt,
  findPosition,
  setResult,
} from '../../../src/domain/result/comparison.ts';
import { type TestChange, type TestResult, testResults } from '../../../src/domain/result/test-result.ts';
import { packResults, unpackResults } from '../../../src/store/result/packed-results.ts';
import { finish } from '../../support/steps.ts';

const changes: [before: TestResult | undefined, now: TestResult, change: TestChange | undefined][] = [
  [undefined, 'passed', undefined],
  [undefined, 'failed', 'new'],
  [undefined, 'errored', 'new'],
  [undefined, 'skipped', undefined],
  ['passed', 'passed', undefined],
  ['passed', 'failed', 'new'],
  ['passed', 'errored', 'new'],
  ['passed', 'skipped', undefined],
  ['failed', 'passed', 'fixed'],
  ['failed', 'failed', 'still'],
  ['failed', 'errored', 'still'],
  ['failed', 'skipped', undefined],
  ['errored', 'passed', 'fixed'],
  ['errored', 'failed', 'still'],
  ['errored', 'errored', 'still'],
  ['errored', 'skipped', undefined],
  ['skipped', 'passed', undefined],
  ['skipped', 'failed', 'new'],
  ['skipped', 'errored', 'new'],
  ['skipped', 'skipped', undefined],
];
for (const [before, result, change] of changes)
  test(`${before ?? 'absent'}, then ${result}: ${change ?? 'no change'}`, () => {
    assert.equal(classifyChange({ result, isFlaky: false }, before), change);
  });

test('a test that failed and then passed in the build is flaky, whatever it was before', () => {
  for (const before of [undefined, ...testResults])
    assert.equal(classifyChange({ result: 'passed', isFlaky: true }, before), 'flaky');
});

test('tables are compared test by test, even if each has tests that the other lacks', () => {
  // Each table also has a test that the other one does not have, before and after each that both have.
  const before = createResultTable(2 * changes.length + 1);
  const now = createResultTable(2 * changes.length + 1);
  for (let at = 0; at < now.numbers.length; at += 1) {
    const [resultBefore, result] = changes[(at - 1) / 2] ?? (['failed', 'failed'] as const);
    const isShared = at % 2 === 1 && resultBefore !== undefined;
    const put = (table: typeof now, number: number, of: TestResult) => {
      const change = classifyChange({ result: of, isFlaky: false }, undefined);
      setResult(table, at, { number, result: of, change, durationMs: 1 });
    };
    put(before, 10 * at + (isShared ? 0 : 1), resultBefore ?? 'failed');
    put(now, 10 * at, result);
  }
  finish(compareWith(now, before));
  for (let at = 0; at < now.numbers.length; at += 1)
    assert.equal(changeAt(now, at), at % 2 === 0 ? 'new' : changes[(at - 1) / 2]?.[2], `position ${at}`);
});

test('a flaky test stays one when tables are compared', () => {
  const [before, now] = [createResultTable(1), createResultTable(1)];
  setResult(before, 0, { number: 1, result: 'failed', change: 'new', durationMs: 1 });
  setResult(now, 0, { number: 1, result: 'passed', change: 'flaky', durationMs: 1 });
  finish(compareWith(now, before));
  assert.equal(changeAt(now, 0), 'flaky');
});

test('a table of results survives storage, and finds and counts its tests', () => {
  const table = createResultTable(5000);
  const changesInTurn: (TestChange | undefined)[] = [undefined, 'new', 'still', 'fixed', 'flaky'];
  for (let at = 0; at < 5000; at += 1)
    setResult(table, at, {
      number: at === 4999 ? 2 ** 32 - 1 : 3 * at + 1,
      result: testResults[at % 4] as TestResult,
      change: changesInTurn[at % 5],
      durationMs: at % 7 === 0 ? undefined : at * 77_777,
    });
  const stored = finish(unpackResults(finish(packResults(table))));
  assert.deepEqual(stored, table);
  assert.deepEqual(
    [
      findPosition(stored, 1),
      findPosition(stored, 2),
      findPosition(stored, 301),
      findPosition(stored, 2 ** 32 - 1),
    ],
    [0, -1, 100, 4999],
  );
  assert.deepEqual([durationAt(stored, 7), durationAt(stored, 8)], [undefined, 8 * 77_777]);
  assert.deepEqual(finish(countResults(stored)), {
    passed: 1250,
    failed: 1250,
    errored: 1250,
    skipped: 1250,
    newFailures: 1000,
    fixed: 1000,
    flaky: 1000,
  });
  assert.deepEqual(finish(unpackResults(finish(packResults(createResultTable(0))))), createResultTable(0));
});

test('a duration that is negative, fractional or endless is stored as the nearest possible one', () => {
  const table = createResultTable(3);
  for (const [at, durationMs] of [-5, 1.6, 1e30].entries())
    setResult(table, at, { number: at, result: 'passed', change: undefined, durationMs });
  assert.deepEqual(
    [0, 1, 2].map(at => durationAt(table, at)),
    [0, 2, 2 ** 32 - 2],
  );
});

test('the results of 5,000 tests take a few kilobytes', () => {
  const table = createResultTable(5000);
  for (let at = 0; at < 5000; at += 1)
    setResult(table, at, {
      number: at + 1,
      result: 'passed',
      change: undefined,
      durationMs: (at * 7919) % 1000,
    });
  const { length } = finish(packResults(table));
  assert.ok(length < 15_000, `${length} bytes`);
});
