// Work that is ended as soon as nobody wants its result any more: its rows were canceled or deleted.

import type { Live } from '../live.ts';

export type Wanted = {
  /** Aborted when the server stops, or when the work is not wanted any more. */
  signal: AbortSignal;
  isWanted(): boolean;
  end(): void;
};

/** `looks` says for each topic whether, after a change of it, the work is still wanted. */
export function whileWanted(
  { live, stopping }: { live: Live; stopping: AbortSignal },
  looks: readonly [topic: string, isWanted: () => boolean][],
): Wanted {
  const unwanted = new AbortController();
  const watches = looks.map(([topic, isWanted]) => {
    const look = () => {
      if (!isWanted()) unwanted.abort();
    };
    const unwatch = live.watch(topic, look);
    // It may have changed before anybody watched.
    look();
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
