// A keyed mutex: each key has one holder at a time, first come, first served.

/** Resolves with a lock that is held until it is disposed. Rejects if `signal` is aborted before that. */
export type KeyedMutex = (key: string, signal: AbortSignal) => Promise<Disposable>;

export function createKeyedMutex(): KeyedMutex {
  const last = new Map<string, Promise<void>>();
  return async (key, signal) => {
    const previous = last.get(key);
    const { promise, resolve: release } = Promise.withResolvers<void>();
    const mine = (previous ?? Promise.resolve()).then(() => promise);
    last.set(key, mine);
    mine.then(() => last.get(key) === mine && last.delete(key));
    const aborted = Promise.withResolvers<never>();
    const onAbort = () => aborted.reject(signal.reason);
    signal.addEventListener('abort', onAbort);
    try {
      signal.throwIfAborted();
      await Promise.race([previous, aborted.promise]);
      signal.throwIfAborted();
    } catch (error) {
      release();
      throw error;
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
    return { [Symbol.dispose]: release };
  };
}
