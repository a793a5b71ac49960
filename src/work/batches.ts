// Runs large changes in small batches, after the request was answered, so that other requests are not delayed: enqueues and
// cancels many builds, and deletes rows that were purged or are past their retention. Rows record what is left to do, so the
// next server continues.

import type { Live } from '../live.ts';
import type { Log } from '../log.ts';
import { enqueueSomeBuilds } from '../store/builds.ts';
import { cancelSomeBuilds } from '../store/cancels.ts';
import { createPruner, type Retention } from '../store/cleanup/prune.ts';
import { purgeSomeRows } from '../store/cleanup/purge.ts';
import type { Db } from '../store/database/db.ts';

type BatchOptions = { db: Db; live: Live; log: Log; retention: Retention };

/** Requests that waited for the start of the server come first. */
const BEGIN_MS = 150;
const RETRY_MS = 5_000;
const PRUNE_EVERY_MS = 3600_000;

export function startBatches({ db, live, log, retention }: BatchOptions): { stop(): void } {
  const pruner = createPruner(retention);
  /** Each runs one batch, and returns false if nothing is left. Steps that users wait for come first. */
  const steps: readonly ((db: Db) => boolean)[] = [
    enqueueSomeBuilds,
    cancelSomeBuilds,
    purgeSomeRows,
    pruner.pruneSomeRows,
  ];
  let next: NodeJS.Timeout | undefined;
  let stopped = false;

  const run = async () => {
    await db.checkpoint;
    if (stopped) return;
    let restMs = RETRY_MS;
    try {
      const startedAt = performance.now();
      if (!steps.some(step => step(db))) {
        next = undefined;
        return;
      }
      const tookMs = performance.now() - startedAt;
      await db.sync();
      // Leave as much time for requests as the batch took.
      restMs = tookMs;
    } catch (error) {
      if (stopped) return;
      // Most likely the disk is full.
      log.error('batch failed', { cause: error });
    }
    // Not before: while the disk is synced, no other batch begins.
    next = undefined;
    schedule(restMs);
  };
  const schedule = (afterMs: number) => {
    if (!stopped) next ??= setTimeout(run, afterMs);
  };

  const unwatch = live.watch('batches', () => schedule(0));
  const pruning = setInterval(() => {
    pruner.begin();
    schedule(0);
  }, PRUNE_EVERY_MS);
  schedule(BEGIN_MS);
  return {
    stop() {
      stopped = true;
      unwatch();
      clearInterval(pruning);
      clearTimeout(next);
    },
  };
}
