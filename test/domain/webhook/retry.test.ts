// The delays between the attempts of a delivery.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { retryDelayMs, retryDelaysMs } from '../../../src/domain/webhook/retry.ts';

test('the delays are 5 s, 30 s, 2 min, 10 min, 1 h, 6 h and 24 h, and then the delivery fails', () => {
  const delaysMs = [1, 2, 3, 4, 5, 6, 7, 8].map(attempts => retryDelayMs(attempts, 0));
  assert.deepEqual(delaysMs, [5e3, 30e3, 120e3, 600e3, 3_600e3, 21_600e3, 86_400e3, undefined]);
});

test('jitter delays a retry by up to a fifth, and never makes it earlier', () => {
  retryDelaysMs.forEach((delayMs, index) => {
    assert.equal(retryDelayMs(index + 1, 0.5), Math.round(delayMs * 1.1));
    for (let count = 0; count < 100; count++) {
      const jitteredMs = retryDelayMs(index + 1)!;
      assert.ok(jitteredMs >= delayMs && jitteredMs <= delayMs * 1.2, `${jitteredMs}`);
    }
  });
});

test('two receivers of the same outage are not retried at the same moment', () => {
  assert.ok(new Set(Array.from({ length: 50 }, () => retryDelayMs(4))).size > 40);
});
