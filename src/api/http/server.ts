// The HTTPS listener: TLS, HTTP/1.1 and HTTP/2 on one port, limits on what is slow, oversized or malformed.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { createSecureServer, type Http2SecureServer } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { refusal } from '../../domain/refusal.ts';
import type { Log } from '../../log.ts';
import { type ConnectionLimits, connectionLimits, watchConnections } from './connections.ts';
import { STOPPING } from './stream.ts';

const MAX_HEADER_BYTES = 32 * 1024;
// How much of an upload may be under way. A connection has 64 KiB in all until a request is authenticated.
const STREAM_WINDOW_BYTES = 1024 ** 2;
const MAX_THROWN_AWAY_BYTES = 64 * 1024;
const CLOSE_MS = 5_000;
const ABSOLUTE_FORM = /^https:\/\/((?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)([/?].*)?$/i;

export type Server = {
  port: number;
  /** Takes a renewed certificate into use without closing anything. */
  setCertificate(certificate: { cert: string; key: string }): void;
  /** Stops listening, lets answers that are under way finish, ends streams. */
  close(): Promise<void>;
};

type Fetch = (request: Request, env: { outgoing: ServerResponse }) => Response | Promise<Response>;

export async function startServer(options: {
  host: string;
  port: number;
  certificate: { cert: string; key: string };
  fetch: Fetch;
  log: Log;
  /** Whom a connection from this address counts for; undefined where it is that of many clients, as a proxy's is. */
  clientKeyOf: (address: string) => string | undefined;
  limits?: ConnectionLimits;
}): Promise<Server> {
  const { limits = connectionLimits } = options;
  const listener = getRequestListener(options.fetch as Parameters<typeof getRequestListener>[0], {
    errorHandler: () => notAnEndpoint(),
  });
  // Without a host it is answered here, in our words.
  const http1 = { connectionsCheckingInterval: limits.checkMs, requireHostHeader: false };
  const server = createSecureServer({
    ...options.certificate,
    ...http1,
    allowHTTP1: true,
    minVersion: 'TLSv1.2',
    handshakeTimeout: limits.handshakeMs,
    maxHeaderListPairs: 200,
    settings: {
      maxConcurrentStreams: limits.maxStreams,
      maxHeaderListSize: MAX_HEADER_BYTES,
      initialWindowSize: STREAM_WINDOW_BYTES,
      enableConnectProtocol: false,
    },
    maxSessionInvalidFrames: 100,
  });
  limit(server, limits);

  const connections = watchConnections(server, limits, options.clientKeyOf);
  const answer = (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (mayBeLong(incoming)) closeUnlessRead(incoming, outgoing);
    if (incoming.httpVersionMajor === 1 && !incoming.url?.startsWith('/')) readAbsoluteForm(incoming);
    // A path is taken as it was written: what a URL parser would fold away is not an endpoint.
    if (isFolded(incoming.url ?? '')) answerBare(outgoing);
    else
      listener(incoming, outgoing).catch((cause: unknown) => {
        options.log.error('answer could not be written', { cause });
        outgoing.destroy();
      });
  };
  const handle = (incoming: IncomingMessage, outgoing: ServerResponse) =>
    connections.handle(incoming, outgoing, () => answer(incoming, outgoing));
  server.on('request', handle);
  // A refusal comes instead of `100 Continue`, which is sent only when the body is read.
  server.on('checkContinue', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    closeUnlessRead(incoming, outgoing);
    continueWhenRead(incoming, outgoing);
    handle(incoming, outgoing);
  });
  // Expectations that nobody knows would be a 417, which the contract has not.
  server.on('checkExpectation', handle);
  server.on('clientError', (cause: NodeJS.ErrnoException, socket: Socket) => {
    const before = connections.find(socket)?.latest;
    if (socket.destroyed || !socket.writable || cause.code === 'ECONNRESET') socket.destroy();
    // It was answered before the rest of it turned out to be malformed, or was to be the last: nothing comes after that.
    else if (before?.headersSent && !(before.req.complete && before.shouldKeepAlive)) socket.destroySoon();
    else
      socket.end(
        'HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n' +
          JSON.stringify({ error: refusal('api_does_not_exists').errors }),
      );
  });
  // Plain HTTP, a scanner, a client that does not trust the certificate: closed without a word.
  server.on('tlsClientError', (_: Error, socket: Socket) => socket.destroy());
  server.on('sessionError', (cause: Error) =>
    options.log.debug('HTTP/2 session ended', { cause: cause.message }),
  );

  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, options.host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  server.on('error', (cause: Error) => options.log.error('listener failed', { cause }));

  return {
    port: (server.address() as AddressInfo).port,
    setCertificate: certificate => server.setSecureContext(certificate),
    close: () =>
      new Promise(resolve => {
        const late = setTimeout(() => {
          for (const { socket } of connections.open) socket.destroy();
        }, CLOSE_MS);
        server.close(() => {
          clearTimeout(late);
          resolve();
        });
        connections.closeAfterResponses();
        for (const { session, socket, requests } of connections.open)
          if (session) session.close();
          else if (requests === 0) socket.destroy();
        // Streams have no end of their own: their readers come back to the next server.
        for (const outgoing of connections.responses) outgoing.emit(STOPPING);
      }),
  };
}

/** Limits of HTTP/1.1, which the HTTP/2 server takes as properties. */
function limit(server: Http2SecureServer, { headersMs, keepAliveMs }: ConnectionLimits): void {
  Object.assign(server, {
    headersTimeout: headersMs,
    // A long upload that keeps moving is not cut off: bodies are watched where they are read.
    requestTimeout: 0,
    keepAliveTimeout: keepAliveMs,
    maxRequestsPerSocket: 0,
  });
}

/** Whether there is a body too long to be read only to be thrown away. */
function mayBeLong({ httpVersionMajor, headers }: IncomingMessage): boolean {
  const length = headers['content-length'];
  return (
    httpVersionMajor === 1 &&
    (headers['transfer-encoding'] !== undefined || Number(length ?? 0) > MAX_THROWN_AWAY_BYTES)
  );
}

/** Asks the client for the body as soon as somebody reads it. */
function continueWhenRead(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const read = incoming._read;
  incoming._read = size => {
    incoming._read = read;
    // A body that is read only to be discarded comes after the response.
    if (!outgoing.headersSent) outgoing.writeContinue();
    incoming._read(size);
  };
}

/**
 * HTTP/1.1 allows the whole address as a target, whose host then counts instead of the Host header. Leaves the path of one
 * that could be ours; anything else stays as it is, and is not a path.
 */
function readAbsoluteForm(incoming: IncomingMessage): void {
  const [, authority, path = ''] = ABSOLUTE_FORM.exec(incoming.url ?? '') ?? [];
  if (authority === undefined || incoming.headers.host === undefined) return;
  if (!URL.canParse(`https://${authority}`)) return;
  incoming.url = path.startsWith('/') ? path : `/${path}`;
  incoming.headers.host = authority;
}

/** What is refused before its body was read ends the connection, and says so: the rest is still on its way. */
function closeUnlessRead(incoming: IncomingMessage, outgoing: ServerResponse): void {
  if (incoming.httpVersionMajor > 1) return;
  const writeHead = outgoing.writeHead;
  outgoing.writeHead = ((...head: Parameters<typeof writeHead>) => {
    if (!incoming.complete) outgoing.shouldKeepAlive = false;
    return writeHead.apply(outgoing, head);
  }) as typeof writeHead;
}

function isFolded(target: string): boolean {
  const path = target.split(/[?#]/, 1)[0] as string;
  return /\\|\/\/|(^|\/)(\.|%2e){1,2}(\/|$)/i.test(path) || !path.startsWith('/');
}

function notAnEndpoint(): Response {
  const refused = refusal('api_does_not_exists');
  return Response.json({ error: refused.errors }, { status: refused.status });
}

function answerBare(outgoing: ServerResponse): void {
  const refused = refusal('api_does_not_exists');
  const body = JSON.stringify({ error: refused.errors });
  outgoing.writeHead(refused.status, { 'content-type': 'application/json', 'content-length': body.length });
  outgoing.end(body);
}
