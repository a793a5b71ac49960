// Writes the layers that are added to an image: the artifacts of dependencies, and the directories that a compile writes to.

import { Readable } from 'node:stream';
import { type Header, pack } from 'tar-stream';
import { MISSING_ARTIFACT } from '../../domain/container/artifact-mounts.ts';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { addEntry, insideOf, listArtifact, openArtifact, UNCHANGED_MTIME } from '../archive/artifact-tar.ts';
import { readEntries } from '../archive/tar-files.ts';
import { EngineRefused } from '../engine.ts';
import { type Directory, OPAQUE, type Place, pathsTo, WHITEOUT } from './image-paths.ts';

/** Change it when the bytes of a layer change, so that recorded digests are computed again. */
export const LAYER_FORMAT = 2;

export type ByteRange = { start: number; end: number };

/** What a layer is generated from. */
export type ArtifactSource = Pick<Place, 'root' | 'parents'> & {
  file: string;
  /** A directory that a compile may change. Everything in it has the time UNCHANGED_MTIME. */
  writable?: { root: string; owner: RunAs } | undefined;
};

const CHUNK_BYTES = 128 << 10;
/** Of everything that is not from an artifact. */
const MTIME = new Date(0);

/** The layer as a plain tar, or a range of it. The same artifact file always gives the same bytes. */
export function openArtifactLayer(source: ArtifactSource, range?: ByteRange): Readable {
  const tar = pack();
  tar.on('error', () => {});
  const place = (name: string) => [source.root, insideOf(name)].filter(part => part !== '').join('/');
  const { root, owner } = source.writable ?? {};
  const ownerOf = (path: string) => (path === root || path.startsWith(`${root}/`) ? owner : undefined);
  const copy = async () => {
    for (const parent of source.parents) await addDirectory(tar, parent);
    for await (const entry of readEntries(openArtifact(source.file))) {
      const header = layerHeader(entry.header, place, ownerOf);
      await addEntry(tar, header, entry as AsyncIterable<Buffer>);
    }
    tar.finalize();
  };
  copy().catch(error => tar.destroy(error as Error));
  const chunks = gather(tar as AsyncIterable<Buffer>, range);
  return Readable.from(chunks, { objectMode: false, highWaterMark: CHUNK_BYTES });
}

/** Without an owner, the user of a container reads it and does not change it, as with a read-only mount. */
function layerHeader(
  header: Header,
  place: (name: string) => string,
  ownerOf: (path: string) => RunAs | undefined,
) {
  const { name, type, mtime = MTIME, linkname } = header;
  const owner = ownerOf(place(name));
  if (name.slice(name.lastIndexOf('/') + 1).startsWith(WHITEOUT))
    throw new EngineRefused(
      `The artifact of a dependency contains ${JSON.stringify(name)}: Docker reserves names that begin with ${WHITEOUT}.`,
    );
  return {
    name: place(name),
    type,
    mode: owner ? (header.mode ?? 0o644) & 0o777 : readOnlyMode(header.mode ?? 0o644),
    uid: owner?.uid ?? 0,
    gid: owner?.gid ?? 0,
    size: header.size,
    mtime: owner ? UNCHANGED_MTIME : mtime,
    ...(type === 'link' && { linkname: place(linkname ?? '') }),
    ...(type === 'symlink' && { linkname: linkname ?? '' }),
  } as Header;
}

/** Others may do what the owner may, except for writing. */
function readOnlyMode(mode: number): number {
  const owner = (mode >> 6) & 0o7;
  const others = owner & 0o5;
  return (owner << 6) | (others << 3) | others;
}

/** Joins small chunks, because each becomes a write to the connection, and leaves out what is not in the range. */
async function* gather(chunks: AsyncIterable<Buffer>, range?: ByteRange): AsyncGenerator<Buffer> {
  let position = 0;
  let gathered: Buffer[] = [];
  let gatheredBytes = 0;
  for await (const chunk of chunks) {
    const wanted = range
      ? chunk.subarray(Math.max(range.start - position, 0), Math.max(range.end + 1 - position, 0))
      : chunk;
    position += chunk.length;
    if (wanted.length > 0) {
      gathered.push(wanted);
      gatheredBytes += wanted.length;
    }
    if (gatheredBytes >= CHUNK_BYTES) {
      yield joined(gathered);
      gathered = [];
      gatheredBytes = 0;
    }
    if (range && position > range.end) break;
  }
  if (gatheredBytes > 0) yield joined(gathered);
}

const joined = (chunks: Buffer[]) => (chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));

/** Hides what the image has at these places, as a mount would. */
export function openClearingLayer(places: readonly Place[]): Readable {
  const tar = pack();
  const directories = new Map<string, Directory>();
  for (const { parents } of places) for (const parent of parents) directories.set(parent.path, parent);
  for (const { root } of places) directories.set(root, { path: root, mode: 0o755, uid: 0, gid: 0 });
  const cleared = new Set(places.map(({ root }) => root));
  const write = async () => {
    for (const directory of sorted(directories)) {
      await addDirectory(tar, directory);
      if (!cleared.has(directory.path)) continue;
      const header = {
        name: `${directory.path}/${OPAQUE}`,
        type: 'file',
        mode: 0o444,
        size: 0,
        mtime: MTIME,
      };
      await addEntry(tar, header as Header, nothing());
    }
    tar.finalize();
  };
  write().catch(error => tar.destroy(error as Error));
  return Readable.from(gather(tar as AsyncIterable<Buffer>), { objectMode: false });
}

/**
 * Directories of the owner at a place: the place itself, and every directory below it that the artifacts show there. Those of
 * another prefix below it stay read-only, as if they were mounted. `artifacts` are in order of precedence.
 */
export function openWritableLayer(
  place: Place,
  owner: RunAs,
  artifacts: readonly ArtifactSource[],
): Readable {
  const tar = pack();
  tar.on('error', () => {});
  const write = async () => {
    for (const parent of place.parents) await addDirectory(tar, parent);
    for (const path of [place.root, ...(await directoriesBelow(place.root, artifacts))])
      await addDirectory(tar, { path, mode: 0o755, ...owner }, UNCHANGED_MTIME);
    tar.finalize();
  };
  write().catch(error => tar.destroy(error as Error));
  return Readable.from(gather(tar as AsyncIterable<Buffer>), { objectMode: false });
}

/** The directories that the union of the artifacts has below `root`. */
async function directoriesBelow(root: string, artifacts: readonly ArtifactSource[]): Promise<string[]> {
  const isBelow = (path: string) => path.startsWith(`${root}/`);
  const otherRoots = new Set(artifacts.map(artifact => artifact.root).filter(isBelow));
  const found = new Set<string>();
  /** What hides directories of later artifacts. */
  const files = new Set<string>();
  for (const artifact of artifacts) {
    const isVisible = (path: string) =>
      !pathsTo(path).some(above => otherRoots.has(above) || files.has(above));
    const ownFiles: string[] = [];
    await listArtifact(artifact.file, ({ path, type }) => {
      const name = `${artifact.root}/${path}`;
      if (path === '' || !isBelow(name)) return;
      if (type !== 'directory') ownFiles.push(name);
      else if (isVisible(name)) found.add(name);
    });
    for (const file of ownFiles) if (!found.has(file)) files.add(file);
  }
  return [...found].sort();
}

const addDirectory = (tar: ReturnType<typeof pack>, { path, ...header }: Directory, mtime = MTIME) =>
  addEntry(tar, { ...header, name: path, type: 'directory', mtime } as Header, nothing());

async function* nothing(): AsyncGenerator<Buffer> {}

const sorted = (directories: ReadonlyMap<string, Directory>) =>
  [...directories.values()].sort((a, b) => (a.path < b.path ? -1 : 1));

/** What reading an artifact throws when its file is missing or damaged. Other errors stay as they are. */
export function explainUnreadable(error: unknown): unknown {
  const { code = '', message = '' } = error as NodeJS.ErrnoException;
  const isUnreadable = code === 'ENOENT' || /^(ZSTD|Z)_/.test(code) || /header|end of data/i.test(message);
  return isUnreadable ? new EngineRefused(MISSING_ARTIFACT, { cause: error }) : error;
}
