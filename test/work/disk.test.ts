// The disk guard with scripted figures: what is emptied first, which job is stopped, and which limits are enforced.
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
const holding = (workspaceBytes: number, of: Partial<Usage> = {}): Usage => ({
  outputBytes: 0,
  workspaceBytes,
  ...of,
});

/** A guard whose clock moves on with `look`: one second, and everything that follows from it. */
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
  const look = async (times = 1) => {
    for (let time = 0; time < times; time++) {
      t.mock.timers.tick(1_000);
      for (let turns = 0; turns < 5; turns++) await turn();
    }
  };
  return { disk, world, look };
}

test('caches are emptied one after the other before any job is stopped', async t => {
  const { world, look } = guard(t);
  world.jobs = [build('only')];
  world.usages.set('only', holding(50 * MIB));
  world.caches = 3;
  await look(3);
  assert.equal(world.emptied, 3);
  assert.deepEqual(world.woken, []);
  await look(2);
  assert.deepEqual(world.woken, ['build:only']);
});

test('no cache is emptied when there is enough space again', async t => {
  const { world, look } = guard(t);
  world.caches = 3;
  await look();
  world.freeBytes = MIN_FREE;
  await look(3);
  assert.equal(world.emptied, 1);
});

test('caches stay if the disk of the data directory is full and Docker uses another one', async t => {
  const { world, look } = guard(t, { free: () => ({ dataBytes: MIB, dockerBytes: 10 * MIN_FREE }) });
  world.caches = 3;
  world.jobs = [build('writes files'), build('prints')];
  world.usages.set('writes files', holding(50 * MIB));
  world.usages.set('prints', holding(0, { outputBytes: 10 * MIB }));
  await look(3);
  assert.equal(world.emptied, 0);
  assert.deepEqual(world.woken, ['build:prints']);
});

test('only the job that grew is stopped, even if another one uses more', async t => {
  const { world, look, disk } = guard(t);
  world.jobs = [build('holds'), build('grows')];
  world.usages.set('holds', holding(80 * MIB));
  world.usages.set('grows', holding(10 * MIB));
  await look();
  world.usages.set('grows', holding(30 * MIB));
  await look(2);
  assert.deepEqual(world.woken, ['build:grows']);
  assert.equal(disk.stopReason('grows'), 'disk_full');
  // Removing its files takes a while: no other job has to be stopped for that.
  world.gone = false;
  await look(5);
  world.jobs = [build('holds')];
  await look(5);
  assert.deepEqual(world.woken, ['build:grows']);
  world.gone = true;
  world.freeBytes = MIN_FREE;
  await look(5);
  assert.deepEqual(world.woken, ['build:grows']);
  assert.equal(disk.stopReason('holds'), undefined);
});

test('another job is stopped if space is still short after the first one is gone', async t => {
  const { world, look } = guard(t);
  world.jobs = [build('holds'), build('grows'), build('idle')];
  world.usages.set('holds', holding(80 * MIB));
  world.usages.set('grows', holding(10 * MIB));
  world.usages.set('idle', holding(1000));
  await look();
  world.usages.set('grows', holding(30 * MIB));
  await look(2);
  world.jobs = [build('holds'), build('idle')];
  await look(10);
  // Stopping a job without files would free nothing.
  assert.deepEqual(world.woken, ['build:grows', 'build:holds']);
});

test('a job whose cache grows counts as growing, and one that cannot be measured counts most', async t => {
  const { world, look } = guard(t);
  const cache = (sizeBytes: number) => holding(0, { cache: { volume: 'v', sizeBytes } });
  world.jobs = [build('workspace'), build('cache')];
  world.usages.set('workspace', holding(50 * MIB));
  world.usages.set('cache', cache(900 * MIB));
  await look();
  world.usages.set('workspace', holding(60 * MIB));
  world.usages.set('cache', cache(930 * MIB));
  await look(2);
  assert.deepEqual(world.woken, ['build:cache']);
  world.jobs = [build('workspace'), build('hidden')];
  world.usages.set('hidden', cache(Number.POSITIVE_INFINITY));
  await look(3);
  assert.deepEqual(world.woken, ['build:cache', 'build:hidden']);
});

test('a compile that was stopped on a full disk does not stop the next one of the same dependency', async t => {
  const { world, look, disk } = guard(t);
  world.jobs = [{ ...build('first'), kind: 'dependency' }];
  world.usages.set('first', holding(50 * MIB));
  await look(3);
  assert.equal(disk.stopReason('first'), 'disk_full');
  assert.equal(disk.stopReason('second'), undefined);
});

test('a failed measurement is followed by another', async t => {
  let looks = 0;
  const { world, look } = guard(t, {
    jobs: () => {
      looks += 1;
      if (looks === 1) throw new Error('disk I/O error');
      return [build('only')];
    },
  });
  world.usages.set('only', holding(50 * MIB));
  await look(5);
  assert.match(world.logged.join(), /disk space could not be checked/);
  assert.deepEqual(world.woken, ['build:only']);
});

test('a job is stopped on a disk so full that neither a cache can be emptied nor a size be recorded', async t => {
  const full = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  const { world, look } = guard(t, {
    emptyCache: () => Promise.reject(full),
    recordCache: () => {
      throw full;
    },
  });
  world.jobs = [build('grows')];
  world.usages.set('grows', holding(50 * MIB, { cache: { volume: 'v', sizeBytes: 1 } }));
  await look(5);
  assert.deepEqual(world.woken, ['build:grows']);
});

test('a job beyond DISK or CACHE_LIMIT is stopped, each with its reason, and the size of its cache is recorded', async t => {
  const { world, look, disk } = guard(t, { workspaceLimitBytes: 10 * MIB, cacheLimitBytes: 20 * MIB });
  world.freeBytes = 1000 * MIN_FREE;
  world.jobs = [build('fine'), build('workspace'), build('cache'), build('unknown')];
  world.usages.set('fine', holding(9 * MIB, { cache: { volume: 'a', sizeBytes: 19 * MIB } }));
  world.usages.set('workspace', holding(11 * MIB));
  world.usages.set('cache', holding(0, { cache: { volume: 'b', sizeBytes: 21 * MIB } }));
  world.usages.set('unknown', holding(Number.POSITIVE_INFINITY));
  await look();
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
  const { world, look } = guard(t, { measure, cacheLimitBytes: MIB });
  world.freeBytes = 1000 * MIN_FREE;
  world.jobs = [{ ...build('new'), startedAt: Date.now() }];
  await look(3);
  assert.equal(rounds, 0);
  t.mock.timers.reset();
  const other = guard(t, { measure });
  other.world.freeBytes = 1000 * MIN_FREE;
  other.world.jobs = [build('old')];
  await other.look(3);
  assert.equal(rounds, 0);
});

test('a slow engine is not asked again before it has answered', async t => {
  const answers: (() => void)[] = [];
  const measure = () => new Promise<Map<string, Usage>>(resolve => answers.push(() => resolve(new Map())));
  const { world, look } = guard(t, { measure, workspaceLimitBytes: 1_000 });
  world.jobs = [build('only')];
  await look(3);
  assert.equal(answers.length, 1);
  answers[0]?.();
  await turn();
  // It pauses as long as the measurement took.
  while (answers.length < 2) await look();
});
