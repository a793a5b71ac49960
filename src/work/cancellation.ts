// Aborts work when its rows are canceled or deleted, because nobody needs the result any more.

import type { Live } from '../live.ts';

type Cancellation = {
  /** Aborted when the server stops or the work is canceled. */
  signal: AbortSignal;
  isCanceled(): boolean;
  stopWatching(): void;
};

/** Each check says whether the work is still needed. It runs when its topic is published. */
export function watchCancellation(
  { live, stopping }: { live: Live; stopping: AbortSignal },
  checks: readonly [topic: string, isNeeded: () => boolean][],
): Cancellation {
  const canceled = new AbortController();
  const watches = checks.map(([topic, isNeeded]) => {
    const check = () => {
      if (!isNeeded()) canceled.abort();
    };
    const unwatch = live.watch(topic, check);
    // The row may have changed before the watch began.
    check();
    return unwatch;
  });
  return {
    signal: AbortSignal.any([stopping, canceled.signal]),
    isCanceled: () => canceled.signal.aborted,
    stopWatching: () => {
      for (const unwatch of watches) unwatch();
    },
  };
}
