// `scripts/drill NAME`: runs one drill, with a given or a random seed, and prints its table.
import { parseArgs } from 'node:util';
import { drillDisk } from './disk/disk.ts';
import { drillDocker } from './docker/docker.ts';
import { drillKill } from './kill/kill.ts';
import { drillLoad } from './load/load.ts';
import { drillNetwork } from './network/network.ts';
import { programOf } from './support/program.ts';
import { createRandom, type Random } from './support/random.ts';
import type { Table } from './support/table.ts';
import { drillSwarm } from './swarm/swarm.ts';

type DrillOptions = {
  times: number;
  jobs: number;
  random: Random;
  command: readonly string[];
  slack: 1;
  signal: AbortSignal;
};

const say = (text: string) => console.log(`drill: ${text}`);

const drills: Record<string, (options: DrillOptions) => Promise<Table>> = {
  disk: options => drillDisk({ ...options, faults: 12, say }),
  docker: options => drillDocker({ ...options, hangMs: 40_000, goneMs: 120_000, say }),
  kill: options => drillKill({ ...options, livesMs: 3_000, sweepMs: 150_000, say }),
  load: options => drillLoad({ ...options, builds: 100_000, callers: 1_000, ignoredMs: 0, say }),
  network: options => drillNetwork({ ...options, includeSlow: true, clients: 50, flushes: 10, say }),
  swarm: options => drillSwarm({ ...options, deadlineMs: 45 * 60_000, say }),
};

const { values, positionals } = parseArgs({
  options: {
    seed: { type: 'string' },
    times: { type: 'string', default: '200' },
    jobs: { type: 'string', default: '200' },
    program: { type: 'string' },
  },
  allowPositionals: true,
});
const [name = ''] = positionals;
const drill = Object.hasOwn(drills, name) ? drills[name] : undefined;
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const [times = 0, jobs = 0] = [values.times, values.jobs].map(Number);
const isCount = (value: number) => Number.isSafeInteger(value) && value >= 1;
if (!drill || !Number.isSafeInteger(seed) || !isCount(times) || !isCount(jobs)) {
  console.error(
    `usage: scripts/drill ${Object.keys(drills).join('|')} [--seed N] [--times N] [--jobs N] [--program PATH]`,
  );
  process.exit(2);
}
// It shortens the time until a container counts as lost, so it runs the server in this process.
const needsProgram = name !== 'swarm';
if (needsProgram && values.program === undefined) say('building the executable if it is out of date');
const command = needsProgram ? await programOf(values.program) : ['in this process'];
say(`${name} with --seed ${seed}, program ${command.join(' ')}`);
const stopped = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopped.abort());
const table = await drill({
  times,
  jobs,
  random: createRandom(seed),
  command,
  slack: 1,
  signal: stopped.signal,
});
table.print();
process.exitCode = table.failures().length === 0 ? 0 : 1;
