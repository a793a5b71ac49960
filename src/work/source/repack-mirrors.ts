// Repacks mirrors in the background after fetches, one at a time. A repack that fails is logged, and retried hours later.

import { needsRepack, repackMirror } from '../../engine/git/mirror.ts';
import type { Log } from '../../log.ts';

export type Repacks = {
  /** Repacks the mirror later, if it needs it. */
  schedule(mirror: string): void;
  /** Stops a repack of the mirror. Resolves when its process has ended. */
  stop(mirror: string): Promise<void>;
  /** Resolves when no repack runs. */
  idle(): Promise<void>;
};

/** A failed repack would probably fail again after the next fetch. */
const RETRY_AFTER_MS = 6 * 3_600_000;

export function createRepacks(options: { log: Log; stopping: AbortSignal }): Repacks {
  const { log, stopping } = options;
  const scheduled = new Set<string>();
  const failedAt = new Map<string, number>();
  let current: { mirror: string; abort: AbortController; ended: Promise<void> } | undefined;
  let worker: Promise<void> | undefined;

  const repack = async (mirror: string) => {
    const abort = new AbortController();
    const startedAt = performance.now();
    const ended = repackMirror(mirror, AbortSignal.any([stopping, abort.signal])).then(
      () => log.debug('mirror repacked', { mirror, ms: Math.round(performance.now() - startedAt) }),
      cause => {
        if (stopping.aborted || abort.signal.aborted) return;
        failedAt.set(mirror, performance.now());
        log.warn('mirror could not be repacked', { mirror, cause });
      },
    );
    current = { mirror, abort, ended };
    await ended;
    current = undefined;
  };
  const work = async () => {
    for (const mirror of scheduled) {
      scheduled.delete(mirror);
      if (stopping.aborted) return;
      if (await needsRepack(mirror)) await repack(mirror);
    }
  };

  return {
    schedule(mirror) {
      const failed = failedAt.get(mirror);
      if (failed !== undefined && performance.now() - failed < RETRY_AFTER_MS) return;
      failedAt.delete(mirror);
      scheduled.add(mirror);
      worker ??= work()
        .catch(cause => log.warn('mirrors could not be repacked', { cause }))
        .finally(() => {
          worker = undefined;
        });
    },
    async stop(mirror) {
      scheduled.delete(mirror);
      if (current?.mirror !== mirror) return;
      current.abort.abort();
      await current.ended;
    },
    async idle() {
      await worker;
    },
  };
}
