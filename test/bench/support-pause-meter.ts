// Runs on one processor, before everything else there, and wakes up every millisecond. If it is late, the processor was
// paused. Answers each message with the pauses since the previous one.
import { monotonicMs } from './support-clock.ts';

export type Pause = { fromMs: number; toMs: number };

const TICK_MS = 1;
const LATE_MS = 4;
let pauses: Pause[] = [];
let last = monotonicMs();

setInterval(() => {
  const now = monotonicMs();
  if (now - last > LATE_MS) pauses.push({ fromMs: last + TICK_MS, toMs: now });
  last = now;
}, TICK_MS);

process.on('message', () => {
  process.send?.(pauses);
  pauses = [];
});
process.on('disconnect', () => process.exit());
console.log('ready');
