// Carries out, in batches, what was answered already and would keep everybody waiting if it were done at once: the builds
// of a request with many suites, the cancel of many builds, the rows of what was deleted. Rows say what is left to do, so
// that the next server goes on where this one ended.

import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import { beginSomeBuilds } from '../store/builds.ts';
import { cancelSomeBuilds } from '../store/cancels.ts';
import type { Db } from '../store/db.ts';
import { purgeSomeRows } from '../store/purge.ts';

export type BatchParts = { db: Db; live: Live; log: Log };

/** Each does one batch of what is left, and is false when nothing is. In order: no build may start that is to be canceled. */
const steps: readonly ((db: Db) => boolean)[] = [beginSomeBuilds, cancelSomeBuilds, purgeSomeRows];
const RETRY_MS = 5_000;

export function startBatches({ db, live, log }: BatchParts): { stop(): void } {
  let next: NodeJS.Timeout | undefined;
  let stopped = false;

  const run = () => {
    next = undefined;
    const startedAt = performance.now();
    try {
      // Others are served for as long as a batch took.
      if (steps.some(step => step(db))) schedule(performance.now() - startedAt);
    } catch (error) {
      // A full disk, most likely.
      log.error('batch could not be carried out', { cause: error });
      schedule(RETRY_MS);
    }
  };
  const schedule = (afterMs: number) => {
    if (!stopped) next ??= setTimeout(run, afterMs);
  };

  const unwatch = live.watch('batches', () => schedule(0));
  schedule(0);
  return {
    stop() {
      stopped = true;
      unwatch();
      clearTimeout(next);
    },
  };
}
