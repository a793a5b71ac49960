// When a webhook is tried again. Counting the attempts and waiting is left to the queue.

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

/** The wait after the first failed attempt, after the second, and so on; after the last one it is given up. */
export const retryDelaysMs: readonly number[] = [
  5 * secondMs,
  30 * secondMs,
  2 * minuteMs,
  10 * minuteMs,
  hourMs,
  6 * hourMs,
  24 * hourMs,
];

// Only ever later: a receiver that came down with many events in flight must not get them all back at one moment.
const jitter = 0.2;

/** How long to wait after `attempts` failed ones; undefined when no more are due. `random` is in [0, 1). */
export function retryDelayMs(attempts: number, random: number = Math.random()): number | undefined {
  const delayMs = retryDelaysMs[attempts - 1];
  return delayMs === undefined ? undefined : Math.round(delayMs * (1 + jitter * random));
}
