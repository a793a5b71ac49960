// The open connections: how long one may idle, how many are kept open for clients that have not shown credentials, and
// when one is closed that has ended, stalls, or opens streams only to reset them.

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2SecureServer, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';

export type ConnectionLimits = {
  /** How often the limits below are checked. */
  checkMs: number;
  handshakeMs: number;
  /** From TLS to the end of the first request's headers, and from the beginning of any headers to their end. */
  headersMs: number;
  /** Without a request, after the first one. */
  keepAliveMs: number;
  /** For the client to close as well, after the server has. */
  lingerMs: number;
  /** Without a byte in either direction, while a request is handled. */
  stallMs: number;
  /** Streams of one HTTP/2 connection that may be open at once. */
  maxStreams: number;
  /** Streams of one HTTP/2 connection that its client may reset before they are handled. */
  resets: { burst: number; perSecond: number };
  /** Connections on which no request has carried valid credentials. */
  unauthenticated: {
    perAddress: number;
    total: number;
    /** The total with those that are younger than `settleMs`, which may be about to send their first request. */
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

export type Connection = {
  readonly socket: Socket;
  /** Whom it counts for; undefined where many clients share an address. */
  readonly clientKey: string | undefined;
  readonly openedAt: number;
  secure: TLSSocket | undefined;
  session: ServerHttp2Session | undefined;
  isAuthenticated: boolean;
  markAuthenticated(): void;
  /** Requests that are being handled. */
  requests: number;
  /** The response to the latest request. */
  latest: ServerResponse | undefined;
  hasServed: boolean;
  /** When the last request began or ended. */
  activeAt: number;
  /** How many bytes had moved, and when the last did. */
  moved: { bytes: number; at: number };
  /** Since when the server has nothing more to send. */
  finishedAt: number | undefined;
  lastStreamId: number;
  /** Headers that have begun and not ended. */
  unfinished: { streamId: number; since: number } | undefined;
  /** Streams that were opened and not yet handled. */
  unhandled: number;
  resets: { count: number; at: number };
};

export type Connections = {
  readonly open: ReadonlySet<Connection>;
  /** Responses that have not ended. */
  readonly responses: ReadonlySet<ServerResponse>;
  /** The connection of a TLS socket or an HTTP/2 session. */
  find(socket: object): Connection | undefined;
  /** From now on a connection of HTTP/1.1 is closed after the response to its request. */
  closeAfterResponses(): void;
  /** Has a request handled by `answer`, unless it is reset before its turn. */
  handle(incoming: IncomingMessage, outgoing: ServerResponse, answer: () => void): void;
};

/** Of an HTTP/2 connection with valid credentials: what of its uploads may be under way. */
const AUTHENTICATED_WINDOW_BYTES = 4 * 1024 ** 2;

const CONNECTION = Symbol('connection');
type Tracked = ServerResponse & { [CONNECTION]?: Connection };

/** Called for a request with valid credentials: its connection is no longer bounded like those without. */
export function markAuthenticated(outgoing: ServerResponse | undefined): void {
  (outgoing as Tracked | undefined)?.[CONNECTION]?.markAuthenticated();
}

/** `clientKeyOf` says whom an address counts for; undefined where it is that of many clients, as a proxy's is. */
export function watchConnections(
  server: Http2SecureServer,
  limits: ConnectionLimits,
  clientKeyOf: (address: string) => string | undefined,
): Connections {
  const open = new Set<Connection>();
  const responses = new Set<ServerResponse>();
  let isClosing = false;
  /** Those without credentials, the oldest first. */
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
  /** Closes what is above `most`: idle connections before others, and those first that have been so for longest. */
  const evictAbove = (most: number, connections: Connection[]) => {
    const order = (one: Connection, other: Connection) =>
      Math.sign(one.requests) - Math.sign(other.requests) || one.activeAt - other.activeAt;
    const excess = Math.max(0, connections.length - most);
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
      latest: undefined,
      hasServed: false,
      activeAt: now,
      moved: { bytes: 0, at: now },
      finishedAt: undefined,
      lastStreamId: 0,
      unfinished: undefined,
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
    const held = Map.groupBy(unauthenticated.values().filter(isSettled), one => one.clientKey);
    held.delete(undefined);
    for (const ofOne of held.values()) evictAbove(limits.unauthenticated.perAddress, ofOne);
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
    handle(incoming, outgoing, answer) {
      const { stream } = incoming as { stream?: ServerHttp2Stream };
      const connection = bySocket.get(stream?.session ?? incoming.socket);
      // Its peer is gone.
      if (!connection) {
        outgoing.destroy();
        return;
      }
      (outgoing as Tracked)[CONNECTION] = connection;
      responses.add(outgoing);
      connection.requests += 1;
      connection.latest = outgoing;
      connection.hasServed = true;
      connection.activeAt = performance.now();
      outgoing.on('close', () => {
        responses.delete(outgoing);
        connection.requests -= 1;
        connection.activeAt = performance.now();
        if (isClosing && !stream) incoming.socket.destroySoon();
      });
      if (stream) handleInTurn(connection, stream, limits, answer);
      else answer();
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

/**
 * All frames that have arrived together are read before any request is handled: a stream that is reset in them costs
 * no more than that.
 */
function handleInTurn(
  connection: Connection,
  stream: ServerHttp2Stream,
  limits: ConnectionLimits,
  answer: () => void,
): void {
  connection.lastStreamId = stream.id ?? 0;
  connection.unhandled += 1;
  // More than may be open at once: most are reset already.
  if (connection.unhandled > limits.maxStreams) connection.session?.destroy();
  setImmediate(() => {
    connection.unhandled -= 1;
    if (!stream.destroyed && !stream.closed) answer();
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
  const { socket, secure, session, moved } = connection;
  if (!secure) return;
  const isEnded = secure.writableEnded;
  const bytes = socket.bytesWritten - secure.writableLength + (isEnded ? 0 : socket.bytesRead);
  if (bytes !== moved.bytes) connection.moved = { bytes, at: now };
  else if ((connection.requests > 0 || isEnded) && now - moved.at > limits.stallMs) socket.destroy();
  if (secure.writableFinished) {
    connection.finishedAt ??= now;
    if (now - connection.finishedAt >= limits.lingerMs) socket.destroy();
  } else if (session && !session.destroyed) checkSession(connection, session, limits, now);
}

/** The limits that Node.js applies to HTTP/1.1 alone. */
function checkSession(
  connection: Connection,
  session: ServerHttp2Session,
  limits: ConnectionLimits,
  now: number,
): void {
  const idleMs = now - connection.activeAt;
  if (!connection.hasServed && idleMs >= limits.headersMs) connection.socket.destroy();
  else if (connection.requests === 0 && idleMs >= limits.keepAliveMs) session.close();
  // Malformed headers look the same. They do not end a connection that others may share.
  else if (!connection.isAuthenticated && areHeadersLate(connection, session, limits, now))
    connection.socket.destroy();
}

/** A stream is known to the session from its first frame on, and is handled when its headers are complete. */
function areHeadersLate(
  connection: Connection,
  session: ServerHttp2Session,
  limits: ConnectionLimits,
  now: number,
): boolean {
  const streamId = session.state.lastProcStreamID ?? 0;
  if (streamId <= connection.lastStreamId) connection.unfinished = undefined;
  else if (connection.unfinished?.streamId !== streamId) connection.unfinished = { streamId, since: now };
  else return now - connection.unfinished.since >= limits.headersMs;
  return false;
}
