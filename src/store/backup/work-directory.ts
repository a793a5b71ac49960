// A private directory for work that becomes visible only when it is complete, beside where its result goes. A process that
// is killed leaves its directory behind: the next one for the same name removes it.

import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DataError, lockDataDirectory } from '../data/data.ts';

/** Runs `use` with the directory, and removes it afterwards. */
export async function inWorkDirectory<T>(
  parent: string,
  prefix: string,
  use: (path: string) => Promise<T>,
): Promise<T> {
  for (const name of await readdir(parent))
    if (name.startsWith(prefix)) await removeAbandoned(join(parent, name));
  const path = await mkdtemp(join(parent, prefix));
  // Held as a data directory is: the next process sees whether this one is still alive.
  const hold = lockDataDirectory(path);
  try {
    return await use(path);
  } finally {
    hold.release();
    await rm(path, { recursive: true, force: true });
  }
}

/** Removes the directory, unless the process that made it is alive. */
export async function removeAbandoned(path: string): Promise<void> {
  try {
    lockDataDirectory(path).release();
  } catch (error) {
    if (error instanceof DataError) return;
    throw error;
  }
  await rm(path, { recursive: true, force: true });
}
