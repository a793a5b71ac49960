// Responds with a log as plain text, whole or a range of bytes, streamed from the file.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
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
