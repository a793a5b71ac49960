// How much disk space there is: where DATA is, and where Docker keeps containers and volumes, which may be another disk.

import { statfsSync } from 'node:fs';

export type FreeSpace = { dataBytes: number; dockerBytes: number };

export type FileSystems = {
  free(): FreeSpace;
  /** The size of the file system that holds Docker's volumes. */
  dockerTotalBytes(): number;
  /** Where Docker keeps its volumes; asked of an engine that answers. */
  setDockerRoot(directory: string): void;
};

/** Until Docker's directory is known, and where it cannot be seen from here, it counts as being on DATA's disk. */
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
        // Hidden from this user, or on another host.
        dockerRoot = dataDirectory;
      }
    },
  };
}
