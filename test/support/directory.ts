// Waits for changes in a directory.
import { readdirSync, watch } from 'node:fs';

const WAIT_MS = 60_000;

/** Resolves when the entries of the directory satisfy the condition, checked at once and after each change. */
export async function directoryUntil(
  directory: string,
  holds: (names: string[]) => boolean,
  otherwise: string,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const check = () => holds(readdirSync(directory)) && resolve();
  const watcher = watch(directory, check);
  const timer = setTimeout(() => reject(new Error(otherwise)), WAIT_MS);
  check();
  await promise.finally(() => {
    clearTimeout(timer);
    watcher.close();
  });
}
