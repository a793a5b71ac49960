// Makes names lasting: a file that is safe on disk can still lose its name when the power goes.

import { open } from 'node:fs/promises';

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  await directory.sync().finally(() => directory.close());
}
