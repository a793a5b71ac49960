// `scripts/drill NAME`: runs one drill with a seed that it prints and takes, and ends with its table.
import { parseArgs } from 'node:util';
import { drillDisk } from './disk.ts';
import { drillDocker } from './docker.ts';
import { drillKill } from './kill.ts';
import { drillLoad } from './load.ts';
import { drillNetwork } from './network.ts';
import { programOf } from './program.ts';
import { type Chance, createChance } from './seed.ts';
import type { Table } from './table.ts';

type Wishes = { times: number; chance: Chance; command: readonly string[]; slack: 1; signal: AbortSignal };

const say = (text: string) => console.log(`drill: ${text}`);

const drills: Record<string, (wishes: Wishes) => Promise<Table>> = {
  disk: wishes => drillDisk({ ...wishes, faults: 12, say }),
  docker: wishes => drillDocker({ ...wishes, hangMs: 40_000, goneMs: 120_000, say }),
  kill: wishes => drillKill({ ...wishes, livesMs: 3_000, sweepMs: 150_000, say }),
  load: wishes => drillLoad({ ...wishes, builds: 100_000, callers: 1_000, unnoticedMs: 0, say }),
  network: wishes => drillNetwork({ ...wishes, patient: true, clients: 50, flushes: 10, say }),
};

const { values, positionals } = parseArgs({
  options: {
    seed: { type: 'string' },
    times: { type: 'string', default: '200' },
    program: { type: 'string' },
  },
  allowPositionals: true,
});
const [name = ''] = positionals;
const drill = Object.hasOwn(drills, name) ? drills[name] : undefined;
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const times = Number(values.times);
if (!drill || !Number.isSafeInteger(seed) || !Number.isSafeInteger(times) || times < 1) {
  console.error(
    `usage: scripts/drill ${Object.keys(drills).join('|')} [--seed N] [--times N] [--program PATH]`,
  );
  process.exit(2);
}
if (values.program === undefined) say('making the executable, where it is not made of these sources');
const command = await programOf(values.program);
say(`${name} with --seed ${seed}, of ${command.join(' ')}`);
const stopped = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopped.abort());
const table = await drill({ times, chance: createChance(seed), command, slack: 1, signal: stopped.signal });
table.print();
process.exitCode = table.failures().length === 0 ? 0 : 1;
