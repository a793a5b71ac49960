// IDs as the domain creates them. test/store/ids.test.ts tests them with the database.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextId, parseId } from '../../src/domain/id.ts';

const now = Date.UTC(2026, 10, 15);

test('an ID is larger than 53 bits and fits into 64', () => {
  const id = nextId(0n, now);
  assert.ok(id > 2n ** 53n);
  assert.ok(id < 2n ** 63n);
});

test('a later moment gives a larger ID', () => {
  const first = nextId(0n, now);
  assert.ok(nextId(first, now + 1) > first + 1n);
});

test('5,000 IDs of one millisecond are unique, increasing, and smaller than those of the next', () => {
  let last = 0n;
  const given = new Set<bigint>();
  for (let count = 0; count < 5000; count += 1) {
    const id = nextId(last, now);
    assert.ok(id > last);
    given.add(id);
    last = id;
  }
  assert.equal(given.size, 5000);
  assert.ok(nextId(last, now + 1) > last);
  assert.equal(nextId(last, now + 1), nextId(0n, now + 1));
});

test('when the clock goes back an hour, IDs keep increasing, and follow the clock again once it has caught up', () => {
  const last = nextId(0n, now);
  assert.equal(nextId(last, now - 3_600_000), last + 1n);
  assert.equal(nextId(last + 1n, now - 3_599_999), last + 2n);
  assert.equal(nextId(last + 2n, now + 1), nextId(0n, now + 1));
});

test('a clock that was ten years ahead for a while causes no duplicates afterwards', () => {
  const ahead = nextId(0n, Date.UTC(2036, 10, 15));
  assert.equal(nextId(ahead, now), ahead + 1n);
  assert.ok(ahead + 1n < 2n ** 63n);
});

test('a clock before 2020 still gives positive IDs', () => {
  assert.equal(nextId(0n, 0), 1n);
});

const spelled: [text: string, id: bigint | undefined][] = [
  ['0', 0n],
  ['1', 1n],
  ['9223372036854775807', 2n ** 63n - 1n],
  ['9223372036854775808', undefined],
  ['99999999999999999999', undefined],
  ['', undefined],
  ['-1', undefined],
  ['+1', undefined],
  [' 1', undefined],
  ['1 ', undefined],
  ['1\n', undefined],
  ['1.0', undefined],
  ['1e3', undefined],
  ['0x10', undefined],
  ['1n', undefined],
  ['1_000', undefined],
  ['١', undefined],
  ['abc', undefined],
];
for (const [text, id] of spelled)
  test(`${JSON.stringify(text)} is ${id === undefined ? 'no id' : `the id ${id}`}`, () => {
    assert.equal(parseId(text), id);
  });
