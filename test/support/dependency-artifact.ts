// Stores the artifact of a dependency as a compile does, from entries that a test chooses.
import { mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Header, pack } from 'tar-stream';
import { captureTar } from '../../src/engine/archive/artifact-tar.ts';
import { createArtifact } from '../../src/store/artifacts.ts';
import { artifactPath } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { moveDependency } from '../../src/store/transition.ts';
import { startCompile } from '../api/states.ts';

export type ArtifactTree = (Partial<Omit<Header, 'name'>> & { path: string; content?: string | Buffer })[];

/** Docker's tar of a volume: names begin with the name of its directory. */
export function tarOfVolume(tree: Iterable<ArtifactTree[number]>): Readable {
  const tar = pack();
  const write = async () => {
    for (const { path, content = '', ...header } of tree) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const name = `volume/${path}`;
      const linkname = header.type === 'link' ? `volume/${header.linkname}` : header.linkname;
      tar.entry({ ...header, name, ...(linkname && { linkname }) }, content, error =>
        error ? reject(error) : resolve(),
      );
      await promise;
    }
    tar.finalize();
  };
  write().catch(error => tar.destroy(error as Error));
  return Readable.from(tar as AsyncIterable<Buffer>, { objectMode: false });
}

/** Stores the artifact, and makes it the result of a compile of the dependency. Returns its hash. */
export async function storeArtifact(
  { db, data }: { db: Db; data: string },
  dependencyId: bigint,
  tree: Iterable<ArtifactTree[number]>,
  prefix = '/srv/dependency',
): Promise<string> {
  const directory = mkdtempSync(join(data, 'tmp', 'artifact-'));
  const file = join(directory, 'file');
  const captured = await captureTar(tarOfVolume(tree), {
    file,
    prefix,
    owner: { uid: 1000, gid: 1000 },
    mayContinue: () => true,
  });
  renameSync(file, artifactPath(data, captured.hash));
  rmSync(directory, { recursive: true });
  db.write(() => {
    createArtifact(db, { ...captured, prefix });
    startCompile(db, dependencyId);
    moveDependency(db, dependencyId, 'compile', { artifactHash: captured.hash });
  });
  return captured.hash;
}
