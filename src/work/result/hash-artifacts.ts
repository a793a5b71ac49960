// Computes the SHA-256 of large artifacts after the verdict, one at a time: of a build when it has finished, and of builds
// whose server was killed before that.

import { hashContent } from '../../engine/archive/zip-content.ts';
import type { Log } from '../../log.ts';
import { buildFilesPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { listUnhashedArtifacts, recordArtifactHash } from '../../store/result/build-artifacts.ts';
import { createInTurn, type InTurn } from './in-turn.ts';

export type ArtifactHashes = Pick<InTurn, 'idle'> & {
  /** Computes those of a finished build, after those that wait already. */
  add(buildId: bigint): void;
  /** Computes all that are missing, in the background. */
  repair(): void;
};

export function createArtifactHashes(options: {
  db: Db;
  log: Log;
  dataDirectory: string;
  stopping: AbortSignal;
}): ArtifactHashes {
  const { db, log, dataDirectory, stopping } = options;
  const { run, idle } = createInTurn();

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

  const start = (buildId?: bigint) =>
    void run(() =>
      hashAll(buildId).catch(error =>
        log.warn('artifacts without SHA-256 could not be listed', { cause: error }),
      ),
    );
  return {
    add: start,
    repair: () => start(),
    idle,
  };
}
