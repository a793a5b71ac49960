// Server-sent events on an open answer: writing, keeping it open, and dropping a reader that does not keep up.

import type { ServerResponse } from 'node:http';
import type { Writable } from 'node:stream';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';

const KEEP_OPEN_MS = 15_000;
/** How often it is asked whether the reader may still read, beside being told. */
const ALLOWED_MS = 4_000;
/** What a reader may lag behind before it is dropped; it can come back with Last-Event-ID. */
const MAX_LAG_BYTES = 1024 * 1024;
/** A frame is written in pieces, so that a slow reader is seen to move. */
const PIECE_BYTES = 64 * 1024;
/** How long a reader may take nothing before it is dropped. */
const STALL_MS = 60_000;

/** Emitted on an answer when the server stops. */
export const STOPPING = 'assay:stopping';

export type EventStream = {
  /** False when the reader is gone. */
  readonly open: boolean;
  /** Sends a frame of any size. A reader that still lags far behind with earlier ones is dropped. */
  send(frame: Buffer): void;
  /** Resolves when everything sent so far is on its way, or the reader is gone. Senders of much wait for it. */
  drained(): Promise<void>;
  onClose(listener: () => void): void;
  end(): void;
};

export function frame(event: string, data: string, id?: string): Buffer {
  const lines = data.split(/\r\n|\r|\n/).map(line => `data: ${line}\n`);
  return Buffer.from(`${id === undefined ? '' : `id: ${id}\n`}event: ${event}\n${lines.join('')}\n`);
}

/** Begins a stream. `isAllowed` is asked again and again; false ends it. */
export function openStream(outgoing: ServerResponse, isAllowed: () => boolean): EventStream {
  outgoing.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    'x-content-type-options': 'nosniff',
  });
  // HTTP/2 keeps what is buffered on the stream below.
  const pipe = (outgoing as unknown as { stream?: Writable }).stream ?? outgoing;
  const closed: (() => void)[] = [];
  let open = true;
  /** Pieces that wait until the reader has taken those before. */
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let stalled: NodeJS.Timeout | undefined;
  let whenDrained: (() => void)[] = [];

  const isDrained = () => waiting.length === 0 && !pipe.writableNeedDrain;
  const settleDrained = () => {
    const settled = whenDrained;
    whenDrained = [];
    for (const resolve of settled) resolve();
  };
  const writeNext = (): boolean => {
    const piece = waiting.shift();
    if (piece === undefined) return false;
    waitingBytes -= piece.length;
    outgoing.write(piece);
    return true;
  };
  const pump = () => {
    clearTimeout(stalled);
    stalled = undefined;
    while (open && !pipe.writableNeedDrain && writeNext());
    if (isDrained()) settleDrained();
    else if (open) stalled = setTimeout(() => close(true), STALL_MS);
  };

  const close = (destroy: boolean) => {
    if (!open) return;
    open = false;
    clearInterval(beat);
    clearInterval(check);
    clearTimeout(stalled);
    if (destroy) pipe.destroy();
    else {
      while (writeNext());
      outgoing.end();
    }
    settleDrained();
    for (const listener of closed) listener();
  };
  outgoing.on(STOPPING, () => close(false));
  outgoing.on('close', () => close(true));
  outgoing.on('error', () => close(true));
  outgoing.on('drain', pump);
  const beat = setInterval(() => {
    // What is still on its way keeps it open as well.
    if (isDrained()) stream.send(Buffer.from(': still here\n\n'));
  }, KEEP_OPEN_MS);
  const check = setInterval(() => {
    if (!isAllowed()) close(false);
  }, ALLOWED_MS);

  const stream: EventStream = {
    get open() {
      return open;
    },
    send(bytes) {
      if (!open) return;
      if (pipe.writableLength + waitingBytes > MAX_LAG_BYTES) {
        close(true);
        return;
      }
      for (let at = 0; at < bytes.length; at += PIECE_BYTES)
        waiting.push(bytes.subarray(at, at + PIECE_BYTES));
      waitingBytes += bytes.length;
      // Else what waits goes on with the next drain.
      if (stalled === undefined) pump();
    },
    drained: () =>
      open && !isDrained() ? new Promise(resolve => whenDrained.push(resolve)) : Promise.resolve(),
    onClose(listener) {
      if (open) closed.push(listener);
      else listener();
    },
    end: () => close(false),
  };
  return stream;
}

/** What a handler returns after it has taken over the answer. */
export function streamResponse(): Response {
  const answer = new Response(null, RESPONSE_ALREADY_SENT);
  // Asking for its body takes it off the adaptor's short cut, which would write the head a second time.
  void answer.body;
  return answer;
}
