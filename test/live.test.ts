// Notifications within the process: who is woken by which topics.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLive } from '../src/live.ts';

test('a watcher of several topics is woken by each of them and by no other, until it stops', () => {
  const live = createLive();
  let woken = 0;
  const unwatch = live.watchAny(['a', 'b'], () => {
    woken += 1;
  });
  assert.equal(live.watchers(), 1);
  live.publish(['a']);
  live.publish(['c']);
  assert.equal(woken, 1);
  live.publish(['b', 'c']);
  assert.equal(woken, 2);
  unwatch();
  live.publish(['a']);
  assert.equal(woken, 2);
  assert.equal(live.watchers(), 0);
});
