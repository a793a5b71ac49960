// Aborts work as soon as its result is not wanted any more, because its rows were canceled or deleted.

import type { Live } from '../live.ts';

export type Wanted = {
  /** Aborted when the server stops, or when the work is not wanted any more. */
  signal: AbortSignal;
  isWanted(): boolean;
  end(): void;
};

/** `checks` has, for each topic, whether the work is still wanted after a change. */
export function whileWanted(
  { live, stopping }: { live: Live; stopping: AbortSignal },
  checks: readonly [topic: string, isWanted: () => boolean][],
): Wanted {
  const unwanted = new AbortController();
  const watches = checks.map(([topic, isWanted]) => {
    const check = () => {
      if (!isWanted()) unwanted.abort();
    };
    const unwatch = live.watch(topic, check);
    // The row may have changed before the watch began.
    check();
    return unwatch;
  });
  return {
    signal: AbortSignal.any([stopping, unwanted.signal]),
    isWanted: () => !unwanted.signal.aborted,
    end: () => {
      for (const unwatch of watches) unwatch();
    },
  };
}
