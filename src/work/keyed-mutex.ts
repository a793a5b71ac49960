// A keyed mutex: a mirror is fetched into by nobody else meanwhile.

/** `signal` ends the waiting; work that has begun looks at it by itself. */
export type Turns = <T>(key: string, work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

export function createTurns(): Turns {
  const last = new Map<string, Promise<unknown>>();
  return async (key, work, signal) => {
    const before = last.get(key) ?? Promise.resolve();
    let hasBegun = false;
    const begin = () => {
      signal?.throwIfAborted();
      hasBegun = true;
      return work();
    };
    const mine = before.then(begin, begin);
    last.set(key, mine);
    const leave = () => {
      if (last.get(key) === mine) last.delete(key);
    };
    mine.then(leave, leave);
    if (!signal) return mine;
    const aborted = Promise.withResolvers<never>();
    const giveUp = () => hasBegun || aborted.reject(signal.reason);
    signal.addEventListener('abort', giveUp);
    try {
      return await Promise.race([mine, aborted.promise]);
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  };
}
