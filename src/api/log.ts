// Responds with a log as plain text: whole or a range of bytes, streamed from the file, compressed if the client prefers that.
// Lists when it was written.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { pipeline, Readable } from 'node:stream';
import { constants, createZstdCompress } from 'node:zlib';
import { type LogTime, readLogTimes } from '../store/data/log-file.ts';
import { prefersZstd, readRange } from './http/range.ts';

const CHUNK_BYTES = 256 * 1024;

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
  const content = isEmpty ? null : createReadStream(path, { start, end, highWaterMark: CHUNK_BYTES });
  const body = content && Readable.toWeb(isCompressed ? compress(content) : content);
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
function compress(content: Readable): Readable {
  const compressed = createZstdCompress({
    chunkSize: CHUNK_BYTES,
    params: { [constants.ZSTD_c_compressionLevel]: 1 },
  });
  // The reader of the response sees the error.
  pipeline(content, compressed, () => {});
  return compressed;
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
