// Waiting for what no event tells of.
import { setTimeout as delay } from 'node:timers/promises';

/** Looks until it holds, or the time is over; what it found last. There is no event for what is looked at here. */
export async function lookUntil<T>(
  forMs: number,
  look: () => Promise<T> | T,
  holds: (found: T) => boolean,
  everyMs = 200,
): Promise<T> {
  const until = performance.now() + forMs;
  for (;;) {
    const found = await look();
    if (holds(found) || performance.now() > until) return found;
    await delay(everyMs);
  }
}
