// Waits for what comes into a directory, or leaves it, or is written to a file there.
import { readdirSync, watch } from 'node:fs';

const WAIT_MS = 60_000;

/** Resolves when what is in the directory is as it should be: looks once it listens, and after each change. */
export async function directoryUntil(
  directory: string,
  holds: (names: string[]) => boolean,
  otherwise: string,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const look = () => holds(readdirSync(directory)) && resolve();
  const watcher = watch(directory, look);
  const late = setTimeout(() => reject(new Error(otherwise)), WAIT_MS);
  look();
  await promise.finally(() => {
    clearTimeout(late);
    watcher.close();
  });
}
