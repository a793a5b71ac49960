// Responds with a log as plain text: whole or a range of bytes, streamed from the file, compressed if the client prefers that.
// Lists when it was written.

import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { Readable, type Writable } from 'node:stream';
import { constants, createZstdCompress } from 'node:zlib';
import { type LogTime, readLogTimes } from '../store/data/log-file.ts';
import { prefersZstd } from './http/coding.ts';
import { readRange } from './http/range.ts';

const CHUNK_BYTES = 256 << 10;
/** Each piece is handed to another thread and back, so that larger ones take less time. */
const COMPRESSED_CHUNK_BYTES = 1 << 20;

export async function respondLog(request: Request, path: string): Promise<Response> {
  const size = await sizeOf(path);
  const headers = {
    'content-type': 'text/plain; charset=utf-8',
    'accept-ranges': 'bytes',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    'content-security-policy': "default-src 'none'; sandbox",
  };
  const range = readRange(request.headers.get('range'), size);
  const { start, end } = range ?? { start: 0, end: size - 1 };
  const length = Math.max(0, end - start + 1);
  const isEmpty = length === 0 || request.method === 'HEAD';
  const isCompressed = !isEmpty && !range && prefersZstd(request);
  const openContent = () =>
    isCompressed
      ? compress(path, length)
      : createReadStream(path, { start, end, highWaterMark: CHUNK_BYTES });
  const body = isEmpty ? null : Readable.toWeb(openContent());
  return new Response(body as ReadableStream | null, {
    status: range ? 206 : 200,
    headers: {
      ...headers,
      ...(isCompressed ? { 'content-encoding': 'zstd' } : { 'content-length': String(length) }),
      ...(range && { 'content-range': `bytes ${start}-${end}/${size}` }),
    },
  });
}

/** A log becomes many times smaller. It takes less time than to encrypt and send it as it is. */
function compress(path: string, length: number): Readable {
  const compressed = createZstdCompress({
    chunkSize: CHUNK_BYTES,
    params: { [constants.ZSTD_c_compressionLevel]: 1 },
  });
  // The reader of the response sees the error.
  copyFile(path, length, compressed).catch(error => compressed.destroy(error));
  return compressed;
}

/** Uses one buffer for all pieces. A stream would use a new one for each, which causes many garbage collections. */
async function copyFile(path: string, length: number, to: Writable): Promise<void> {
  await using file = await open(path);
  const buffer = Buffer.allocUnsafeSlow(Math.min(COMPRESSED_CHUNK_BYTES, length));
  for (let offset = 0; offset < length; ) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, length - offset), offset);
    if (bytesRead === 0) throw new Error('the log was cut off while it was read');
    offset += bytesRead;
    await new Promise<void>((resolve, reject) => {
      to.write(buffer.subarray(0, bytesRead), error => (error ? reject(error) : resolve()));
    });
  }
  to.end();
}

/** A job that has not started has no log file: its log is empty. */
async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0;
    throw error;
  }
}

/** When the bytes from `start` up to `end` were written. Empty if there is no log. */
export async function listLogTimes(path: string, start: number, end?: number): Promise<LogTime[]> {
  try {
    return await readLogTimes(path, { start, ...(end !== undefined && { end }) });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** The last write of each second after `start`: a log may have been written line by line. */
export async function listLogSeconds(
  path: string,
  start: number,
): Promise<[endOffset: number, atMs: number][]> {
  const times = await listLogTimes(path, start);
  const second = ({ atMs }: LogTime) => Math.floor(atMs / 1000);
  return times
    .filter((time, at) => {
      const next = times[at + 1];
      return !next || second(next) !== second(time);
    })
    .map(({ endOffset, atMs }) => [endOffset, atMs]);
}
