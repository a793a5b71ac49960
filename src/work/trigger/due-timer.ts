// Runs the work of triggers when it is due, with one timer, and whenever a trigger changes.

import type { Live } from '../../live.ts';
import type { Log } from '../../log.ts';

const RETRY_MS = 5_000;

export type DueTimer = {
  /** Several calls in one turn of the event loop have the effect of one. */
  wake(): void;
  stop(): void;
};

/** `work` does what is due, and returns after how many milliseconds it must run again at the latest. */
export function startDueTimer({ live, log }: { live: Live; log: Log }, work: () => number): DueTimer {
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  let isStopped = false;

  function attempt(): number {
    try {
      return work();
    } catch (error) {
      // Most likely the disk is full.
      log.error('triggers could not be read', { cause: error });
      return RETRY_MS;
    }
  }

  function wake(): void {
    if (isStopped) return;
    immediate ??= setImmediate(() => {
      immediate = undefined;
      clearTimeout(timer);
      const sleepMs = attempt();
      if (sleepMs > 0) timer = setTimeout(wake, sleepMs);
      else wake();
    });
  }

  const unwatch = live.watch('triggers', wake);
  wake();
  return {
    wake,
    stop() {
      isStopped = true;
      unwatch();
      clearTimeout(timer);
      clearImmediate(immediate);
    },
  };
}
