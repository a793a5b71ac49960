// The slots of containers: how many compiles run at once, why jobs wait, and how builds and compiles take turns.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { createContainerSlots } from '../../src/work/container-slots.ts';
import { startQueue, type WaitingItem } from '../../src/work/queue.ts';

const slotsOf = (concurrency: number, compileSlots?: number) =>
  createContainerSlots({
    concurrency,
    compileSlots,
    dataDirectory: '/var/lib/assay',
    dockerUnavailable: () => undefined,
    hasFreeSpace: () => true,
  });

test('compiles get half of the slots, at least one, and never the last one of several', () => {
  const limits = [1, 2, 3, 4, 5, 8].map(concurrency => slotsOf(concurrency).compileSlots());
  assert.deepEqual(limits, [1, 1, 1, 2, 2, 4]);
  assert.deepEqual(
    [slotsOf(4, 1), slotsOf(4, 3), slotsOf(4, 4), slotsOf(4, 9), slotsOf(1, 5)].map(one =>
      one.compileSlots(),
    ),
    [1, 3, 3, 3, 1],
  );
});

test('builds start while all slots for compiles are taken, and the reason says so', () => {
  const slots = slotsOf(3, 1);
  assert.equal(slots.waitReason('dependency'), 'It starts in a moment.');
  const endCompile = slots.begin(['dependency']);
  assert.deepEqual([slots.mayBegin(['build']), slots.mayBegin(['dependency'])], [true, false]);
  assert.equal(slots.waitReason('dependency'), 'All 1 slots for compiles are taken.');
  assert.equal(slots.waitReason('build'), 'It starts in a moment.');
  slots.begin(['build']);
  slots.begin(['build']);
  assert.equal(slots.waitReason('dependency'), 'All 3 slots are taken.');
  assert.deepEqual([slots.used(), slots.compilesRunning()], [3, 1]);
  endCompile();
  endCompile();
  assert.equal(slots.mayBegin(['dependency']), true);
});

test('with one slot, builds and compiles take turns, whoever owns them', async () => {
  const slots = slotsOf(1);
  const started: string[] = [];
  const all = Promise.withResolvers<void>();
  let left = [
    ...Array.from({ length: 20 }, (_, at) => ({
      kind: 'dependency',
      owner: `account ${at}`,
      id: BigInt(at),
    })),
    ...Array.from({ length: 5 }, (_, at) => ({ kind: 'build', owner: 'project 1', id: BigInt(100 + at) })),
  ];
  const kind = (name: string) => ({
    listClaimed: () => [],
    listWaiting: () =>
      left
        .filter(job => job.kind === name)
        .map(
          (job): WaitingItem => ({
            key: `${name} ${job.id}`,
            groups: [name],
            owner: job.owner,
            enqueuedAt: job.id,
            claim() {
              left = left.filter(one => one !== job);
              return async () => {
                started.push(name);
                if (left.length === 0) all.resolve();
              };
            },
          }),
        ),
  });
  const queue = startQueue({
    live: createLive(),
    log: createLog(() => {}, {}),
    lanes: [{ slots, isOpen: slots.isOpen, kinds: [kind('build'), kind('dependency')] }],
  });
  await all.promise;
  await queue.stop();
  const turns = Array.from({ length: 5 }, () => ['dependency', 'build']).flat();
  assert.deepEqual(started.slice(0, 10), turns);
});
