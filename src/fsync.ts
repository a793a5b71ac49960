// Syncs directories. A file that is safe on disk can still lose its name in a power failure if its directory is not synced.

import { open } from 'node:fs/promises';

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  await directory.sync().finally(() => directory.close());
}
