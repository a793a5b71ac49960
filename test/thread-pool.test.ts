// The small jobs that keep the thread pool going.
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { test } from 'node:test';
import { keepThreadPoolGoing } from '../src/thread-pool.ts';

test('a job is queued in the thread pool every second', t => {
  let jobs = 0;
  const hook = createHook({
    init(_id, type) {
      if (type === 'FSREQCALLBACK') jobs += 1;
    },
  }).enable();
  t.after(() => hook.disable());
  t.mock.timers.enable({ apis: ['setInterval'] });
  keepThreadPoolGoing();
  t.mock.timers.tick(3_000);
  assert.equal(jobs, 3);
});
