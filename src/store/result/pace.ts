// Long computations leave time for requests: after a few milliseconds they wait for the next turn of the event loop.

import { setImmediate as nextTurn } from 'node:timers/promises';

const TURN_MS = 4;

/** Waits if the computation has run for long enough. `if (pace.isDue()) await pace.wait();` costs little in a loop. */
export type Pace = { isDue(): boolean; wait(): Promise<void> };

export function createPace(): Pace {
  let endsAt = performance.now() + TURN_MS;
  return {
    isDue: () => performance.now() >= endsAt,
    async wait() {
      await nextTurn();
      endsAt = performance.now() + TURN_MS;
    },
  };
}
