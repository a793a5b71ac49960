// Moves the parts of DATA that nodes of a swarm mount to the shared directory, and leaves links in their place.

import {
  chmodSync,
  cpSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { sharedPaths } from '../../domain/swarm.ts';

const LINKED = ['jobs', 'mirrors', 'snapshots'] as const;

/** Idempotent, also if it was interrupted. Throws if the shared directory cannot be written to. */
export function linkSharedDirectory(data: string, shared: string): void {
  const paths = sharedPaths(shared);
  mkdirSync(shared, { recursive: true });
  for (const path of [shared, ...Object.values(paths)]) {
    mkdirSync(path, { recursive: true });
    // Other users of a node cannot list them.
    chmodSync(path, 0o711);
  }
  for (const name of LINKED) {
    const inData = join(data, name);
    const found = lstatSync(inData, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) {
      if (readlinkSync(inData) === paths[name]) continue;
      rmSync(inData);
    } else if (found) {
      for (const entry of readdirSync(inData)) move(join(inData, entry), join(paths[name], entry));
      rmSync(inData, { recursive: true });
    }
    symlinkSync(paths[name], inData);
  }
}

function move(from: string, to: string): void {
  rmSync(to, { recursive: true, force: true });
  try {
    renameSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
    cpSync(from, to, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
    rmSync(from, { recursive: true });
  }
}
