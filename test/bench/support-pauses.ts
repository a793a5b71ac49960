// Pauses of the machine: times in which its host did not run one of its processors. A virtual machine may be paused for half
// a second at any time, which no program in it can prevent, so what is measured in milliseconds does not include them.
import { type ChildProcess, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { startChild } from './support.ts';
import type { Pause } from './support-pause-meter.ts';
import type { Stall } from './support-stall-meter.ts';

export type Pauses = {
  /** Reads the pauses up to now. */
  read(): Promise<void>;
  /** How long at least one of the processors was paused in this period. */
  within(fromMs: number, toMs: number, processors?: readonly number[]): number;
  end(): Promise<void>;
};

/** Begins to watch for pauses, on every processor. */
export async function watchPauses(): Promise<Pauses> {
  if (spawnSync('chrt', ['--fifo', '1', 'true']).status !== 0)
    throw new Error('pauses of the machine are measured with real-time priority: run the benchmark as root');
  const processors = Array.from({ length: availableParallelism() }, (_, processor) => processor);
  const meters = await Promise.all(
    processors.map(processor =>
      startChild(
        [
          ...['chrt', '--fifo', '1', 'taskset', '--cpu-list', String(processor)],
          ...[process.execPath, join(import.meta.dirname, 'support-pause-meter.ts')],
        ],
        { port: 0, ready: /ready/, ipc: true },
      ),
    ),
  );
  const pauses: Pause[][] = processors.map(() => []);
  return {
    async read() {
      const answers = await Promise.all(meters.map(meter => query<Pause[]>(meter.process)));
      for (const [processor, answer] of answers.entries()) pauses[processor]?.push(...answer);
    },
    within(fromMs, toMs, among = processors) {
      const found = among.flatMap(processor => overlapping(pauses[processor] ?? [], fromMs, toMs));
      found.sort((one, other) => one.fromMs - other.fromMs);
      let sum = 0;
      let reached = fromMs;
      for (const pause of found) {
        const end = Math.min(pause.toMs, toMs);
        sum += Math.max(0, end - Math.max(pause.fromMs, reached));
        reached = Math.max(reached, end);
      }
      return sum;
    },
    async end() {
      await Promise.all(meters.map(meter => meter.end()));
    },
  };
}

/** Of a server that runs with the stall meter: the longest stall since the last query. */
export async function longestStall(server: ChildProcess, pauses: Pauses) {
  return longestOf(await query<Stall[]>(server), pauses);
}

export type LongestStall = { ms: number; cpuMs: number; pausedMs: number };

export function describe({ cpuMs, pausedMs }: LongestStall): string {
  const paused = pausedMs > 0 ? `; the machine was paused for another ${pausedMs.toFixed(0)} ms` : '';
  return `${cpuMs.toFixed(0)} ms of it processor time${paused}`;
}

/** Time in which the machine was paused or ran something else does not count. */
export async function longestOf(stalls: readonly Stall[], pauses: Pauses): Promise<LongestStall> {
  await pauses.read();
  let longest: LongestStall = { ms: 0, cpuMs: 0, pausedMs: 0 };
  for (const { fromMs, toMs, cpuMs, queuedMs, processors } of stalls) {
    const pausedMs = pauses.within(fromMs, toMs, processors);
    const ms = toMs - fromMs - Math.max(queuedMs, pausedMs);
    if (ms > longest.ms) longest = { ms, cpuMs, pausedMs };
  }
  return longest;
}

async function query<Answer>(child: ChildProcess): Promise<Answer> {
  const answered = once(child, 'message');
  child.send('read');
  return (await answered)[0] as Answer;
}

/** Of pauses in the order of time, those that overlap a period. */
function overlapping(pauses: readonly Pause[], fromMs: number, toMs: number): Pause[] {
  let low = 0;
  let high = pauses.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((pauses[middle] as Pause).toMs <= fromMs) low = middle + 1;
    else high = middle;
  }
  const found: Pause[] = [];
  for (let at = low; at < pauses.length; at += 1) {
    const pause = pauses[at] as Pause;
    if (pause.fromMs >= toMs) break;
    found.push(pause);
  }
  return found;
}
