// A keyed mutex: one holder of a key at a time, in the order in which they asked.

/** Resolves with the lock, which is held until it is disposed of. Rejects if `signal` is aborted before. */
export type KeyedMutex = (key: string, signal: AbortSignal) => Promise<Disposable>;

export function createKeyedMutex(): KeyedMutex {
  const last = new Map<string, Promise<void>>();
  return async (key, signal) => {
    const before = last.get(key);
    const { promise, resolve: release } = Promise.withResolvers<void>();
    const mine = (before ?? Promise.resolve()).then(() => promise);
    last.set(key, mine);
    mine.then(() => last.get(key) === mine && last.delete(key));
    const aborted = Promise.withResolvers<never>();
    const giveUp = () => aborted.reject(signal.reason);
    signal.addEventListener('abort', giveUp);
    try {
      signal.throwIfAborted();
      await Promise.race([before, aborted.promise]);
      signal.throwIfAborted();
    } catch (error) {
      release();
      throw error;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
    return { [Symbol.dispose]: release };
  };
}
