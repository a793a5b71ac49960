// Loaded into a server with `node --import`: measures the longest stall of its event loop since the last query, and
// reports it over the IPC channel. Time in which the thread was ready but the machine ran something else does not
// count.
import { openSync, readSync } from 'node:fs';

type Moment = { atMs: number; cpuMs: number; queuedMs: number };

const TICK_MS = 1;
const schedstat = openSync(`/proc/self/task/${process.pid}/schedstat`, 'r');
const bytes = Buffer.alloc(100);

function now(): Moment {
  const length = readSync(schedstat, bytes, 0, bytes.length, 0);
  const [cpuNs = 0, queuedNs = 0] = bytes.toString('latin1', 0, length).split(' ').map(Number);
  return { atMs: performance.now(), cpuMs: cpuNs / 1e6, queuedMs: queuedNs / 1e6 };
}

export type Stall = { ms: number; cpuMs: number; queuedMs: number };
const none: Stall = { ms: 0, cpuMs: 0, queuedMs: 0 };
let longest = none;
let last = now();

setInterval(() => {
  const next = now();
  const queuedMs = next.queuedMs - last.queuedMs;
  const ms = next.atMs - last.atMs - TICK_MS - queuedMs;
  if (ms > longest.ms) longest = { ms, cpuMs: next.cpuMs - last.cpuMs, queuedMs };
  last = next;
}, TICK_MS).unref();

process.on('message', () => {
  process.send?.(longest);
  longest = none;
});
process.channel?.unref();
