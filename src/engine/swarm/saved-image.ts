// Reads what `docker save` writes, of Docker 20.10 and of newer versions, and stores the layers as plain tars.

import { posix } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { detectFormat, detectionBytes } from '../../domain/text/archive-format.ts';
import { readEntries } from '../archive/tar-files.ts';
import { EngineRefused, EngineUnavailable } from '../engine.ts';
import type { KeptBlob } from './stored-images.ts';

/** The configuration of an image; only what Assay reads or changes. */
export type ImageConfig = {
  created?: string;
  rootfs: { type: string; diff_ids: string[] };
  history?: { created?: string; created_by?: string; empty_layer?: boolean }[];
};

export type SavedImage = { config: ImageConfig; layers: KeptBlob[] };

/** For the manifest and the configurations, which are read into memory. */
const MAX_JSON_BYTES = 8 << 20;
const BROKEN_OFF = 'The export of an image broke off.';

/** `keep` stores a plain tar. Throws EngineUnavailable if the source breaks off, EngineRefused if its hashes are wrong. */
export async function readSavedImage(
  source: Readable,
  keep: (layer: AsyncIterable<Buffer>) => Promise<KeptBlob>,
): Promise<SavedImage> {
  const texts = new Map<string, Buffer>();
  const layers = new Map<string, KeptBlob>();
  /** A layer that the image has twice is a link to the first one. */
  const links = new Map<string, string>();
  try {
    for await (const { header, ...entry } of entriesOf(source)) {
      const name = posix.normalize(header.name);
      const isBlob = name.startsWith('blobs/');
      if (header.type === 'symlink' || header.type === 'link')
        links.set(
          name,
          posix.join(header.type === 'link' ? '.' : posix.dirname(name), header.linkname ?? ''),
        );
      else if (header.type !== 'file') continue;
      else if (isBlob || name.endsWith('/layer.tar')) {
        const { first, all } = await peek(entry.content);
        if (isBlob && isText(first)) texts.set(name, await readAll(all));
        else layers.set(name, await keepLayer(first, all, keep));
      } else if (name.endsWith('.json')) texts.set(name, await readAll(entry.content));
    }
  } catch (error) {
    const isCutOff = /end of data|premature|aborted/i.test((error as Error).message);
    const isReset = ['ECONNRESET', 'EPIPE'].includes(String((error as NodeJS.ErrnoException).code));
    throw isCutOff || isReset ? new EngineUnavailable(BROKEN_OFF) : error;
  }
  const parse = (name: string) => {
    const text = texts.get(posix.normalize(name));
    // It is the last entry, so it is what is missing at first when the export breaks off between two entries.
    if (!text) throw new EngineUnavailable(BROKEN_OFF);
    return JSON.parse(text.toString());
  };
  const [saved] = parse('manifest.json') as { Config: string; Layers: string[] }[];
  if (!saved) throw new EngineRefused('Docker exported no image.');
  const config = parse(saved.Config) as ImageConfig;
  const found = saved.Layers.map(name => {
    const path = posix.normalize(name);
    return layers.get(path) ?? layers.get(links.get(path) ?? '');
  });
  const isSame = found.every((layer, at) => layer?.digest === config.rootfs.diff_ids[at]);
  if (!isSame || found.length !== config.rootfs.diff_ids.length)
    throw new EngineRefused(
      'Docker exported an image whose layers do not have the hashes in its configuration.',
    );
  return { config, layers: found as KeptBlob[] };
}

async function* entriesOf(source: Readable) {
  for await (const entry of readEntries(source)) {
    yield { header: entry.header, content: entry as AsyncIterable<Buffer> };
    entry.resume();
  }
}

/** The first bytes, and all of them. */
async function peek(content: AsyncIterable<Buffer>): Promise<{ first: Buffer; all: AsyncIterable<Buffer> }> {
  const iterator = content[Symbol.asyncIterator]();
  let first: Buffer = Buffer.alloc(0);
  while (first.length < detectionBytes) {
    const { done, value } = await iterator.next();
    if (done) break;
    first = Buffer.concat([first, value]);
  }
  async function* all(): AsyncGenerator<Buffer> {
    yield first;
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
  }
  return { first, all: all() };
}

/** Blobs have no names that tell manifests and configurations from layers. */
const isText = (first: Buffer) =>
  /^[[{]/.test(first.toString('latin1', 0, 1)) && detectFormat(first)?.format !== 'tar';

async function readAll(content: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of content) {
    sizeBytes += chunk.length;
    if (sizeBytes > MAX_JSON_BYTES)
      throw new EngineRefused('Docker exported an image with a description that is too long.');
    chunks.push(Buffer.from(chunk));
  }
  return Buffer.concat(chunks);
}

/** Newer engines may export layers as they were pulled. */
async function keepLayer(
  first: Buffer,
  all: AsyncIterable<Buffer>,
  keep: (layer: AsyncIterable<Buffer>) => Promise<KeptBlob>,
): Promise<KeptBlob> {
  const format = detectFormat(first)?.format;
  if (format !== 'gzip' && format !== 'zstd') return keep(all);
  const plain = format === 'gzip' ? createGunzip() : createZstdDecompress();
  const out = new PassThrough();
  const unpacking = pipeline(Readable.from(all, { objectMode: false }), plain, out);
  unpacking.catch(() => {});
  const kept = await keep(out);
  await unpacking;
  return kept;
}
