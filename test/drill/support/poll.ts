// Polling for conditions that have no event.
import { setTimeout as delay } from 'node:timers/promises';

/** Polls until the condition holds or the time is over. Returns what it found last. */
export async function pollUntil<T>(
  forMs: number,
  find: () => Promise<T> | T,
  holds: (found: T) => boolean,
  everyMs = 200,
): Promise<T> {
  const until = performance.now() + forMs;
  for (;;) {
    const found = await find();
    if (holds(found) || performance.now() > until) return found;
    await delay(everyMs);
  }
}
