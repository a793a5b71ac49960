// Tracks open connections and enforces their limits: idle time, stalls, HTTP/2 resets, and the number of connections
// without valid credentials.

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2SecureServer, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';

export type ConnectionLimits = {
  /** How often the limits below are checked. */
  checkMs: number;
  handshakeMs: number;
  /** From the TLS handshake to the end of the first request's headers, and from the start of any headers to their end. */
  headersMs: number;
  /** Between requests. */
  keepAliveMs: number;
  /** For the client to close the connection after the server has. */
  lingerMs: number;
  /** Without a byte in either direction while a request is handled. */
  stallMs: number;
  /** Concurrent streams of one HTTP/2 connection. */
  maxStreams: number;
  /** How many streams of an HTTP/2 connection its client may reset before they are handled. */
  resets: { burst: number; perSecond: number };
  /** Connections on which no request has carried valid credentials. */
  unauthenticated: {
    perAddress: number;
    total: number;
    /** The total including connections younger than `settleMs`, which may be about to send their first request. */
    totalWithYoung: number;
    settleMs: number;
  };
};

export const connectionLimits: ConnectionLimits = {
  checkMs: 1_000,
  handshakeMs: 15_000,
  headersMs: 15_000,
  keepAliveMs: 75_000,
  lingerMs: 2_000,
  stallMs: 300_000,
  maxStreams: 100,
  resets: { burst: 100, perSecond: 10 },
  unauthenticated: { perAddress: 100, total: 400, totalWithYoung: 800, settleMs: 3_000 },
};

type Connection = {
  readonly socket: Socket;
  /** Identifies its client for the limit per address; undefined if many clients share the address, as behind a proxy. */
  readonly clientKey: string | undefined;
  readonly openedAt: number;
  secure: TLSSocket | undefined;
  session: ServerHttp2Session | undefined;
  isAuthenticated: boolean;
  markAuthenticated(): void;
  /** Requests that are being handled. */
  requests: number;
  /** Of HTTP/1.1. Undefined before the first one, and after one that is complete: idle connections keep no responses in memory. */
  latestResponse: ServerResponse | undefined;
  hasServed: boolean;
  /** When the last request started or ended. */
  activeAt: number;
  /** Bytes sent and received, and when that number last changed. */
  traffic: { bytes: number; at: number };
  /** When the server sent its last byte. */
  finishedAt: number | undefined;
  lastStreamId: number;
  /** A stream whose headers are incomplete. */
  incompleteHeaders: { streamId: number; since: number } | undefined;
  /** Streams that were opened and are not handled yet. */
  unhandled: number;
  resets: { count: number; at: number };
};

type Connections = {
  readonly open: ReadonlySet<Connection>;
  /** Unfinished responses. */
  readonly responses: ReadonlySet<ServerResponse>;
  /** The connection of a TLS socket or an HTTP/2 session. */
  find(socket: object): Connection | undefined;
  /** From now on, closes each HTTP/1.1 connection after its current response. */
  closeAfterResponses(): void;
  /** Runs `respond`, unless the client resets the request first. */
  handle(incoming: IncomingMessage, outgoing: ServerResponse, respond: () => void): void;
};

/** The HTTP/2 flow-control window of a connection with valid credentials. */
const AUTHENTICATED_WINDOW_BYTES = 4 * 1024 ** 2;

const CONNECTION = Symbol('connection');
type Tracked = ServerResponse & { [CONNECTION]?: Connection };

/** An object that stands for the connection of a request as long as it is open. */
export const connectionOf = (outgoing: ServerResponse | undefined): object | undefined =>
  (outgoing as Tracked | undefined)?.[CONNECTION];

/** Exempts the connection of a request with valid credentials from the limits for unauthenticated ones. */
export function markAuthenticated(outgoing: ServerResponse | undefined): void {
  (outgoing as Tracked | undefined)?.[CONNECTION]?.markAuthenticated();
}

export function watchConnections(
  server: Http2SecureServer,
  limits: ConnectionLimits,
  clientKeyOf: (address: string) => string | undefined,
): Connections {
  const open = new Set<Connection>();
  const responses = new Set<ServerResponse>();
  let isClosing = false;
  /** The oldest first. */
  const unauthenticated = new Set<Connection>();
  const byPeer = new Map<string, Connection>();
  const bySocket = new WeakMap<object, Connection>();

  const terminate = (connection: Connection) => {
    unauthenticated.delete(connection);
    connection.socket.destroy();
  };
  const evictOldest = () => {
    const [oldest] = unauthenticated;
    const idle = unauthenticated.values().find(one => one.requests === 0) ?? oldest;
    if (idle) terminate(idle);
  };
  /** Closes connections until `max` are left: idle ones first, the least recently active before others. */
  const evictAbove = (max: number, connections: Connection[]) => {
    const order = (one: Connection, other: Connection) =>
      Math.sign(one.requests) - Math.sign(other.requests) || one.activeAt - other.activeAt;
    const excess = Math.max(0, connections.length - max);
    for (const connection of connections.sort(order).slice(0, excess)) terminate(connection);
  };

  server.on('connection', (socket: Socket) => {
    const peer = peerOf(socket);
    const now = performance.now();
    const connection: Connection = {
      socket,
      clientKey: clientKeyOf(socket.remoteAddress ?? ''),
      openedAt: now,
      secure: undefined,
      session: undefined,
      isAuthenticated: false,
      markAuthenticated() {
        if (connection.isAuthenticated) return;
        connection.isAuthenticated = true;
        connection.session?.setLocalWindowSize(AUTHENTICATED_WINDOW_BYTES);
        unauthenticated.delete(connection);
      },
      requests: 0,
      latestResponse: undefined,
      hasServed: false,
      activeAt: now,
      traffic: { bytes: 0, at: now },
      finishedAt: undefined,
      lastStreamId: 0,
      incompleteHeaders: undefined,
      unhandled: 0,
      resets: { count: 0, at: now },
    };
    open.add(connection);
    unauthenticated.add(connection);
    byPeer.set(peer, connection);
    socket.once('close', () => {
      open.delete(connection);
      unauthenticated.delete(connection);
      if (byPeer.get(peer) === connection) byPeer.delete(peer);
    });
    if (unauthenticated.size > limits.unauthenticated.totalWithYoung) evictOldest();
  });
  server.on('secureConnection', (secure: TLSSocket) => {
    const connection = byPeer.get(peerOf(secure));
    if (!connection) return;
    connection.secure = secure;
    connection.activeAt = performance.now();
    bySocket.set(secure, connection);
  });
  server.on('session', (session: ServerHttp2Session) => {
    const connection = byPeer.get(peerOf(session.socket));
    if (!connection) return;
    connection.session = session;
    bySocket.set(session, connection);
  });

  const check = () => {
    const now = performance.now();
    for (const connection of open) checkOne(connection, limits, now);
    const isSettled = ({ openedAt }: Connection) => now - openedAt >= limits.unauthenticated.settleMs;
    const byClient = Map.groupBy(unauthenticated.values().filter(isSettled), one => one.clientKey);
    byClient.delete(undefined);
    for (const ofClient of byClient.values()) evictAbove(limits.unauthenticated.perAddress, ofClient);
    evictAbove(limits.unauthenticated.total, [...unauthenticated.values().filter(isSettled)]);
  };
  let timer: NodeJS.Timeout | undefined;
  server.once('listening', () => {
    timer = setInterval(check, limits.checkMs);
  });
  server.once('close', () => clearInterval(timer));

  return {
    open,
    responses,
    find: socket => bySocket.get(socket),
    closeAfterResponses() {
      isClosing = true;
    },
    handle(incoming, outgoing, respond) {
      const { stream } = incoming as { stream?: ServerHttp2Stream };
      const connection = bySocket.get(stream?.session ?? incoming.socket);
      // The client has disconnected.
      if (!connection) {
        outgoing.destroy();
        return;
      }
      (outgoing as Tracked)[CONNECTION] = connection;
      responses.add(outgoing);
      connection.requests += 1;
      if (!stream) connection.latestResponse = outgoing;
      connection.hasServed = true;
      connection.activeAt = performance.now();
      outgoing.on('close', () => {
        responses.delete(outgoing);
        connection.requests -= 1;
        connection.activeAt = performance.now();
        if (incoming.complete && outgoing.shouldKeepAlive && connection.latestResponse === outgoing)
          connection.latestResponse = undefined;
        if (isClosing && !stream) incoming.socket.destroySoon();
      });
      if (stream) handleInTurn(connection, stream, limits, respond);
      else respond();
    },
  };
}

const peerOf = ({
  remoteAddress,
  remotePort,
}: {
  remoteAddress?: string | undefined;
  remotePort?: number | undefined;
}) => `${remoteAddress} ${remotePort}`;

/** Reads all frames that arrived together before handling any request, so that a stream reset in them costs little. */
function handleInTurn(
  connection: Connection,
  stream: ServerHttp2Stream,
  limits: ConnectionLimits,
  respond: () => void,
): void {
  connection.lastStreamId = stream.id ?? 0;
  connection.unhandled += 1;
  // More than may be open at once, so most are already reset.
  if (connection.unhandled > limits.maxStreams) connection.session?.destroy();
  setImmediate(() => {
    connection.unhandled -= 1;
    if (!stream.destroyed && !stream.closed) respond();
    else if (!connection.socket.destroyed) countReset(connection, limits);
  });
}

function countReset(
  { resets, socket }: Connection,
  { resets: { burst, perSecond } }: ConnectionLimits,
): void {
  const now = performance.now();
  resets.count = Math.max(0, resets.count - ((now - resets.at) / 1_000) * perSecond) + 1;
  resets.at = now;
  if (resets.count > burst) socket.destroy();
}

function checkOne(connection: Connection, limits: ConnectionLimits, now: number): void {
  const { socket, secure, session, traffic } = connection;
  if (!secure) return;
  const isEnded = secure.writableEnded;
  // Node.js closes idle connections of HTTP/1.1. Counting their bytes too would delay requests when there are many.
  if (connection.requests === 0 && !isEnded && !session) return;
  const bytes = socket.bytesWritten - secure.writableLength + (isEnded ? 0 : socket.bytesRead);
  if (bytes !== traffic.bytes) connection.traffic = { bytes, at: now };
  else if ((connection.requests > 0 || isEnded) && now - traffic.at > limits.stallMs) socket.destroy();
  if (secure.writableFinished) {
    connection.finishedAt ??= now;
    if (now - connection.finishedAt >= limits.lingerMs) socket.destroy();
  } else if (session && !session.destroyed) checkSession(connection, session, limits, now);
}

/** Enforces for HTTP/2 the limits that Node.js applies only to HTTP/1.1. */
function checkSession(
  connection: Connection,
  session: ServerHttp2Session,
  limits: ConnectionLimits,
  now: number,
): void {
  const idleMs = now - connection.activeAt;
  if (!connection.hasServed && idleMs >= limits.headersMs) connection.socket.destroy();
  else if (connection.requests === 0 && idleMs >= limits.keepAliveMs) session.close();
  // Malformed headers look the same. They must not end an authenticated connection, which clients may share.
  else if (!connection.isAuthenticated && areHeadersLate(connection, session, limits, now))
    connection.socket.destroy();
}

/** The session knows a stream from its first frame. The stream is handled when its headers are complete. */
function areHeadersLate(
  connection: Connection,
  session: ServerHttp2Session,
  limits: ConnectionLimits,
  now: number,
): boolean {
  const streamId = session.state.lastProcStreamID ?? 0;
  if (streamId <= connection.lastStreamId) connection.incompleteHeaders = undefined;
  else if (connection.incompleteHeaders?.streamId !== streamId)
    connection.incompleteHeaders = { streamId, since: now };
  else return now - connection.incompleteHeaders.since >= limits.headersMs;
  return false;
}
