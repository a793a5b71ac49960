// The set of normalised lines.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLineSet } from '../../../src/domain/result/line-set.ts';

const line = (text: string): [Buffer, number, number] => [Buffer.from(text), 0, Buffer.byteLength(text)];

test('a line is found again if it differs only in times and numbers', () => {
  const set = createLineSet(100);
  assert.equal(set.add(...line('12:30 compile file 7')), true);
  assert.equal(set.add(...line('12:31 compile file 8')), false);
  assert.equal(set.has(...line('9:31 compile file 999')), true);
  assert.equal(set.has(...line('9:31 compile files 999')), false);
  assert.equal(set.has(...line('')), true, 'an empty line says nothing');
  assert.equal(set.has(...line(' \x1b[0m ')), true);
});

test('a set of many lines has exactly those, and takes no more than its limit', () => {
  // Letters, because digits are not compared.
  const word = (at: number) =>
    [...at.toString(20)].map(digit => String.fromCharCode(97 + Number.parseInt(digit, 20))).join('');
  const set = createLineSet(50_000);
  for (let at = 0; at < 60_000; at += 1)
    assert.equal(set.add(...line(`the word ${word(at)} zz`)), true, word(at));
  assert.equal(set.isFull, true);
  for (let at = 0; at < 60_000; at += 1)
    assert.equal(set.has(...line(`the word ${word(at)} zz`)), at < 50_000, word(at));
});
