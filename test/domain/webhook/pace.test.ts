import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countPlaces, firstPace, mostAtOnce, nextPace, type Pace } from '../../../src/domain/webhook/pace.ts';

const after = (pace: Pace, count: number, answer: { succeeded: boolean; responseMs: number }) =>
  Array.from({ length: count }).reduce<Pace>(last => nextPace(last, answer), pace);
const quick = { succeeded: true, responseMs: 5 };
const slow = { succeeded: true, responseMs: 9_000 };
const failed = { succeeded: false, responseMs: 5 };

test('a receiver that answers gets more at once, a slow one a few, a failing one one after another', () => {
  assert.equal(after(firstPace, 100, quick).atOnce, mostAtOnce);
  assert.equal(after(after(firstPace, 100, quick), 1, slow).atOnce, 4);
  assert.equal(after(after(firstPace, 100, quick), 1, failed).atOnce, 1);
});

test('pauses grow with each failure up to a second, and end with the first success', () => {
  const pauses = [1, 2, 3, 4, 5, 6, 60].map(count => after(firstPace, count, failed).pauseMs);
  assert.deepEqual(pauses, [50, 100, 200, 400, 800, 1_000, 1_000]);
  assert.equal(nextPace(after(firstPace, 60, failed), quick).pauseMs, 0);
});

test('failing receivers take at most half of the places of their host and of all', () => {
  const failing = { host: 'a', pace: nextPace(firstPace, failed), underWay: { size: 0 } };
  const places = countPlaces([], { inAll: 12, perHost: 8 });
  for (let count = 0; count < 4; count++) places.take(failing);
  assert.equal(places.freeFor(failing), 0);
  const elsewhere = { ...failing, host: 'b' };
  assert.equal(places.freeFor(elsewhere), 1);
  places.take(elsewhere);
  places.take(elsewhere);
  assert.equal(places.freeFor({ ...failing, host: 'c' }), 0);
  assert.equal(places.freeFor({ host: 'a', pace: firstPace, underWay: { size: 0 } }), 2);
});
