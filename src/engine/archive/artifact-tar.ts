// Writes and reads the tars of artifacts: the content of a volume in a canonical form, with a hash that does not depend on
// times and owners.

import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { extract, type Header, type Pack, pack } from 'tar-stream';
import type { ArtifactEntryType, ArtifactTarEntry } from '../../domain/artifact-entry.ts';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { VOLUME_DIRECTORY } from '../engine.ts';
import { readEntries } from './tar-files.ts';

export type Captured = {
  hash: string;
  /** The size of all files, unpacked. */
  sizeBytes: number;
  /** Everything except directories. 0 means an empty prefix. */
  files: number;
};

/** Thrown when `mayContinue` returns false. */
export class CaptureStopped extends Error {}

export const KEPT_TYPES = new Set(['file', 'link', 'symlink', 'directory', 'fifo']);
const CHECK_EVERY_BYTES = 8 << 20;
const PLAIN_CHUNK_BYTES = 256 << 10;

/**
 * Writes Docker's tar of a directory, which is sorted by name, to `file` and syncs it. All entries get the given owner:
 * Docker reports IDs of the host, which an engine with user namespaces does not accept back.
 */
/** Marks what a compile found in its prefix. No program sets this time by accident. */
export const UNCHANGED_MTIME = new Date('1997-03-11T09:26:53Z');

export async function captureTar(
  source: Readable,
  target: {
    file: string;
    prefix: string;
    owner: RunAs;
    mayContinue(sizeBytes: number): boolean;
    /** Whether the source is a stored tar, to change its owner. */
    isStored?: boolean;
    /** Leaves out what has the time UNCHANGED_MTIME. */
    isOnlyChanged?: boolean;
    onEntry?(entry: ArtifactTarEntry): void;
  },
): Promise<Captured> {
  const nameOf = target.isStored ? withoutSlash : renamed;
  const hash = createHash('sha256');
  const tar = pack();
  const writtenBytes = countBytes(tar);
  const entries = extract();
  // The promises below report errors. An unhandled error event would end the server.
  for (const stream of [tar, entries]) stream.on('error', () => {});
  const reading = pipeline(source, entries as unknown as NodeJS.WritableStream);
  reading.catch(error => entries.destroy(error as Error));
  const writing = pipeline(
    Readable.from(tar as AsyncIterable<Buffer>, { objectMode: false, highWaterMark: 1 << 20 }),
    createZstdCompress({
      params: {
        [constants.ZSTD_c_compressionLevel]: 1,
        [constants.ZSTD_c_checksumFlag]: 1,
      },
    }),
    createWriteStream(target.file, { flags: 'w', mode: 0o600, flush: true }),
  );
  writing.catch(error => entries.destroy(error as Error));
  let sizeBytes = 0;
  let files = 0;
  let checkedBytes = 0;
  hash.update(prefixLine(target.prefix));
  try {
    for await (const entry of entries) {
      const header = canonical(entry.header, target.owner, nameOf);
      const isUnchanged = target.isOnlyChanged && entry.header.mtime?.getTime() === UNCHANGED_MTIME.getTime();
      if (!header || isUnchanged) {
        entry.resume();
        continue;
      }
      if (header.type !== 'directory') files += 1;
      hash.update(identityLine(header));
      // A sparse file uses no disk space in the volume, but its full size when it is unpacked.
      if (header.size > CHECK_EVERY_BYTES && !target.mayContinue(sizeBytes + header.size))
        throw new CaptureStopped('stopped');
      await addEntry(tar, header, entry as AsyncIterable<Buffer>, chunk => {
        hash.update(chunk);
        sizeBytes += chunk.length;
        if (sizeBytes - checkedBytes <= CHECK_EVERY_BYTES) return;
        checkedBytes = sizeBytes;
        if (!target.mayContinue(sizeBytes)) throw new CaptureStopped('stopped');
      });
      const described = describe({ ...header, byteOffset: writtenBytes() - paddedSize(header.size) });
      if (described) target.onEntry?.(described);
    }
    tar.finalize();
    await Promise.all([reading, writing]);
  } catch (error) {
    tar.destroy();
    source.destroy();
    await Promise.allSettled([reading, writing]);
    throw error;
  }
  return { hash: hash.digest('hex'), sizeBytes, files };
}

/**
 * Resolves when the entry is in the tar completely. Small entries would otherwise gather in memory, because each accepts its
 * content at once.
 */
export async function addEntry(
  tar: Pack,
  header: Parameters<Pack['entry']>[0],
  content: AsyncIterable<Buffer>,
  onChunk: (chunk: Buffer) => void = () => {},
): Promise<void> {
  const added = Promise.withResolvers<void>();
  added.promise.catch(() => {});
  const sink = tar.entry(header, error => (error ? added.reject(error) : added.resolve()));
  for await (const chunk of content) {
    onChunk(chunk);
    await writeEntry(sink, chunk);
  }
  sink.end(undefined);
  await added.promise;
}

/** Returns a function with the number of bytes that were written to the tar. */
function countBytes(tar: Pack): () => number {
  let bytes = 0;
  const push = tar.push.bind(tar);
  tar.push = (chunk: Buffer | null) => {
    bytes += chunk?.length ?? 0;
    return push(chunk);
  };
  return () => bytes;
}

const BLOCK_BYTES = 512;
const paddedSize = (bytes: number) => Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;

/** Waits until the tar accepts more. Rejects if the tar is destroyed meanwhile, which emits no other event. */
export async function writeEntry(sink: ReturnType<Pack['entry']>, chunk: Buffer): Promise<void> {
  if (sink.write(chunk)) return;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onClose = () => reject(new Error('the tar was destroyed'));
  sink.once('drain', resolve);
  sink.once('close', onClose);
  await promise.finally(() => {
    sink.off('drain', resolve);
    sink.off('close', onClose);
  });
}

/** The stored tar, decompressed for Docker. */
export function openArtifact(file: string): Readable {
  // With the default chunks of 16 KiB it takes three times as long.
  const plain = createZstdDecompress({ chunkSize: PLAIN_CHUNK_BYTES });
  pipeline(createReadStream(file, { highWaterMark: 1 << 20 }), plain).catch(() => {});
  return plain;
}

/** Calls `onEntry` for everything in a stored artifact, in the order of its tar. */
export async function listArtifact(
  file: string,
  onEntry: (entry: ArtifactTarEntry) => void,
  signal?: AbortSignal,
): Promise<void> {
  for await (const entry of readEntries(openArtifact(file))) {
    signal?.throwIfAborted();
    const described = describe(entry.header as Header & { byteOffset: number });
    if (described) onEntry(described);
    entry.resume();
  }
}

function describe(
  header: Pick<Header, 'name' | 'type' | 'mode' | 'size'> & { linkname?: string | null; byteOffset: number },
): ArtifactTarEntry | undefined {
  const { name, type = 'file', mode = 0, size = 0, linkname, byteOffset } = header;
  if (type === null || !KEPT_TYPES.has(type)) return undefined;
  const target = linkname ?? '';
  return {
    path: insideOf(name),
    type: type as ArtifactEntryType,
    mode: mode & 0o7777,
    sizeBytes: size,
    target: type === 'link' ? insideOf(target) : type === 'symlink' ? target : null,
    offset: byteOffset,
  };
}

/** Reads bytes of the plain tar. Everything before them is decompressed and skipped. */
export function openArtifactRange(file: string, range: { start: number; end: number }): Readable {
  async function* read(): AsyncGenerator<Buffer> {
    let position = 0;
    // Leaving the loop closes the file.
    for await (const chunk of openArtifact(file) as AsyncIterable<Buffer>) {
      const begin = Math.max(range.start - position, 0);
      const end = range.end + 1 - position;
      if (begin < chunk.length) yield chunk.subarray(begin, end);
      position += chunk.length;
      if (position > range.end) return;
    }
    throw new Error('the artifact is cut off');
  }
  return Readable.from(read(), { objectMode: false });
}

/** The stored tar with names that begin with the prefix, so that it can be unpacked in the root directory. */
export function openArtifactTar(file: string, prefix: string): Readable {
  const tar = pack();
  tar.on('error', () => {});
  const root = prefix.slice(1);
  const placed = (name: string) => `${root}/${insideOf(name)}`.replace(/\/$/, '');
  const copy = async () => {
    for await (const entry of readEntries(openArtifact(file))) {
      // The extended header would repeat the old name.
      const { pax: _, ...header } = entry.header;
      const placedHeader = {
        ...header,
        name: placed(header.name),
        ...(header.type === 'link' && { linkname: placed(header.linkname ?? '') }),
      };
      await addEntry(tar, placedHeader, entry as AsyncIterable<Buffer>);
    }
    tar.finalize();
  };
  copy().catch(error => tar.destroy(error as Error));
  return Readable.from(tar as AsyncIterable<Buffer>, { objectMode: false });
}

/** A tar of the given directories and their parents. */
export function directoriesTar(paths: readonly string[], owner: RunAs): Readable {
  const all = new Set(
    paths.flatMap(path => path.split('/').map((_, at, segments) => segments.slice(0, at + 1).join('/'))),
  );
  const tar = pack();
  for (const path of [...all].sort())
    tar.entry({
      ...owner,
      name: `${VOLUME_DIRECTORY.slice(1)}/${path}`,
      type: 'directory',
      mode: 0o755,
      mtime: new Date(0),
    });
  tar.finalize();
  return Readable.from(tar as AsyncIterable<Buffer>, { objectMode: false });
}

/** The hash begins with it: an artifact works only at its prefix. */
export const prefixLine = (prefix: string) => `${JSON.stringify(prefix)}\n`;

export type Kept = Pick<Header, 'name' | 'type' | 'mode' | 'uid' | 'gid' | 'size' | 'mtime'> & {
  linkname?: string;
};

/** The header for the stored tar, with the name under which it is unpacked. Undefined for entries that are not stored. */
function canonical(header: Header, { uid, gid }: RunAs, nameOf: (name: string) => string): Kept | undefined {
  const type = header.type ?? 'file';
  // Other types are the markers of an overlay for deleted files.
  if (!KEPT_TYPES.has(type)) return undefined;
  return {
    name: nameOf(header.name),
    type,
    // Docker adds the type of the file, which a tar does not keep.
    mode: (header.mode ?? 0o644) & 0o7777,
    uid,
    gid,
    size: type === 'file' ? (header.size ?? 0) : 0,
    ...(header.mtime && { mtime: header.mtime }),
    ...((type === 'link' || type === 'symlink') && {
      linkname: type === 'link' ? nameOf(header.linkname ?? '') : (header.linkname ?? ''),
    }),
  };
}

const withoutSlash = (name: string) => name.replace(/\/$/, '');
/** The path relative to the prefix, for a name in a stored tar. */
export const insideOf = (name: string) => withoutSlash(name.slice(VOLUME_DIRECTORY.length));

function renamed(name: string): string {
  const inside = withoutSlash(name.replace(/^\/?[^/]*\/?/, ''));
  return VOLUME_DIRECTORY.slice(1) + (inside === '' ? '' : `/${inside}`);
}

/** What the hash covers, as one line: no times and no owner. */
export function identityLine({ name, type, mode, size, linkname }: Kept): string {
  return `${JSON.stringify([name, type, mode, size, linkname ?? ''])}\n`;
}
