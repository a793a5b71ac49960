// The disk watch with scripted sizes: what is emptied first, which job is stopped, and which limits are enforced.
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { createLog } from '../../src/log.ts';
import { type DiskOptions, watchDisk } from '../../src/work/disk.ts';
import type { RunningJob, Usage } from '../../src/work/usage.ts';

const MIB = 1024 * 1024;
const MIN_FREE = 100 * MIB;

const build = (nonce: string): RunningJob => ({
  kind: 'build',
  id: 1n,
  topic: `build:${nonce}`,
  nonce,
  suiteId: 7n,
  startedAt: 0,
});
const usageOf = (workspaceBytes: number, of: Partial<Usage> = {}): Usage => ({
  outputBytes: 0,
  workspaceBytes,
  ...of,
});

/** Starts a disk watch. `tick` advances its clock by one second. */
function guard(t: TestContext, of: Partial<DiskOptions> = {}) {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const world = {
    freeBytes: MIN_FREE / 4,
    jobs: [] as RunningJob[],
    usages: new Map<string, Usage>(),
    woken: [] as string[],
    emptied: 0,
    caches: 0,
    recorded: [] as unknown[],
    gone: true,
    logged: [] as string[],
  };
  const disk = watchDisk({
    minFreeBytes: MIN_FREE,
    workspaceLimitBytes: 0,
    cacheLimitBytes: 0,
    log: createLog(line => world.logged.push(line), {}),
    free: () => ({ dataBytes: world.freeBytes, dockerBytes: world.freeBytes }),
    jobs: () => world.jobs,
    measure: async () => new Map(world.usages),
    recordCache: (...recorded) => void world.recorded.push(recorded),
    emptyCache: async () => {
      if (world.caches === 0) return false;
      world.caches -= 1;
      world.emptied += 1;
      return true;
    },
    isGone: async () => world.gone,
    wake: topic => world.woken.push(topic),
    ...of,
  });
  t.after(disk.stop);
  const tick = async (times = 1) => {
    for (let time = 0; time < times; time++) {
      t.mock.timers.tick(1_000);
      for (let turns = 0; turns < 5; turns++) await turn();
    }
  };
  return { disk, world, tick };
}

test('caches are emptied one after the other before any job is stopped', async t => {
  const { world, tick } = guard(t);
  world.jobs = [build('only')];
  world.usages.set('only', usageOf(50 * MIB));
  world.caches = 3;
  await tick(3);
  assert.equal(world.emptied, 3);
  assert.deepEqual(world.woken, []);
  await tick(2);
  assert.deepEqual(world.woken, ['build:only']);
});

test('no cache is emptied when there is enough space again', async t => {
  const { world, tick } = guard(t);
  world.caches = 3;
  await tick();
  world.freeBytes = MIN_FREE;
  await tick(3);
  assert.equal(world.emptied, 1);
});

test('caches stay if the disk of the data directory is full and Docker uses another one', async t => {
  const { world, tick } = guard(t, { free: () => ({ dataBytes: MIB, dockerBytes: 10 * MIN_FREE }) });
  world.caches = 3;
  world.jobs = [build('writes files'), build('prints')];
  world.usages.set('writes files', usageOf(50 * MIB));
  world.usages.set('prints', usageOf(0, { outputBytes: 10 * MIB }));
  await tick(3);
  assert.equal(world.emptied, 0);
  assert.deepEqual(world.woken, ['build:prints']);
});

test('only the job that grew is stopped, even if another one uses more', async t => {
  const { world, tick, disk } = guard(t);
  world.jobs = [build('holds'), build('grows')];
  world.usages.set('holds', usageOf(80 * MIB));
  world.usages.set('grows', usageOf(10 * MIB));
  await tick();
  world.usages.set('grows', usageOf(30 * MIB));
  await tick(2);
  assert.deepEqual(world.woken, ['build:grows']);
  assert.equal(disk.stopReason('grows'), 'disk_full');
  // Removing its files takes a while: no other job has to be stopped for that.
  world.gone = false;
  await tick(5);
  world.jobs = [build('holds')];
  await tick(5);
  assert.deepEqual(world.woken, ['build:grows']);
  world.gone = true;
  world.freeBytes = MIN_FREE;
  await tick(5);
  assert.deepEqual(world.woken, ['build:grows']);
  assert.equal(disk.stopReason('holds'), undefined);
});

test('another job is stopped if space is still low after the first one is gone', async t => {
  const { world, tick } = guard(t);
  world.jobs = [build('holds'), build('grows'), build('idle')];
  world.usages.set('holds', usageOf(80 * MIB));
  world.usages.set('grows', usageOf(10 * MIB));
  world.usages.set('idle', usageOf(1000));
  await tick();
  world.usages.set('grows', usageOf(30 * MIB));
  await tick(2);
  world.jobs = [build('holds'), build('idle')];
  await tick(10);
  // Stopping a job without files would free nothing.
  assert.deepEqual(world.woken, ['build:grows', 'build:holds']);
});

test('a job whose cache grows counts as growing, and one that cannot be measured counts most', async t => {
  const { world, tick } = guard(t);
  const cache = (sizeBytes: number) => usageOf(0, { cache: { volume: 'v', sizeBytes } });
  world.jobs = [build('workspace'), build('cache')];
  world.usages.set('workspace', usageOf(50 * MIB));
  world.usages.set('cache', cache(900 * MIB));
  await tick();
  world.usages.set('workspace', usageOf(60 * MIB));
  world.usages.set('cache', cache(930 * MIB));
  await tick(2);
  assert.deepEqual(world.woken, ['build:cache']);
  world.jobs = [build('workspace'), build('hidden')];
  world.usages.set('hidden', cache(Number.POSITIVE_INFINITY));
  await tick(3);
  assert.deepEqual(world.woken, ['build:cache', 'build:hidden']);
});

test('a compile that was stopped on a full disk does not stop the next one of the same dependency', async t => {
  const { world, tick, disk } = guard(t);
  world.jobs = [{ ...build('first'), kind: 'dependency' }];
  world.usages.set('first', usageOf(50 * MIB));
  await tick(3);
  assert.equal(disk.stopReason('first'), 'disk_full');
  assert.equal(disk.stopReason('second'), undefined);
});

test('a failed measurement is followed by another', async t => {
  let calls = 0;
  const { world, tick } = guard(t, {
    jobs: () => {
      calls += 1;
      if (calls === 1) throw new Error('disk I/O error');
      return [build('only')];
    },
  });
  world.usages.set('only', usageOf(50 * MIB));
  await tick(5);
  assert.match(world.logged.join(), /disk space could not be checked/);
  assert.deepEqual(world.woken, ['build:only']);
});

test('a job is stopped on a disk so full that neither a cache can be emptied nor a size be recorded', async t => {
  const full = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  const { world, tick } = guard(t, {
    emptyCache: () => Promise.reject(full),
    recordCache: () => {
      throw full;
    },
  });
  world.jobs = [build('grows')];
  world.usages.set('grows', usageOf(50 * MIB, { cache: { volume: 'v', sizeBytes: 1 } }));
  await tick(5);
  assert.deepEqual(world.woken, ['build:grows']);
});

test('a job beyond DISK or CACHE_LIMIT is stopped, each with its reason, and the size of its cache is recorded', async t => {
  const { world, tick, disk } = guard(t, { workspaceLimitBytes: 10 * MIB, cacheLimitBytes: 20 * MIB });
  world.freeBytes = 1000 * MIN_FREE;
  world.jobs = [build('fine'), build('workspace'), build('cache'), build('unknown')];
  world.usages.set('fine', usageOf(9 * MIB, { cache: { volume: 'a', sizeBytes: 19 * MIB } }));
  world.usages.set('workspace', usageOf(11 * MIB));
  world.usages.set('cache', usageOf(0, { cache: { volume: 'b', sizeBytes: 21 * MIB } }));
  world.usages.set('unknown', usageOf(Number.POSITIVE_INFINITY));
  await tick();
  assert.deepEqual(
    world.jobs.map(({ nonce }) => disk.stopReason(nonce)),
    [undefined, 'too_big', 'cache_too_big', undefined],
  );
  assert.deepEqual(
    world.recorded.map(recorded => (recorded as [bigint, string, { sizeBytes: number }])[2].sizeBytes),
    [19 * MIB, 21 * MIB],
  );
});

test('new jobs are not measured while there is space, and none is if nothing is limited', async t => {
  let rounds = 0;
  const measure = async () => {
    rounds += 1;
    return new Map();
  };
  const { world, tick } = guard(t, { measure, cacheLimitBytes: MIB });
  world.freeBytes = 1000 * MIN_FREE;
  world.jobs = [{ ...build('new'), startedAt: Date.now() }];
  await tick(3);
  assert.equal(rounds, 0);
  t.mock.timers.reset();
  const other = guard(t, { measure });
  other.world.freeBytes = 1000 * MIN_FREE;
  other.world.jobs = [build('old')];
  await other.tick(3);
  assert.equal(rounds, 0);
});

test('a job is measured again when the disk has filled by half of what it may still use, or after a minute', async t => {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  let rounds = 0;
  const { world, tick, disk } = guard(t, {
    cacheLimitBytes: 100 * MIB,
    measure: async () => {
      rounds += 1;
      return new Map(world.usages);
    },
  });
  const wait = async (seconds: number) => {
    for (let second = 0; second < seconds; second++) {
      nowMs += 1_000;
      await tick();
    }
  };
  const cacheOf = (sizeBytes: number) => usageOf(0, { cache: { volume: 'a', sizeBytes } });
  world.freeBytes = 1000 * MIN_FREE;
  world.jobs = [build('first')];
  world.usages.set('first', cacheOf(40 * MIB));
  await wait(30);
  assert.equal(rounds, 1);
  world.freeBytes -= 29 * MIB;
  await wait(10);
  assert.equal(rounds, 1);
  world.freeBytes -= 2 * MIB;
  await wait(10);
  assert.equal(rounds, 2);
  // A job that was not measured yet.
  world.jobs = [build('first'), build('second')];
  world.usages.set('second', cacheOf(10 * MIB));
  await wait(10);
  assert.equal(rounds, 3);
  await wait(70);
  assert.equal(rounds, 4);
  world.usages.set('second', cacheOf(101 * MIB));
  world.freeBytes -= 91 * MIB;
  await wait(10);
  assert.deepEqual(
    ['first', 'second'].map(nonce => disk.stopReason(nonce)),
    [undefined, 'cache_too_big'],
  );
});

test('a slow engine is not asked again before it has answered', async t => {
  const responses: (() => void)[] = [];
  const measure = () => new Promise<Map<string, Usage>>(resolve => responses.push(() => resolve(new Map())));
  const { world, tick } = guard(t, { measure, workspaceLimitBytes: 1_000 });
  world.jobs = [build('only')];
  await tick(3);
  assert.equal(responses.length, 1);
  responses[0]?.();
  await turn();
  // It pauses as long as the measurement took.
  while (responses.length < 2) await tick();
});
