// Slows guesses at a secret: tries under one key come one after another, each after failures a little later. Nobody is locked out.

import { setTimeout as wait } from 'node:timers/promises';

const FREE_FAILURES = 3;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 4_000;
const FORGET_MS = 15 * 60_000;
const MAX_KEYS = 10_000;

export type Slowdown = {
  /** Runs `attempt` in its turn; what it gives is undefined when the guess was wrong. */
  attempt<T>(key: string, attempt: () => Promise<T | undefined>): Promise<T | undefined>;
};

export function delayAfter(failures: number): number {
  if (failures < FREE_FAILURES) return 0;
  return Math.min(FIRST_DELAY_MS * 2 ** (failures - FREE_FAILURES), LONGEST_DELAY_MS);
}

export function createSlowdown(
  clock: { now(): number; wait(ms: number): Promise<unknown> } = { now: Date.now, wait: ms => wait(ms) },
): Slowdown {
  const known = new Map<string, { failures: number; lastAt: number; turn: Promise<unknown> }>();
  return {
    attempt(key, attempt) {
      const before = known.get(key);
      const isFresh = before !== undefined && clock.now() - before.lastAt < FORGET_MS;
      const entry = isFresh ? before : { failures: 0, lastAt: clock.now(), turn: Promise.resolve() };
      // The oldest are forgotten first: putting it anew makes this one the youngest.
      known.delete(key);
      known.set(key, entry);
      for (const oldest of known.keys()) {
        if (known.size <= MAX_KEYS) break;
        known.delete(oldest);
      }
      const turn = entry.turn.then(async () => {
        const delayMs = delayAfter(entry.failures);
        if (delayMs > 0) await clock.wait(delayMs);
        const result = await attempt();
        entry.failures = result === undefined ? entry.failures + 1 : 0;
        entry.lastAt = clock.now();
        return result;
      });
      entry.turn = turn.catch(() => {});
      return turn;
    },
  };
}
