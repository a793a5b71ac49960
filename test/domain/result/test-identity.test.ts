// Which cases of reports are the same test.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createTestKeys,
  mergeRepeated,
  withoutVolatileParts,
} from '../../../src/domain/result/test-identity.ts';
import type { TestResult } from '../../../src/domain/result/test-result.ts';
import { reported } from '../../store/result/reported.ts';

const keys = (...names: string[]) => {
  const keyOf = createTestKeys();
  return names.map(name => keyOf({ classname: 'suite.Class', name }).toString('hex'));
};
const key = (name: string) => keys(name)[0];

const same: [string, string][] = [
  ['object at 0x7f3a2c001d30', 'object at 0x55d0c3a0bb10'],
  ['job 0b3b1f8d-8a8a-4e4e-a4ff-36b3e4c4b1f3 ends', 'job F47AC10B-58CC-4372-A567-0E02B2C3D479 ends'],
  ['writes /tmp/pytest-of-root/pytest-0/a0/x.txt', 'writes /tmp/pytest-of-root/pytest-17/a0/x.txt'],
  ['writes "/var/tmp/build.a1/x" once', 'writes "/var/tmp/build.zz/x" once'],
  ['reads /private/var/folders/zz/1/T/a', 'reads /private/var/folders/yy/2/T/b'],
  ['User@1b6d3586 is equal', 'User@4554617c is equal'],
];
for (const [one, other] of same)
  test(`"${one}" and "${other}" are the same test in two builds`, () => assert.equal(key(one), key(other)));

const different: [string, string][] = [
  ['adds 1', 'adds 2'],
  ['mask[0x10]', 'mask[0x20]'],
  ['Adds', 'adds'],
  ['mails a@b.example', 'mails a@c.example'],
  ['serves /tmp', 'serves /tmp/'],
  ['at 2026-01-01', 'at 2026-01-02'],
];
for (const [one, other] of different)
  test(`"${one}" and "${other}" are two tests`, () => assert.notEqual(key(one), key(other)));

test('a class name and a name that give the same text together are two tests', () => {
  const keyOf = createTestKeys();
  const [one, other] = [keyOf({ classname: 'a', name: 'b c' }), keyOf({ classname: 'a b', name: 'c' })];
  assert.notDeepEqual(one, other);
});

test('names of one build that differ only in volatile parts stay several tests, the same ones in each build', () => {
  const first = keys('at 0x7f0000000001', 'at 0x7f0000000002', 'other');
  const second = keys('at 0x7f0000000013', 'at 0x7f0000000014', 'other');
  assert.equal(new Set(first).size, 3);
  assert.deepEqual(first, second);
  assert.equal(first[0], key('at 0x7f0000000099'));
});

test('a name of a megabyte takes little time', () => {
  for (const text of ['0', '0x', '/tmp', '/var/', 'a@', 'deadbeef-', 'c:\\'])
    withoutVolatileParts(text.repeat(2 ** 20 / text.length));
});

const merged: [cases: TestResult[], result: TestResult, isFlaky: boolean, message: string][] = [
  [['passed', 'passed'], 'passed', false, ''],
  [['failed', 'passed'], 'passed', true, 'm0'],
  [['passed', 'failed'], 'passed', true, 'm1'],
  [['errored', 'failed', 'passed'], 'passed', true, 'm1'],
  [['failed', 'failed'], 'failed', false, 'm1'],
  [['failed', 'errored'], 'errored', false, 'm1'],
  [['skipped', 'failed'], 'failed', false, 'm1'],
  [['skipped', 'passed'], 'passed', false, ''],
  [['skipped', 'skipped'], 'skipped', false, ''],
];
for (const [cases, result, isFlaky, message] of merged)
  test(`a test that is reported as ${cases.join(', then ')} is one that ${result}${isFlaky ? ' and is flaky' : ''}`, () => {
    const found = cases
      .map((one, at) =>
        reported('a', one, { message: one === 'failed' || one === 'errored' ? `m${at}` : '' }),
      )
      .reduce(mergeRepeated);
    assert.deepEqual(
      [found.result, found.isFlaky, found.message, found.retries],
      [result, isFlaky, message, cases.length - 1],
    );
  });

test('a flaky case stays flaky, with its message, when it is repeated', () => {
  const first = reported('a', 'passed', { isFlaky: true, message: 'first' });
  const found = mergeRepeated(first, reported('a', 'passed'));
  assert.deepEqual([found.isFlaky, found.message], [true, 'first']);
});
