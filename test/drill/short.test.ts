// Short versions of all drills, run with the other tests. `scripts/drill` takes the same seeds. A seed in a title once
// found a defect; the others are arbitrary.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { drillDisk } from './disk/disk.ts';
import { drillDocker } from './docker/docker.ts';
import { drillKill } from './kill/kill.ts';
import { drillLoad } from './load/load.ts';
import { drillNetwork } from './network/network.ts';
import { programOf } from './support/program.ts';
import { createRandom } from './support/random.ts';
import type { Table } from './support/table.ts';

let command: readonly string[] = [];
const options = (seed: number) => ({
  random: createRandom(seed),
  command,
  // Two drills and other tests share the machine; `scripts/drill` uses the real time limits.
  slack: 3,
  signal: new AbortController().signal,
  say: () => {},
});

const nothingLost = (table: Table) => assert.deepEqual(table.failures(), []);
const skip = process.getuid?.() !== 0 && 'private file systems and engines need root';

// Two at a time: most of the time is waiting.
describe('The program', { concurrency: 2, skip }, () => {
  before(async () => {
    command = await programOf();
  });

  // 200 kills with this seed once found three commands that ran again, after a kill between the end of the log and the
  // verdict. test/work/verdict-reread.test.ts tests that moment.
  test('loses nothing and repeats nothing when it is killed at random moments and at syncs (seed 2026)', async () => {
    nothingLost(await drillKill({ ...options(2026), times: 4, livesMs: 1_500, sweepMs: 45_000 }));
  });

  test('gives every build a verdict when the engine is killed or never answers, or a container cannot be killed', async () => {
    const chosen = [
      'killed and restarted',
      'never answering while the program is stopped',
      'unkillable, refusing',
    ] as const;
    nothingLost(await drillDocker({ ...options(3), hangMs: 3_000, goneMs: 3_000 }, chosen));
  });

  // This seed once found a log that stayed open after a full disk and ended the process; test/work/full-disk.test.ts
  // tests that alone. Full disks also found builds that ran for ever.
  test('keeps reading on a full disk (seed 9), refuses changes with the right error, and recovers', async () => {
    const chosen = ['by a log', 'to the last byte', 'by builds', 'by caches'] as const;
    nothingLost(await drillDisk({ ...options(9), faults: 2 }, chosen));
  });

  test('isolates slow git hosts, disconnecting clients, slow readers and a flushed firewall', async () => {
    const chosen = ['slow git hosts', 'clients that vanish', 'slow readers', 'flushed firewall'] as const;
    nothingLost(await drillNetwork({ ...options(11), includeSlow: false, clients: 10, flushes: 3 }, chosen));
  });

  test('answers with many waiting builds and many clients almost as fast as when idle', async () => {
    nothingLost(await drillLoad({ ...options(13), builds: 2_000, callers: 40, ignoredMs: 2_000 }));
  });
});
