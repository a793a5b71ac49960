// Literal search in the text of logs, and the filter that shows where a text cannot be.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  addToFilter,
  compileQuery,
  FILTER_BYTES,
  findMatches,
  MAX_TEXT,
  mayContain,
} from '../../../src/domain/result/log-query.ts';

const find = (text: string | Buffer, query: string, isCaseSensitive = false, limit = 10) =>
  findMatches(Buffer.from(text as string), compileQuery(query, isCaseSensitive), limit);
const linesOf = (...parameters: Parameters<typeof find>) => find(...parameters).map(({ line }) => line);

function filterOf(text: string) {
  const filter = new Uint8Array(FILTER_BYTES);
  addToFilter(filter, Buffer.from(text));
  return (query: string) => mayContain(filter, compileQuery(query));
}

test('a line is found by any part of it, once, with its number and the byte where it begins', () => {
  assert.deepEqual(find('first\nan Error, an error\n\nlast error', 'error'), [
    { line: 1, offset: 6, text: 'an Error, an error' },
    { line: 3, offset: 26, text: 'last error' },
  ]);
  assert.deepEqual(linesOf('one\none\none\n', 'one', false, 2), [0, 1]);
  assert.deepEqual(find('', 'one'), []);
});

test('case matters only if asked, in every script', () => {
  const log = 'ERROR\nerror\nÄRGER\närger\nОШИБКА\nошибка\nΟΔΟΣ\nοδος\n';
  assert.deepEqual(linesOf(log, 'Error'), [0, 1]);
  assert.deepEqual(linesOf(log, 'Ärger'), [2, 3]);
  assert.deepEqual(linesOf(log, 'Ошибка'), [4, 5]);
  assert.deepEqual(linesOf(log, 'ΟΔΟΣ'), [6, 7]);
  assert.deepEqual(linesOf(log, 'ERROR', true), [0]);
  assert.deepEqual(linesOf(log, 'ärger', true), [3]);
});

test('a long text is found in any case too', () => {
  const text = 'The quick brown fox jumps over the lazy dog';
  assert.deepEqual(linesOf(`x\n${text.toUpperCase()}\n${text}\n`, text), [1, 2]);
  assert.deepEqual(linesOf(`x\n${text.toUpperCase()}\n${text}\n`, text, true), [2]);
});

test('a text is literal, and never reaches over a line', () => {
  assert.deepEqual(linesOf('a.*b\naxxb\n', 'a.*b'), [0]);
  assert.deepEqual(linesOf('one\ntwo\n', 'one two'), []);
});

test('colours and other escape sequences do not hide a text, and are not shown', () => {
  const log =
    'x\n\x1b[1;31mErr\x1b[0mor\x1b[K: \x1b]8;;http://x/\x07file\x1b]8;;\x07 gone\n\x1b[31\nlast error: none\n';
  assert.deepEqual(find(log, 'error: file gone'), [{ line: 1, offset: 2, text: 'Error: file gone' }]);
  assert.deepEqual(linesOf(log, 'last error'), [3], 'a sequence without an end keeps the newline');
  assert.equal(filterOf(log)('error: file gone'), true);
});

test('a line that was overwritten shows the part with the match', () => {
  const [match] = find('10 %\r50 % working\r100 %\r\n', 'working');
  assert.equal(match?.text, '50 % working');
});

test('a long line is cut around the match', () => {
  const [match] = find(`${'a'.repeat(3_000)} needle ${'b'.repeat(3_000)}`, 'NEEDLE');
  assert.equal(match?.text.length, MAX_TEXT);
  assert.match(match.text, /^…a+ needle b+…$/);
  assert.equal(find(`needle${'b'.repeat(494)}`, 'needle')[0]?.text.length, 500);
  assert.match(find(`${'a'.repeat(3_000)} needle`, 'needle')[0]?.text ?? '', /^…a{119} needle$/);
});

test('bytes that are no text are searched too', () => {
  const log = Buffer.concat([Buffer.from([0xff, 0x00, 0x0a, 0xc3]), Buffer.from('error\x00\xe9\n')]);
  assert.deepEqual(
    findMatches(log, compileQuery('error'), 10).map(({ line, offset }) => [line, offset]),
    [[1, 3]],
  );
});

test('the filter never denies a text that is there', () => {
  const text = readFileSync(import.meta.filename, 'utf8');
  const mayBeThere = filterOf(text);
  for (const line of text.split('\n'))
    for (let at = 0; at + 3 <= line.length; at += 7)
      for (const length of [3, 5, 6, 12, 40]) {
        const query = line.slice(at, at + length);
        if (!query.isWellFormed() || /[\x00-\x1f]/.test(query)) continue;
        assert.ok(mayBeThere(query.toUpperCase()), query);
      }
});

test('the filter of a megabyte of real output denies most texts that are not there', () => {
  const lines = ['api', 'store', 'work', 'domain'].flatMap(area => [
    `✔ the tests of ${area} passed (12.5ms)`,
    `ok 1 - a project appears in the list of ${area}`,
    `${area}: compiling with gcc -O2 -c src/${area}/main.c`,
  ]);
  const output = Array.from(
    { length: 20_000 },
    (_, at) =>
      `${new Date(at * 977).toISOString()} ${lines[at % lines.length]} ${(at * 2_654_435_761) >>> 0}`,
  ).join('\n');
  const mayBeThere = filterOf(output);
  assert.ok(mayBeThere('compiling with gcc'));
  const absent = [
    'segmentation fault',
    'connection refused',
    'no space left on device',
    'permission denied',
    'undefined reference to',
    'cannot find module',
    'database is locked',
    'timed out after',
  ];
  assert.deepEqual(absent.filter(mayBeThere), []);
});
