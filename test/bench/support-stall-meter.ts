// Loaded into a server with `node --import`: answers each message over the IPC channel with the stalls of the event loop
// since the previous one.
import { openSync, readSync } from 'node:fs';
import { monotonicMs } from './support-clock.ts';

type Moment = { atMs: number; cpuMs: number; queuedMs: number; processor: number };

export type Stall = {
  fromMs: number;
  toMs: number;
  cpuMs: number;
  /** Time in the run queue: the thread was ready, but the machine ran something else. */
  queuedMs: number;
  /** Where the thread was before and after. */
  processors: number[];
};

const TICK_MS = 1;
const LEAST_MS = 2;
const task = `/proc/self/task/${process.pid}`;
const schedstat = openSync(`${task}/schedstat`, 'r');
const stat = openSync(`${task}/stat`, 'r');
const bytes = Buffer.alloc(1_000);

function read(file: number): string {
  return bytes.toString('latin1', 0, readSync(file, bytes, 0, bytes.length, 0));
}

function now(): Moment {
  const [cpuNs = 0, queuedNs = 0] = read(schedstat).split(' ').map(Number);
  const fields = read(stat)
    .replace(/^.*\) /, '')
    .split(' ');
  return { atMs: monotonicMs(), cpuMs: cpuNs / 1e6, queuedMs: queuedNs / 1e6, processor: Number(fields[36]) };
}

let stalls: Stall[] = [];
let last = now();

setInterval(() => {
  const next = now();
  const fromMs = last.atMs + TICK_MS;
  if (next.atMs - fromMs > LEAST_MS)
    stalls.push({
      fromMs,
      toMs: next.atMs,
      cpuMs: next.cpuMs - last.cpuMs,
      queuedMs: next.queuedMs - last.queuedMs,
      processors: [last.processor, next.processor],
    });
  last = next;
}, TICK_MS).unref();

process.on('message', () => {
  process.send?.(stalls);
  stalls = [];
});
process.channel?.unref();
