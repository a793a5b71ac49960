// Opens what is in the artifacts of dependencies: the index of one, made if it is missing, its files, and all of it as a tar.

import type { Readable } from 'node:stream';
import type { ArtifactEntry } from '../domain/artifact-entry.ts';
import { listArtifact, openArtifactRange, openArtifactTar } from '../engine/archive/artifact-tar.ts';
import type { Log } from '../log.ts';
import { type ArtifactIndex, createIndex, openIndex } from '../store/data/artifact-index.ts';
import { artifactIndexPath, artifactPath } from '../store/data/paths.ts';

/** How long a caller waits for an index. It is made in any case. */
const WAIT_MS = 10_000;

export type ArtifactFiles = {
  /** Undefined while the index of a large artifact is being made. Rejects with ENOENT if the artifact is missing. */
  openIndex(hash: string): Promise<ArtifactIndex | undefined>;
  /** The content of a file, or a range of it. */
  openFile(hash: string, entry: ArtifactEntry, range?: { start: number; end: number }): Readable;
  openTar(artifact: { hash: string; prefix: string }): Readable;
};

export function createArtifactFiles(options: {
  dataDirectory: string;
  log: Log;
  stopping: AbortSignal;
  waitMs?: number;
}): ArtifactFiles {
  const { dataDirectory, log, stopping, waitMs = WAIT_MS } = options;
  const making = new Map<string, Promise<void>>();
  /** One at a time: each needs a processor. */
  let busy: Promise<unknown> = Promise.resolve();

  async function make(hash: string): Promise<void> {
    stopping.throwIfAborted();
    const path = artifactIndexPath(dataDirectory, hash);
    using index = createIndex(`${path}.part`);
    await listArtifact(artifactPath(dataDirectory, hash), index.add, stopping);
    await index.finish(path);
  }

  function makeOnce(hash: string): Promise<void> {
    const running = making.get(hash);
    if (running) return running;
    const work = busy.then(() => make(hash));
    busy = work.catch(error => {
      if (!stopping.aborted) log.warn('index of an artifact could not be made', { hash, cause: error });
    });
    making.set(hash, work);
    const forget = () => making.delete(hash);
    work.then(forget, forget);
    return work;
  }

  return {
    async openIndex(hash) {
      const path = artifactIndexPath(dataDirectory, hash);
      const found = openIndex(path);
      if (found) return found;
      const late = Promise.withResolvers<void>();
      const timer = setTimeout(late.resolve, waitMs);
      try {
        await Promise.race([makeOnce(hash), late.promise]);
      } finally {
        clearTimeout(timer);
      }
      return openIndex(path);
    },
    openFile: (hash, { offset, sizeBytes }, { start, end } = { start: 0, end: sizeBytes - 1 }) =>
      openArtifactRange(artifactPath(dataDirectory, hash), { start: offset + start, end: offset + end }),
    openTar: ({ hash, prefix }) => openArtifactTar(artifactPath(dataDirectory, hash), prefix),
  };
}
