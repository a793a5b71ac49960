// Carries out, in batches, what was answered already and would keep everybody waiting if it were done at once: the builds
// of a request with many suites, the cancel of many builds, the rows of what was deleted or is past its retention. Rows
// say what is left to do, so that the next server goes on where this one ended.

import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import { enqueueSomeBuilds } from '../store/builds.ts';
import { cancelSomeBuilds } from '../store/cancels.ts';
import { createPruner, type Retention } from '../store/cleanup/prune.ts';
import { purgeSomeRows } from '../store/cleanup/purge.ts';
import type { Db } from '../store/database/db.ts';

export type BatchOptions = { db: Db; live: Live; log: Log; retention: Retention };

const RETRY_MS = 5_000;
const PRUNE_EVERY_MS = 3600_000;

export function startBatches({ db, live, log, retention }: BatchOptions): { stop(): void } {
  const pruner = createPruner(retention);
  /** Each does one batch of what is left, and is false when nothing is. What somebody waits for comes first. */
  const steps: readonly ((db: Db) => boolean)[] = [
    enqueueSomeBuilds,
    cancelSomeBuilds,
    purgeSomeRows,
    pruner.pruneSomeRows,
  ];
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
  const pruning = setInterval(() => {
    pruner.begin();
    schedule(0);
  }, PRUNE_EVERY_MS);
  schedule(0);
  return {
    stop() {
      stopped = true;
      unwatch();
      clearInterval(pruning);
      clearTimeout(next);
    },
  };
}
