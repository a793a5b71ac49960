// The HTTPS listener: HTTP/1.1 and HTTP/2 on one port, with limits on slow, oversized and malformed requests.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { createSecureServer, type Http2SecureServer } from 'node:http2';
import { type AddressInfo, BoundSocket, isIPv4, type Socket } from 'node:net';
import './fetch-classes.ts';
import { getRequestListener } from '@hono/node-server';
import { refusal } from '../../domain/refusal.ts';
import type { Log } from '../../log.ts';
import { type ConnectionLimits, connectionLimits, watchConnections } from './connections.ts';
import { STOPPING } from './stream.ts';

const MAX_HEADER_BYTES = 32 * 1024;
// The flow-control window of a stream. Until it is authenticated, a whole connection has 64 KiB.
const STREAM_WINDOW_BYTES = 1024 ** 2;
const MAX_DISCARDED_BYTES = 64 * 1024;
const CLOSE_MS = 5_000;
const ABSOLUTE_FORM = /^https:\/\/((?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)([/?].*)?$/i;

export type Server = {
  port: number;
  /** Uses a renewed certificate for new connections. Keeps open ones. */
  setCertificate(certificate: { cert: string; key: string }): void;
  /** Stops listening, lets responses finish, and ends streams. */
  close(): Promise<void>;
};

type Fetch = (request: Request, env: { outgoing: ServerResponse }) => Response | Promise<Response>;

export async function startServer(options: {
  host: string;
  port: number;
  certificate: { cert: string; key: string };
  fetch: Fetch;
  log: Log;
  /** See `Connection.clientKey`. */
  clientKeyOf: (address: string) => string | undefined;
  limits?: ConnectionLimits;
}): Promise<Server> {
  const { limits = connectionLimits } = options;
  const listener = getRequestListener(options.fetch as Parameters<typeof getRequestListener>[0], {
    errorHandler: () => notAnEndpoint(),
  });
  // The router responds to a request without a Host header, instead of Node.
  const http1 = { connectionsCheckingInterval: limits.checkMs, requireHostHeader: false };
  const server = createSecureServer({
    ...contextOf(options.certificate),
    ...http1,
    allowHTTP1: true,
    // Node sets this by itself for HTTP/2, but not for HTTP/1.1 here. Without it, what follows the first part of a
    // response waits 40 ms for the client's acknowledgement.
    noDelay: true,
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
  setHttp1Limits(server, limits);

  const connections = watchConnections(server, limits, options.clientKeyOf);
  const respond = (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (mayBeLong(incoming)) closeUnlessRead(incoming, outgoing);
    if (incoming.httpVersionMajor === 1 && !incoming.url?.startsWith('/')) readAbsoluteForm(incoming);
    // A path that a URL parser would normalize is not an endpoint.
    if (!isNormalized(incoming.url ?? '')) respondNotAnEndpoint(outgoing);
    else
      listener(incoming, outgoing).catch((error: unknown) => {
        options.log.error('response could not be written', { cause: error });
        outgoing.destroy();
      });
  };
  const handle = (incoming: IncomingMessage, outgoing: ServerResponse) =>
    connections.handle(incoming, outgoing, () => respond(incoming, outgoing));
  server.on('request', handle);
  // `100 Continue` is sent only when the body is read, so a refusal can come instead.
  server.on('checkContinue', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    closeUnlessRead(incoming, outgoing);
    continueWhenRead(incoming, outgoing);
    handle(incoming, outgoing);
  });
  // Without this, Node responds 417 to unknown expectations, which is not in the API contract.
  server.on('checkExpectation', handle);
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    const latest = connections.find(socket)?.latestResponse;
    if (socket.destroyed || !socket.writable || error.code === 'ECONNRESET') socket.destroy();
    // The malformed request already has its response, or follows the last response of the connection.
    else if (latest?.headersSent && !(latest.req.complete && latest.shouldKeepAlive)) socket.destroySoon();
    else
      socket.end(
        'HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n' +
          JSON.stringify({ error: refusal('api_does_not_exists').errors }),
      );
  });
  // Plain HTTP, a scanner, or a client that does not trust the certificate: close without logging.
  server.on('tlsClientError', (_: Error, socket: Socket) => socket.destroy());
  server.on('sessionError', (error: Error) =>
    options.log.debug('HTTP/2 session ended', { cause: error.message }),
  );

  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    const listening = () => {
      server.off('error', reject);
      resolve();
    };
    const { host, port } = options;
    // With a host, Node looks it up, and compiles its regular expression for IPv6, which takes 7 ms of a start.
    if (isIPv4(host)) server.listen(new BoundSocket({ host, port }), listening);
    else server.listen(port, host, listening);
  });
  server.on('error', (error: Error) => options.log.error('listener failed', { cause: error }));

  return {
    port: (server.address() as AddressInfo).port,
    setCertificate: certificate => server.setSecureContext(contextOf(certificate)),
    close: () =>
      new Promise(resolve => {
        const timer = setTimeout(() => {
          for (const { socket } of connections.open) socket.destroy();
        }, CLOSE_MS);
        server.close(() => {
          clearTimeout(timer);
          resolve();
        });
        connections.closeAfterResponses();
        for (const { session, socket, requests } of connections.open)
          if (session) session.close();
          else if (requests === 0) socket.destroy();
        // Streams would not end by themselves. Their readers reconnect to the next server.
        for (const outgoing of connections.responses) outgoing.emit(STOPPING);
      }),
  };
}

/** Clients show no certificates. Without an empty list, the start would wait until Node has decoded all public authorities. */
const contextOf = ({ cert, key }: { cert: string; key: string }) => ({ cert, key, ca: [] });

/** The HTTP/2 server takes the limits of HTTP/1.1 as properties. */
function setHttp1Limits(server: Http2SecureServer, { headersMs, keepAliveMs }: ConnectionLimits): void {
  Object.assign(server, {
    headersTimeout: headersMs,
    // Long uploads are allowed. The code that reads a body detects stalls.
    requestTimeout: 0,
    keepAliveTimeout: keepAliveMs,
    maxRequestsPerSocket: 0,
  });
}

/** Whether the body may be too long to read it only to discard it. */
function mayBeLong({ httpVersionMajor, headers }: IncomingMessage): boolean {
  const length = headers['content-length'];
  return (
    httpVersionMajor === 1 &&
    (headers['transfer-encoding'] !== undefined || Number(length ?? 0) > MAX_DISCARDED_BYTES)
  );
}

/** Sends `100 Continue` when the body is first read. */
function continueWhenRead(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const read = incoming._read;
  incoming._read = size => {
    incoming._read = read;
    // A body that is only discarded is read after the response.
    if (!outgoing.headersSent) outgoing.writeContinue();
    incoming._read(size);
  };
}

/**
 * HTTP/1.1 allows a whole URL as the target, whose host replaces the Host header. Reduces an https URL to its path. Any
 * other target stays as it is and is not an endpoint.
 */
function readAbsoluteForm(incoming: IncomingMessage): void {
  const [, authority, path = ''] = ABSOLUTE_FORM.exec(incoming.url ?? '') ?? [];
  if (authority === undefined || incoming.headers.host === undefined) return;
  if (!URL.canParse(`https://${authority}`)) return;
  incoming.url = path.startsWith('/') ? path : `/${path}`;
  incoming.headers.host = authority;
}

/** Closes the connection after a response that comes before the end of the body, because the rest is still arriving. */
function closeUnlessRead(incoming: IncomingMessage, outgoing: ServerResponse): void {
  if (incoming.httpVersionMajor > 1) return;
  const writeHead = outgoing.writeHead;
  outgoing.writeHead = ((...head: Parameters<typeof writeHead>) => {
    if (!incoming.complete) outgoing.shouldKeepAlive = false;
    return writeHead.apply(outgoing, head);
  }) as typeof writeHead;
}

/** A path with `\`, `//`, `.` or `..`. */
const UNNORMALIZED = /^[^?#]*?(?:\\|\/\/|\/(?:\.|%2e){1,2}(?:[/?#]|$))/i;

const isNormalized = (target: string) => target.startsWith('/') && !UNNORMALIZED.test(target);

function notAnEndpoint(): Response {
  const refused = refusal('api_does_not_exists');
  return Response.json({ error: refused.errors }, { status: refused.status });
}

function respondNotAnEndpoint(outgoing: ServerResponse): void {
  const refused = refusal('api_does_not_exists');
  const body = JSON.stringify({ error: refused.errors });
  outgoing.writeHead(refused.status, { 'content-type': 'application/json', 'content-length': body.length });
  outgoing.end(body);
}
