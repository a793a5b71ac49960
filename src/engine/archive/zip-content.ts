// Reads one entry of a build's ZIP file by its row of build_artifacts, without the directory of the ZIP.

import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { createInflateRaw } from 'node:zlib';
import { startContentHash } from '../../content-hash.ts';
import { STORED, type ZipSlice } from './zip-format.ts';
import { BadArchive } from './zip-reader.ts';

const CHUNK_BYTES = 256 << 10;

/** Both ends are included, as in HTTP. */
export type ByteRange = { start: number; end: number };

/** The bytes of the entry as they are in the ZIP. */
export const openStored = (file: string, entry: ZipSlice): Readable =>
  readableOf(readSlice(file, entry.offset, entry.storedBytes));

/** The content of the entry, or a range of it. */
export function openContent(file: string, entry: ZipSlice, range?: ByteRange): Readable {
  const { start, end } = range ?? { start: 0, end: entry.sizeBytes - 1 };
  return readableOf(
    entry.method === STORED
      ? readSlice(file, entry.offset + start, end - start + 1)
      : readInflated(file, entry, start, end + 1),
  );
}

/** The SHA-256 of the content, in hex. Throws BadArchive if the content has changed since it was written. */
export async function hashContent(
  file: string,
  entry: ZipSlice & { crc32: number },
  signal: AbortSignal,
): Promise<string> {
  using hash = startContentHash();
  hash.begin();
  for await (const chunk of openContent(file, entry) as AsyncIterable<Buffer>) {
    signal.throwIfAborted();
    await hash.update(chunk);
  }
  const { crc32, sha256 } = await hash.end();
  if (crc32 !== entry.crc32) throw new BadArchive('the ZIP is damaged');
  return sha256;
}

const readableOf = (chunks: AsyncIterable<Buffer>) =>
  Readable.from(chunks, { objectMode: false, highWaterMark: CHUNK_BYTES });

async function* readSlice(file: string, start: number, bytes: number): AsyncGenerator<Buffer> {
  if (bytes === 0) return;
  let left = bytes;
  const slice = createReadStream(file, { start, end: start + bytes - 1, highWaterMark: CHUNK_BYTES });
  for await (const chunk of slice as AsyncIterable<Buffer>) {
    left -= chunk.length;
    yield chunk;
  }
  if (left > 0) throw new BadArchive('the ZIP is cut off');
}

async function* readInflated(
  file: string,
  entry: ZipSlice,
  start: number,
  end: number,
): AsyncGenerator<Buffer> {
  let at = 0;
  const stored = openStored(file, entry);
  const inflate = createInflateRaw({ chunkSize: CHUNK_BYTES });
  stored.on('error', error => inflate.destroy(error));
  try {
    for await (const chunk of stored.pipe(inflate) as AsyncIterable<Buffer>) {
      const piece = chunk.subarray(Math.max(0, start - at), Math.max(0, end - at));
      at += chunk.length;
      if (piece.length > 0) yield piece;
      if (at >= end) return;
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw code?.startsWith('Z') ? new BadArchive('the ZIP is damaged', { cause: error }) : error;
  } finally {
    stored.destroy();
  }
  throw new BadArchive('the ZIP is cut off');
}
