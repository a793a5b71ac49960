// Which lines of a log report an error, and which are recognised as the same in another build.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createErrorLines, isErrorLine, toErrorLine } from '../../../src/domain/result/error-line.ts';

test('lines of compilers, test runners and shells that report an error are recognised', () => {
  for (const line of [
    "src/main.c:12:5: error: 'x' undeclared (first use in this function)",
    'make: *** [Makefile:3: check] Error 1',
    'not ok 12 - the list is sorted',
    '✖ the list is sorted (1.2ms)',
    'AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:',
    'E   TypeError: unsupported operand',
    'FAILED tests/test_list.py::test_sorted - assert 1 == 2',
    '--- FAIL: TestSorted (0.00s)',
    'panic: runtime error: index out of range [3] with length 3',
    'Exception in thread "main" java.lang.NullPointerException',
    'Traceback (most recent call last):',
    'Segmentation fault (core dumped)',
    '/bin/sh: 1: frobnicate: command not found',
    'fatal: repository not found',
    'connect ECONNREFUSED: Connection refused',
    'npm ERR! code ELIFECYCLE: failed',
  ])
    assert.ok(isErrorLine(line), line);
});

test('lines that only mention an error are not', () => {
  for (const line of [
    '0 errors, 0 warnings',
    'ℹ fail 0',
    'failures: 0',
    'Tests run: 12, no failures',
    '✔ reports an error for bad input (3 ms)',
    'ok 4 - fails with an error',
    'cc -Werror -c src/error.c -o build/error.o',
    'compiling src/fail-over/errors.ts',
    '[assay] the command failed with exit status 1',
    '+ grep error log',
    'warning: this may cause an error',
    'all tests passed',
  ])
    assert.ok(!isErrorLine(line), line);
});

test('a line is the same in two builds if only times, numbers and colours differ', () => {
  const hashOf = (text: string) => toErrorLine(text, 1)?.hash.toString('hex');
  assert.equal(
    hashOf('2026-01-02T03:04:05Z \x1b[31mError\x1b[0m: timed out after 1203 ms (id 3f786850e387)'),
    hashOf('2027-11-12T13:14:15Z Error: timed out after 98 ms (id 0b3b1f8d8a8a)'),
  );
  assert.notEqual(hashOf('Error: connection refused'), hashOf('Error: connection reset'));
  assert.equal(toErrorLine('FAILED', 1), undefined, 'a word alone says nothing');
});

test('of many error lines the first and the last are kept, each once', () => {
  const lines = createErrorLines(4);
  const add = (text: string, line: number) => lines.add(toErrorLine(text, line) ?? assert.fail());
  for (const [at, word] of ['one', 'two', 'one', 'three', 'four', 'five', 'six', 'two'].entries())
    add(`error: the reason is ${word}`, at + 1);
  assert.deepEqual(
    lines.list().map(({ line }) => line),
    [1, 2, 6, 7],
  );
});
