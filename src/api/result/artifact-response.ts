// Responds with a file that a build produced, or with all of them as a ZIP, streamed from the build's ZIP file.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { refusal } from '../../domain/refusal.ts';
import { attachmentOf, BYTES } from '../../domain/result/content-type.ts';
import { buildFilesPath } from '../../store/data/paths.ts';
import type { BuildArtifact } from '../../store/result/build-artifacts.ts';
import type { Services } from '../endpoint.ts';
import { acceptsGzip } from '../http/coding.ts';
import { type ByteRange, isBeyondEnd, isNotModified, rangeFor, readRange } from '../http/range.ts';

const CHUNK_BYTES = 256 * 1024;
/** The compression method of ZIP that gzip has too. */
const DEFLATED = 8;
const GZIP_HEAD = Buffer.from([0x1f, 0x8b, DEFLATED, 0, 0, 0, 0, 0, 0, 0xff]);

/** Nobody but the caller may cache it, and a browser neither shows nor runs it. */
export const attachmentHeaders = (path: string): Record<string, string> => ({
  'content-type': BYTES,
  'content-disposition': attachmentOf(path),
  'cache-control': 'private, no-cache',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; sandbox",
});

type Content = {
  etag: string;
  sizeBytes: number;
  headers: Record<string, string>;
  open(range: ByteRange | undefined): Readable;
};

/**
 * Sends one file. A deflated one goes out as gzip if the client accepts that, without being inflated, and is inflated while
 * it is sent otherwise, or when the client requests a range.
 */
export async function respondArtifact(
  { dataDirectory, openArtifact }: Pick<Services, 'dataDirectory' | 'openArtifact'>,
  request: Request,
  artifact: BuildArtifact,
  headers: Record<string, string>,
): Promise<Response> {
  const file = buildFilesPath(dataDirectory, artifact.buildId);
  await sizeOf(file);
  const isDeflated = artifact.method === DEFLATED;
  const content: Content = {
    etag: `"${artifact.sha256 || artifact.id}"`,
    sizeBytes: artifact.sizeBytes,
    headers: { ...headers, ...(isDeflated && { vary: 'Accept-Encoding' }) },
    open: range => openArtifact(file, artifact, range),
  };
  if (!isDeflated || request.headers.has('range') || !acceptsGzip(request))
    return respondContent(request, content);
  return respondContent(request, {
    // A weak tag: the same file, in other bytes.
    etag: `W/${content.etag}`,
    sizeBytes: GZIP_HEAD.length + artifact.storedBytes + GZIP_TAIL_BYTES,
    headers: { ...content.headers, 'content-encoding': 'gzip' },
    open: () => Readable.from(gzipOf(file, artifact), { objectMode: false, highWaterMark: CHUNK_BYTES }),
  });
}

/** Sends the ZIP file as it is. */
export async function respondArtifacts(
  { dataDirectory }: Pick<Services, 'dataDirectory'>,
  request: Request,
  build: { id: bigint; artifacts: number },
): Promise<Response> {
  if (build.artifacts === 0) throw refusal('not_found');
  const file = buildFilesPath(dataDirectory, build.id);
  const sizeBytes = await sizeOf(file);
  return respondContent(request, {
    // A build's ZIP never changes.
    etag: `"${build.id}-${sizeBytes}"`,
    sizeBytes,
    headers: { ...attachmentHeaders(`build-${build.id}.zip`), 'content-type': 'application/zip' },
    open: range => createReadStream(file, { ...range, highWaterMark: CHUNK_BYTES }),
  });
}

/** The file may be gone although rows name it, as after a backup without logs. */
async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw refusal('not_found');
    throw error;
  }
}

/** Responds with a content that never changes while its ETag is the same, or with a range of it. */
export function respondContent(request: Request, { etag, sizeBytes, headers, open }: Content): Response {
  const common: Record<string, string> = { ...headers, etag, 'accept-ranges': 'bytes' };
  if (isNotModified(request, etag)) {
    const { 'content-type': _, 'content-disposition': __, 'content-encoding': ___, ...kept } = common;
    return new Response(null, { status: 304, headers: kept });
  }
  const wanted = rangeFor(request, etag);
  if (isBeyondEnd(wanted, sizeBytes))
    return new Response(null, {
      status: 416,
      headers: {
        'content-range': `bytes */${sizeBytes}`,
        'cache-control': 'no-store',
        'content-length': '0',
      },
    });
  const range = readRange(wanted, sizeBytes);
  const length = range ? range.end - range.start + 1 : sizeBytes;
  const body =
    length === 0 || request.method === 'HEAD' ? null : (Readable.toWeb(open(range)) as ReadableStream);
  return new Response(body, {
    status: range ? 206 : 200,
    headers: {
      ...common,
      'content-length': String(length),
      ...(range && { 'content-range': `bytes ${range.start}-${range.end}/${sizeBytes}` }),
    },
  });
}

const GZIP_TAIL_BYTES = 8;

/** The header and the trailer of gzip around the deflated bytes of the ZIP. */
async function* gzipOf(
  file: string,
  { offset, storedBytes, crc32, sizeBytes }: BuildArtifact,
): AsyncGenerator<Buffer> {
  yield GZIP_HEAD;
  const slice = { start: offset, end: offset + storedBytes - 1, highWaterMark: CHUNK_BYTES };
  yield* createReadStream(file, slice) as AsyncIterable<Buffer>;
  const tail = Buffer.alloc(GZIP_TAIL_BYTES);
  tail.writeUInt32LE(crc32, 0);
  tail.writeUInt32LE(sizeBytes % 2 ** 32, 4);
  yield tail;
}
