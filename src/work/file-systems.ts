// Reads the free disk space of the data directory and of Docker's directory, which may be on another disk.

import { statfsSync } from 'node:fs';

export type FreeSpace = { dataBytes: number; dockerBytes: number };

type FileSystems = {
  free(): FreeSpace;
  /** The size of the file system that holds Docker's volumes. */
  dockerTotalBytes(): number;
  /** Where Docker keeps its volumes. */
  setDockerRoot(directory: string): void;
};

/** While Docker's directory is unknown or unreadable, it counts as being on the disk of the data directory. */
export function createFileSystems(dataDirectory: string): FileSystems {
  let dockerRoot = dataDirectory;
  const freeIn = (directory: string) => {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  };
  return {
    free: () => ({ dataBytes: freeIn(dataDirectory), dockerBytes: freeIn(dockerRoot) }),
    dockerTotalBytes: () => {
      const { blocks, bsize } = statfsSync(dockerRoot);
      return blocks * bsize;
    },
    setDockerRoot(directory) {
      try {
        statfsSync(directory);
        dockerRoot = directory;
      } catch {
        // This user cannot read it, or it is on another host.
        dockerRoot = dataDirectory;
      }
    },
  };
}
