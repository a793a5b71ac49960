// The guard of a nearly full disk: which run it ends, and that it outlives what goes wrong on such a disk.
import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { createLog } from '../../src/log.ts';
import { type Growing, watchDisk } from '../../src/work/disk.ts';

const growing = (nonce: string, size: number): Growing => ({
  topic: 'dependency:1',
  nonce,
  sizeBytes: async () => size,
});

test('a compile that was ended for want of room does not end the next one of the same dependency', async t => {
  const ended = Promise.withResolvers<string>();
  const disk = watchDisk({
    directory: tmpdir(),
    // More than there can be.
    minFreeBytes: Number.MAX_SAFE_INTEGER,
    log: createLog(() => {}, {}),
    growing: () => [growing('first', 10)],
    condemn: topic => ended.resolve(topic),
  });
  t.after(disk.stop);
  assert.equal(await ended.promise, 'dependency:1');
  assert.equal(disk.mustEnd('first'), true);
  assert.equal(disk.mustEnd('second'), false);
});

test('a look that fails is followed by another', async t => {
  const logged: string[] = [];
  const ended = Promise.withResolvers<void>();
  let looks = 0;
  const disk = watchDisk({
    directory: tmpdir(),
    minFreeBytes: Number.MAX_SAFE_INTEGER,
    log: createLog(line => logged.push(line), {}),
    growing: () => {
      looks += 1;
      if (looks === 1) throw new Error('disk I/O error');
      return [growing('only', 10)];
    },
    condemn: () => ended.resolve(),
  });
  t.after(disk.stop);
  await ended.promise;
  assert.match(logged.join(), /disk could not be looked at/);
});
