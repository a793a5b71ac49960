// Long computations and long lists of rows leave time for requests: after a few milliseconds they wait for the next turn of
// the event loop.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Steps } from '../../domain/result/steps.ts';
import type { Db } from '../database/db.ts';

const TURN_MS = 1;
/** How long a batch of rows may take, without the commit. */
const BATCH_MS = 2;

/** Waits if the computation has run for long enough. `if (pace.isDue()) await pace.wait();` costs little in a loop. */
export type Pace = {
  isDue(): boolean;
  wait(): Promise<void>;
  run<Result>(steps: Steps<Result>): Promise<Result>;
};

export function createPace(): Pace {
  let endsAt = performance.now() + TURN_MS;
  const isDue = () => performance.now() >= endsAt;
  const wait = async () => {
    await nextTurn();
    endsAt = performance.now() + TURN_MS;
  };
  return {
    isDue,
    wait,
    async run(steps) {
      for (;;) {
        const { done, value } = steps.next();
        if (isDue()) await wait();
        if (done) return value;
      }
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
