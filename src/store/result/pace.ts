// Long computations and long lists of rows leave time for requests: after a few milliseconds they wait for the next turn of
// the event loop.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Db } from '../database/db.ts';

const TURN_MS = 4;
/** How long a batch of rows may take, without the commit. */
const BATCH_MS = 3;

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

/** Writes each item, in transactions of a few milliseconds. */
export async function writeInBatches<Item>(
  db: Db,
  items: readonly Item[],
  write: (item: Item) => void,
): Promise<void> {
  let at = 0;
  while (at < items.length) {
    await db.checkpoint;
    db.write(() => {
      const endsAt = performance.now() + BATCH_MS;
      do {
        write(items[at] as Item);
        at += 1;
      } while (at < items.length && performance.now() < endsAt);
    });
    await nextTurn();
  }
}
