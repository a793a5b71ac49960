// Responds with a log as plain text, whole or a range of bytes, streamed from the file. Lists when it was written.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { type LogTime, readLogTimes } from '../store/data/log-file.ts';
import { readRange } from './http/range.ts';

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
  const body =
    length === 0 || request.method === 'HEAD'
      ? null
      : (Readable.toWeb(createReadStream(path, { start, end, highWaterMark: 256 * 1024 })) as ReadableStream);
  return new Response(body, {
    status: range ? 206 : 200,
    headers: {
      ...headers,
      'content-length': String(length),
      ...(range && { 'content-range': `bytes ${start}-${end}/${size}` }),
    },
  });
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
