// Server-sent events: writes them, keeps the connection open, and drops a reader that does not keep up.

import type { ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';
import './fetch-classes.ts';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';

const KEEP_ALIVE_MS = 15_000;
/** How often the reader's access is checked, in addition to checks on changes. */
const ACCESS_CHECK_MS = 4_000;
/** How far a reader may lag before it is dropped. It can resume with Last-Event-ID. */
const MAX_LAG_BYTES = 1024 * 1024;
/** Frames are written in pieces, so that the progress of a slow reader is visible. */
const PIECE_BYTES = 64 * 1024;
/** How long a reader may read nothing before it is dropped. */
const STALL_MS = 60_000;

/** Emitted on a response when the server stops. */
export const STOPPING = 'assay:stopping';

export type EventStream = {
  /** False when the reader has disconnected. */
  readonly open: boolean;
  /** How much of what was sent is not written yet. */
  readonly lagBytes: number;
  /** Sends a frame of any size. Drops a reader that lags too far behind with earlier frames. */
  send(frame: Buffer): void;
  /** Resolves when everything sent so far is written, or the reader has disconnected. Await it between large frames. */
  drained(): Promise<void>;
  onClose(listener: () => void): void;
  end(): void;
};

export function frame(event: string, data: string, id?: string): Buffer {
  const lines = data.split(/\r\n|\r|\n/).map(line => `data: ${line}\n`);
  return Buffer.from(`${id === undefined ? '' : `id: ${id}\n`}event: ${event}\n${lines.join('')}\n`);
}

/** Starts a stream. It ends when a regular check of `isAllowed` returns false. */
export function openStream(outgoing: ServerResponse, isAllowed: () => boolean): EventStream {
  outgoing.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    'x-content-type-options': 'nosniff',
  });
  // With HTTP/2, the underlying stream has the buffer.
  const { stream: http2 } = outgoing as unknown as { stream?: Writable };
  const sink = http2 ?? outgoing;
  // Node would write four buffers for each chunk of HTTP/1.1. Here a chunk is one buffer, which readers share.
  const isChunked = !http2 && outgoing.chunkedEncoding;
  if (isChunked) outgoing.chunkedEncoding = false;
  const closeListeners: (() => void)[] = [];
  let open = true;
  /** Pieces that wait for the reader. */
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let stallTimer: NodeJS.Timeout | undefined;
  let whenDrained: (() => void)[] = [];

  const isDrained = () => waiting.length === 0 && !sink.writableNeedDrain;
  const settleDrained = () => {
    const settled = whenDrained;
    whenDrained = [];
    for (const resolve of settled) resolve();
  };
  const writeNext = (): boolean => {
    const piece = waiting.shift();
    if (piece === undefined) return false;
    waitingBytes -= piece.length;
    outgoing.write(isChunked ? chunkOf(piece) : piece);
    return true;
  };
  const pump = () => {
    clearTimeout(stallTimer);
    stallTimer = undefined;
    while (open && !sink.writableNeedDrain && writeNext());
    if (isDrained()) settleDrained();
    else if (open) stallTimer = setTimeout(() => close(true), STALL_MS);
  };

  const close = (destroy: boolean) => {
    if (!open) return;
    open = false;
    clearInterval(keepAlive);
    clearInterval(check);
    clearTimeout(stallTimer);
    if (destroy) sink.destroy();
    else {
      while (writeNext());
      // The last chunk.
      if (isChunked) outgoing.chunkedEncoding = true;
      outgoing.end();
    }
    settleDrained();
    for (const listener of closeListeners) listener();
  };
  outgoing.on(STOPPING, () => close(false));
  outgoing.on('close', () => close(true));
  outgoing.on('error', () => close(true));
  outgoing.on('drain', pump);
  const keepAlive = setInterval(() => {
    if (isDrained()) stream.send(Buffer.from(': still here\n\n'));
  }, KEEP_ALIVE_MS);
  const check = setInterval(() => {
    if (!isAllowed()) close(false);
  }, ACCESS_CHECK_MS);

  const stream: EventStream = {
    get open() {
      return open;
    },
    get lagBytes() {
      return sink.writableLength + waitingBytes;
    },
    send(bytes) {
      if (!open) return;
      if (stream.lagBytes > MAX_LAG_BYTES) {
        close(true);
        return;
      }
      if (bytes.length <= PIECE_BYTES) waiting.push(bytes);
      else
        for (let at = 0; at < bytes.length; at += PIECE_BYTES)
          waiting.push(bytes.subarray(at, at + PIECE_BYTES));
      waitingBytes += bytes.length;
      // Otherwise the next drain event writes what waits.
      if (stallTimer === undefined) pump();
    },
    drained: () =>
      open && !isDrained() ? new Promise(resolve => whenDrained.push(resolve)) : Promise.resolve(),
    onClose(listener) {
      if (open) closeListeners.push(listener);
      else listener();
    },
    end: () => close(false),
  };
  return stream;
}

let lastPiece: Buffer | undefined;
let lastChunk = Buffer.alloc(0);

/** A piece as a chunk of HTTP/1.1. The readers of a log get the same piece one after the other: it is encoded once. */
function chunkOf(piece: Buffer): Buffer {
  if (piece !== lastPiece) {
    lastPiece = piece;
    lastChunk = Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]);
  }
  return lastChunk;
}

/** What a handler returns after it has opened a stream. */
export function streamResponse(): Response {
  const response = new Response(null, RESPONSE_ALREADY_SENT);
  // Reading the body disables a fast path of the adapter that would write the headers a second time.
  void response.body;
  return response;
}
