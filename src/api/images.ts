// The pull half of the registry protocol, under /v2/: the nodes of a swarm get their images from here. Images are named by
// digest only, and the credentials are those of the nodes.

import type { ServerResponse } from 'node:http';
import { pipeline, type Readable } from 'node:stream';
import type { Hono } from 'hono';
import { ExpectedError } from '../domain/refusal.ts';
import { digestOf, sameDigest } from '../domain/secret.ts';
import type { Log } from '../log.ts';
import { NODE_USER, nodePasswordOf } from '../store/node-credentials.ts';
import type { Services } from './endpoint.ts';
import { addressOf } from './http/caller-address.ts';
import { markAuthenticated } from './http/connections.ts';
import { type ByteRange, isBeyondEnd, readRange } from './http/range.ts';
import { streamResponse } from './http/stream.ts';
import type { Bindings, ShowError } from './router.ts';

/** Both are undefined for an unknown digest. */
export type PulledImages = {
  findManifest(digest: string): Promise<{ mediaType: string; content: Buffer } | undefined>;
  findBlob(digest: string): Promise<{ sizeBytes: number; open(range?: ByteRange): Readable } | undefined>;
};

/** An error in the format of the protocol. */
class RegistryError extends ExpectedError {
  readonly code: string;
  readonly status: 401 | 404;

  constructor(code: string, message: string, status: 401 | 404) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

const ROUTE = '/v2/*';
const VERSION = { 'docker-distribution-api-version': 'registry/2.0' };
const CONTENT = /^\/v2\/assay\/[a-z0-9]+(?:[._-][a-z0-9]+)*\/(manifests|blobs)\/([^/]+)$/;
/** At most one line about wrong credentials in this time. */
const REPORT_EVERY_MS = 60_000;

export function mountImages(
  router: Hono<Bindings>,
  services: Pick<Services, 'db' | 'log' | 'trustedProxies'>,
  images: PulledImages,
): void {
  const { db, log } = services;
  let expected: Buffer | undefined;
  let reportedAt = Number.NEGATIVE_INFINITY;

  const isNode = (authorization: string | null) => {
    const [, value = ''] = /^basic +(\S+)$/i.exec(authorization ?? '') ?? [];
    expected ??= digestOf(`${NODE_USER}:${nodePasswordOf(db)}`);
    return sameDigest(digestOf(Buffer.from(value, 'base64').toString('utf8')), expected);
  };

  router.get(ROUTE, async ({ env, req: { raw } }) => {
    Object.assign(env, { route: ROUTE, showError: showRegistryError });
    const authorization = raw.headers.get('authorization');
    if (!isNode(authorization)) {
      // A node's first request has no credentials.
      if (authorization !== null && Date.now() - reportedAt >= REPORT_EVERY_MS) {
        reportedAt = Date.now();
        log.warn('an image was requested with wrong credentials', {
          address: addressOf(env.outgoing, services),
        });
      }
      throw new RegistryError('UNAUTHORIZED', 'The credentials of a node are needed.', 401);
    }
    markAuthenticated(env.outgoing);
    return respond(raw, env.outgoing, images, log);
  });
}

async function respond(
  request: Request,
  outgoing: ServerResponse,
  images: PulledImages,
  log: Log,
): Promise<Response> {
  const { pathname } = new URL(request.url);
  if (pathname === '/v2/') return respondJson({}, 200);
  const [, kind, reference = ''] = CONTENT.exec(pathname) ?? [];
  // Docker may encode the colon.
  const digest = reference.replace(/%3a/i, ':');
  const headers = (type: string) => ({
    ...VERSION,
    'content-type': type,
    'docker-content-digest': digest,
    'cache-control': 'private, no-cache',
    'x-content-type-options': 'nosniff',
  });
  if (kind === 'manifests') {
    const found = await images.findManifest(digest);
    if (!found) throw new RegistryError('MANIFEST_UNKNOWN', 'There is no image with this digest.', 404);
    const { content, mediaType } = found;
    const body = request.method === 'HEAD' ? null : new Uint8Array(content);
    return new Response(body, {
      headers: { ...headers(mediaType), etag: `"${digest}"`, 'content-length': String(content.length) },
    });
  }
  if (kind === 'blobs') {
    const found = await images.findBlob(digest);
    if (!found) throw new RegistryError('BLOB_UNKNOWN', 'There is no layer with this digest.', 404);
    const { sizeBytes } = found;
    const wanted = request.headers.get('range');
    if (isBeyondEnd(wanted, sizeBytes))
      return new Response(null, {
        status: 416,
        headers: { ...VERSION, 'content-range': `bytes */${sizeBytes}`, 'content-length': '0' },
      });
    const range = readRange(wanted, sizeBytes);
    const { start, end } = range ?? { start: 0, end: sizeBytes - 1 };
    const head = {
      ...headers('application/octet-stream'),
      'accept-ranges': 'bytes',
      'content-length': String(end - start + 1),
      ...(range && { 'content-range': `bytes ${start}-${end}/${sizeBytes}` }),
    };
    const status = range ? 206 : 200;
    if (request.method === 'HEAD') return new Response(null, { status, headers: head });
    // Written directly: as the body of a Response, it would take almost twice the processor time.
    outgoing.writeHead(status, head);
    sendBlob(found.open(range), outgoing, error =>
      log.error('a layer could not be sent', { digest, cause: error }),
    );
    return streamResponse();
  }
  throw new RegistryError('NAME_UNKNOWN', 'Images are under /v2/assay/.', 404);
}

/** Ends the connection if the content breaks off: the node then requests the rest. */
function sendBlob(content: Readable, outgoing: ServerResponse, onFailure: (error: Error) => void): void {
  pipeline(content, outgoing, error => {
    const isGone = error?.code === 'ERR_STREAM_PREMATURE_CLOSE' || error?.code === 'ECONNRESET';
    if (error && !isGone) onFailure(error);
  });
}

const showRegistryError: ShowError = error => {
  const { code, status, message } =
    error instanceof RegistryError
      ? error
      : { code: 'UNKNOWN', status: 500, message: 'Something went wrong on the server.' };
  return respondJson({ errors: [{ code, message }] }, status);
};

const respondJson = (body: object, status: number) =>
  Response.json(body, {
    status,
    headers: {
      ...VERSION,
      'cache-control': 'no-store',
      ...(status === 401 && { 'www-authenticate': 'Basic realm="assay", charset="UTF-8"' }),
    },
  });
