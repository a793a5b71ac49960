// The files of the image store: content by its digest, and small records. Every file is complete or not there. Layers of
// artifacts have only a record, from which they are generated for each request.

import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, mkdirSync, readdirSync, renameSync, statSync, utimesSync } from 'node:fs';
import { open, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { syncDirectory } from '../../fsync.ts';
import { type ArtifactSource, type ByteRange, openArtifactLayer } from './layers.ts';

export const MANIFEST_TYPE = 'application/vnd.docker.distribution.manifest.v2+json';

/** What an artifact's layer is generated from, and what comes out. */
export type GeneratedLayer = ArtifactSource & {
  /** Of everything that its bytes depend on, except for the artifact's file. */
  key: string;
  sizeBytes: number;
  /** Of the artifact's file. A compile with the same result replaces it by one with other times. */
  fileVersion: string;
};

export type KeptBlob = { digest: string; sizeBytes: number };

type FoundBlob = { sizeBytes: number; open(range?: ByteRange): Readable };

/** What the registry endpoint needs. */
export type StoredImages = {
  findManifest(digest: string): Promise<{ mediaType: string; content: Buffer } | undefined>;
  findBlob(digest: string): Promise<FoundBlob | undefined>;
};

/** Content; records of generated layers by digest; records of base images by image id; indexes of base layers by digest. */
const KINDS = ['blobs', 'generated', 'bases', 'indexes'] as const;
type RecordKind = Exclude<(typeof KINDS)[number], 'blobs'>;
const TEMPORARY = 'temporary';
/** Whatever wrote a temporary file has ended by then. */
const TEMPORARY_MS = 24 * 3600_000;
const CHUNK_BYTES = 256 << 10;
const MAX_MANIFEST_BYTES = 4 << 20;

export type ImageFiles = StoredImages & {
  /** Stores content under its digest. */
  keepBlob(content: AsyncIterable<Buffer> | Iterable<Buffer>): Promise<KeptBlob>;
  blobPath(digest: string): string;
  keepRecord(kind: RecordKind, name: string, record: unknown): Promise<void>;
  /** Undefined if there is none. */
  findRecord<T>(kind: RecordKind, name: string): Promise<T | undefined>;
  recordPath(kind: RecordKind, name: string): string;
  listRecords(kind: RecordKind): string[];
  /** Marks files as used now. False if one is missing. */
  touch(paths: readonly string[]): boolean;
  sweep(unusedMs: number): Promise<void>;
};

export function openImageFiles(directory: string): ImageFiles {
  const temporaryPath = () => join(directory, TEMPORARY, randomUUID());
  const blobPath = (digest: string) => join(directory, 'blobs', hexOf(digest));
  const recordPath = (kind: RecordKind, name: string) => join(directory, kind, `${hexOf(name)}.json`);
  const createDirectories = () => {
    for (const name of [...KINDS, TEMPORARY])
      mkdirSync(join(directory, name), { recursive: true, mode: 0o700 });
  };

  async function publish(temporary: string, kind: (typeof KINDS)[number], path: string): Promise<void> {
    await rename(temporary, path);
    await syncDirectory(join(directory, kind));
  }

  async function keepBlob(content: AsyncIterable<Buffer> | Iterable<Buffer>): Promise<KeptBlob> {
    createDirectories();
    const temporary = temporaryPath();
    const sha256 = createHash('sha256');
    let sizeBytes = 0;
    const file = await open(temporary, 'wx', 0o600);
    try {
      for await (const chunk of content) {
        sizeBytes += chunk.length;
        sha256.update(chunk);
        await file.writeFile(chunk);
      }
      await file.sync();
      await file.close();
      const digest = `sha256:${sha256.digest('hex')}`;
      await publish(temporary, 'blobs', blobPath(digest));
      return { digest, sizeBytes };
    } catch (error) {
      await file.close().catch(() => {});
      await rm(temporary, { force: true });
      throw error;
    }
  }

  async function keepRecord(kind: RecordKind, name: string, record: unknown): Promise<void> {
    createDirectories();
    const temporary = temporaryPath();
    try {
      const file = await open(temporary, 'wx', 0o600);
      await file
        .writeFile(JSON.stringify(record))
        .then(() => file.sync())
        .finally(() => file.close());
      await publish(temporary, kind, recordPath(kind, name));
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  }

  async function findRecord<T>(kind: RecordKind, name: string): Promise<T | undefined> {
    const text = await unlessMissing(readFile(recordPath(kind, name), 'utf8'));
    return text === undefined ? undefined : (JSON.parse(text) as T);
  }

  async function findBlob(digest: string): Promise<FoundBlob | undefined> {
    if (!isDigest(digest)) return undefined;
    const path = blobPath(digest);
    const stored = await unlessMissing(stat(path));
    if (stored)
      return {
        sizeBytes: stored.size,
        open: range => createReadStream(path, { ...range, highWaterMark: CHUNK_BYTES }),
      };
    const layer = await findRecord<GeneratedLayer>('generated', digest);
    if (!layer || (await versionOf(layer.file)) !== layer.fileVersion) return undefined;
    return { sizeBytes: layer.sizeBytes, open: range => openArtifactLayer(layer, range) };
  }

  async function findManifest(digest: string) {
    if (!isDigest(digest)) return undefined;
    const path = blobPath(digest);
    const stored = await unlessMissing(stat(path));
    if (!stored || stored.size > MAX_MANIFEST_BYTES) return undefined;
    const content = await unlessMissing(readFile(path));
    return content && isManifest(content) ? { mediaType: MANIFEST_TYPE, content } : undefined;
  }

  // Synchronous, like the check in `sweep`, so that a file is not removed after it was marked.
  function touch(paths: readonly string[]): boolean {
    const now = new Date();
    try {
      for (const path of paths) utimesSync(path, now, now);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
  }

  async function sweep(unusedMs: number): Promise<void> {
    createDirectories();
    const isOlder = (path: string, ms: number) =>
      Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()) > ms;
    for (const kind of KINDS)
      for (const name of readdirSync(join(directory, kind))) {
        const path = join(directory, kind, name);
        if (!isOlder(path, unusedMs)) continue;
        const unused = temporaryPath();
        renameSync(path, unused);
        await rm(unused, { force: true });
      }
    for (const name of readdirSync(join(directory, TEMPORARY))) {
      const path = join(directory, TEMPORARY, name);
      if (isOlder(path, TEMPORARY_MS)) await rm(path, { force: true });
    }
  }

  return {
    findManifest,
    findBlob,
    keepBlob,
    blobPath,
    keepRecord,
    findRecord,
    recordPath,
    listRecords: kind =>
      (unlessMissingSync(() => readdirSync(join(directory, kind))) ?? []).map(name =>
        name.slice(0, -'.json'.length),
      ),
    touch,
    sweep,
  };
}

/** Identifies the content of a file without reading it; undefined if there is none. */
export async function versionOf(file: string): Promise<string | undefined> {
  const found = await unlessMissing(stat(file, { bigint: true }));
  return found && `${found.ino} ${found.size} ${found.mtimeNs}`;
}

const isDigest = (text: string) => /^sha256:[0-9a-f]{64}$/.test(text);
const hexOf = (digest: string) => digest.replace(/^sha256:/, '');

/** Blobs of all kinds are next to each other, and a layer may contain anything. */
function isManifest(content: Buffer): boolean {
  try {
    const { mediaType, layers } = JSON.parse(content.toString()) as Record<string, unknown>;
    return mediaType === MANIFEST_TYPE && Array.isArray(layers);
  } catch {
    return false;
  }
}

async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function unlessMissingSync<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
