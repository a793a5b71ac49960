// A keyed mutex: work with the same key runs one after the other. Fetches of a mirror and compiles of a recipe use it.

/** `signal` ends the wait. Work that has begun has to check it itself. */
export type KeyedMutex = <T>(key: string, work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

export function createKeyedMutex(): KeyedMutex {
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
