// The schedule on which a failed webhook is retried.

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

/** The delay after the first failed attempt, after the second, and so on. After the last one the delivery fails. */
export const retryDelaysMs: readonly number[] = [
  5 * secondMs,
  30 * secondMs,
  2 * minuteMs,
  10 * minuteMs,
  hourMs,
  6 * hourMs,
  24 * hourMs,
];

// Spreads retries out: a receiver that failed with many events in flight must not get all of them back at once.
const jitter = 0.2;

/** The delay after `attempts` failed attempts, or undefined after the last. `random` is in [0, 1). */
export function retryDelayMs(attempts: number, random: number = Math.random()): number | undefined {
  const delayMs = retryDelaysMs[attempts - 1];
  return delayMs === undefined ? undefined : Math.round(delayMs * (1 + jitter * random));
}
