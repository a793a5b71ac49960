// The drills in short, as part of every test run: each with a seed of its own, which `scripts/drill` takes as well. A seed
// in a title is one that found something; the others are any.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { drillDisk } from './disk.ts';
import { drillDocker } from './docker.ts';
import { drillKill } from './kill.ts';
import { drillLoad } from './load.ts';
import { drillNetwork } from './network.ts';
import { programOf } from './program.ts';
import { createChance } from './seed.ts';
import type { Table } from './table.ts';

let command: readonly string[] = [];
const wishes = (seed: number) => ({
  chance: createChance(seed),
  command,
  // Two drills and other tests share the machine: `scripts/drill` holds to the times themselves.
  slack: 3,
  signal: new AbortController().signal,
  say: () => {},
});

const nothingLost = (table: Table) => assert.deepEqual(table.failures(), []);
const skip = process.getuid?.() !== 0 && 'file systems and engines of its own take root';

// Two at a time: most of it is waiting.
describe('The program', { concurrency: 2, skip }, () => {
  before(async () => {
    command = await programOf();
  });

  // Its 200 kills found three commands run again, after a kill between the end of the log and the verdict. These are the
  // first of them; that moment itself is in test/work/verdict-again.test.ts.
  test('killed at random moments and at syncs (seed 2026), it loses nothing and does nothing twice', async () => {
    nothingLost(await drillKill({ ...wishes(2026), times: 4, livesMs: 1_500, sweepMs: 45_000 }));
  });

  test('an engine that is killed or never answers, and a container that cannot be killed, cost no build its verdict', async () => {
    const chosen = [
      'killed and restarted',
      'never answering while the program is stopped',
      'unkillable, refusing',
    ] as const;
    nothingLost(await drillDocker({ ...wishes(3), hangMs: 3_000, goneMs: 3_000 }, chosen));
  });

  // It found a log that nobody closed when its end found no room, which ended the process (in small in
  // test/work/full-disk.test.ts). Whatever the seed, a log and builds that fill the disk found builds that ran for ever.
  test('on a full disk (seed 9) it reads on, refuses as the contract says, and recovers by itself', async () => {
    const chosen = ['by a log', 'to the last byte', 'by builds', 'by caches'] as const;
    nothingLost(await drillDisk({ ...wishes(9), faults: 2 }, chosen));
  });

  test('slow git hosts, clients that vanish, readers that do not read and a flushed firewall cost nobody anything', async () => {
    const chosen = ['slow git hosts', 'clients that vanish', 'slow readers', 'flushed firewall'] as const;
    nothingLost(await drillNetwork({ ...wishes(11), patient: false, clients: 10, flushes: 3 }, chosen));
  });

  test('with many builds waiting and many callers, it answers as ever', async () => {
    nothingLost(await drillLoad({ ...wishes(13), builds: 2_000, callers: 40, unnoticedMs: 2_000 }));
  });
});
