// Computes the SHA-256 of large artifacts after the verdict, one at a time: of a build when it has finished, and of builds
// whose server was killed before that.

import { hashContent } from '../../engine/archive/zip-content.ts';
import type { Log } from '../../log.ts';
import { buildFilesPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { listUnhashedArtifacts, recordArtifactHash } from '../../store/result/build-artifacts.ts';

export type ArtifactHashes = {
  /** Computes those of a finished build, after those that wait already. */
  add(buildId: bigint): void;
  /** Computes all that are missing, in the background. */
  repair(): void;
  /** Resolves when nothing is left to do. */
  idle(): Promise<void>;
};

export function createArtifactHashes(options: {
  db: Db;
  log: Log;
  dataDirectory: string;
  stopping: AbortSignal;
}): ArtifactHashes {
  const { db, log, dataDirectory, stopping } = options;
  let busy: Promise<void> = Promise.resolve();

  async function hashAll(buildId?: bigint): Promise<void> {
    if (stopping.aborted) return;
    for (const artifact of listUnhashedArtifacts(db, buildId))
      try {
        const file = buildFilesPath(dataDirectory, artifact.buildId);
        recordArtifactHash(db, artifact.id, await hashContent(file, artifact, stopping));
      } catch (error) {
        if (stopping.aborted) return;
        // Its project was deleted, or a backup without artifacts was restored.
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
        log.warn('SHA-256 of an artifact could not be computed', {
          build: artifact.buildId,
          path: artifact.path,
          cause: error,
        });
      }
  }

  const queue = (buildId?: bigint) => {
    busy = busy.then(() => hashAll(buildId));
  };
  return {
    add: queue,
    repair: () => queue(),
    async idle() {
      for (let last: unknown; last !== busy; ) {
        last = busy;
        await busy;
      }
    },
  };
}
