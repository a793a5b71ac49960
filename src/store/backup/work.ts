// A private directory for work that becomes visible only when it is complete, beside where its result goes. One that
// was killed leaves its directory behind: the next one for the same name takes it away.

import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DataError, lockDataDirectory } from '../data/data.ts';

export type WorkPlace = { path: string; clear(): Promise<void> };

export async function openWorkPlace(directory: string, prefix: string): Promise<WorkPlace> {
  await sweep(directory, prefix);
  const path = await mkdtemp(join(directory, prefix));
  // Held as a data directory is: whoever finds it knows whether its owner still lives.
  const hold = lockDataDirectory(path);
  return {
    path,
    async clear() {
      hold.release();
      await rm(path, { recursive: true, force: true });
    },
  };
}

async function sweep(directory: string, prefix: string): Promise<void> {
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    if (!name.startsWith(prefix)) continue;
    try {
      lockDataDirectory(path).release();
    } catch (cause) {
      if (cause instanceof DataError) continue;
      throw cause;
    }
    await rm(path, { recursive: true, force: true });
  }
}
