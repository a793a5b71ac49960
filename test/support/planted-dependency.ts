// Compiled dependencies without Docker: their rows and files, as a compile leaves them.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Header, pack } from 'tar-stream';
import { captureTar } from '../../src/engine/archive/artifact-tar.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { createArtifact } from '../../src/store/artifacts.ts';
import { keepArchive } from '../../src/store/data/archive-file.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { archivePath, artifactPath, uploadDirectory } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { acceptArchive, createDependency, type Dependency } from '../../src/store/dependencies.ts';
import { moveDependency } from '../../src/store/transition.ts';

export const PREFIX = '/srv/dependency';

/** A new data directory with one account. */
export function makeAppliance(data: string, email = 'owner@example.com'): { db: Db; ownerId: bigint } {
  createDataDirectory(data);
  const db = openData(data, {});
  const { id } = createAccount(db, { email, kind: 'user', admin: true, passwordHash: null, apiKey: null });
  return { db, ownerId: id };
}

export type TarEntry = Partial<Header> & { name: string; content?: Buffer | string };

/** A tar as Docker makes it of a directory. */
export function tarStream(entries: Iterable<TarEntry>): Readable {
  const tar = pack();
  const filled = async function* () {
    const writing = (async () => {
      for (const { content = '', ...header } of entries) {
        const bytes = Buffer.from(content);
        const entry = tar.entry({ ...header, size: bytes.length });
        if (!entry.write(bytes)) await new Promise<void>(resolve => entry.once('drain', () => resolve()));
        entry.end(undefined);
      }
      tar.finalize();
    })();
    yield* tar as AsyncIterable<Buffer>;
    await writing;
  };
  return Readable.from(filled(), { objectMode: false });
}

const defaultEntries: TarEntry[] = [
  { name: 'volume/', type: 'directory', mode: 0o755 },
  { name: 'volume/bin', type: 'directory', mode: 0o755 },
  { name: 'volume/bin/greet', mode: 0o755, content: '#!/bin/sh\necho hello\n' },
  { name: 'volume/bin/hello', type: 'symlink', linkname: 'greet', mode: 0o777 },
  { name: 'volume/bin/hi', type: 'link', linkname: 'volume/bin/greet', mode: 0o755 },
];

export type Planted = {
  name: string;
  entries?: Iterable<TarEntry>;
  archive?: Buffer;
  related?: readonly Dependency[];
  fields?: Partial<Dependency>;
  owner?: { uid: number; gid: number };
};

export async function plantDependency(
  appliance: { db: Db; ownerId: bigint },
  data: string,
  { name, related = [], fields = {}, ...planted }: Planted,
): Promise<Dependency> {
  const { db, ownerId } = appliance;
  const prefix = fields.prefix ?? PREFIX;
  const file = join(uploadDirectory(data), 'planted');
  const captured = await captureTar(tarStream(planted.entries ?? defaultEntries), {
    file,
    prefix,
    owner: planted.owner ?? { uid: 1000, gid: 1000 },
    mayContinue: () => true,
  });
  await keepArchive(file, artifactPath(data, captured.hash));
  createArtifact(db, { ...captured, prefix });
  const archive = planted.archive ?? Buffer.from(`the source of ${name}`);
  const archiveHash = createHash('sha256').update(archive).digest('hex');
  writeFileSync(archivePath(data, archiveHash), archive);
  const { id } = createDependency(
    db,
    ownerId,
    {
      name,
      description: `About ${name}`,
      command: `make install PREFIX=${prefix}`,
      source: 'src',
      launchCommand: '',
      image: null,
      prefix,
      ...fields,
    },
    related.map(one => one.id),
  );
  acceptArchive(db, id, {
    archiveHash,
    archiveContentType: 'application/x-tar',
    archiveFileSize: archive.length,
  });
  moveDependency(db, id, 'start');
  return moveDependency(db, id, 'compile', {
    artifactHash: captured.hash,
    recipeHash: createHash('sha256').update(name).digest('hex'),
    relatedArtifacts: JSON.stringify(related.map(one => one.artifactHash)),
  }) as Dependency;
}
