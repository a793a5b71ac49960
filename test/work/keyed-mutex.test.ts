// The lock that fetches of a mirror and compiles of a recipe wait for.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { createKeyedMutex } from '../../src/work/keyed-mutex.ts';

const never = new AbortController().signal;

test('a key has one holder at a time, in the order in which they asked, and another key is free', async () => {
  const mutex = createKeyedMutex();
  const order: string[] = [];
  const first = await mutex('a', never);
  const others = ['second', 'third'].map(async name => {
    using _lock = await mutex('a', never);
    order.push(`${name} begins`);
    await turn();
    order.push(`${name} ends`);
  });
  using _other = await mutex('b', never);
  await turn();
  assert.deepEqual(order, []);
  first[Symbol.dispose]();
  await Promise.all(others);
  assert.deepEqual(order, ['second begins', 'second ends', 'third begins', 'third ends']);
});

test('a wait that is aborted ends at once, and those behind it still wait for the holder', async () => {
  const mutex = createKeyedMutex();
  const holder = await mutex('a', never);
  const abort = new AbortController();
  const aborted = mutex('a', abort.signal);
  let hasEntered = false;
  const behind = mutex('a', never).then(() => {
    hasEntered = true;
  });
  abort.abort(new Error('canceled'));
  await assert.rejects(aborted, /canceled/);
  await turn();
  assert.equal(hasEntered, false);
  holder[Symbol.dispose]();
  await behind;
});
