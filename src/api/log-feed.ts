// Sends a growing log to many readers. New output is read from the file and framed once, then sent to every reader that has
// caught up. A reader that is behind reads from the file by itself.

import { type FileHandle, open, stat } from 'node:fs/promises';
import type { Live } from '../live.ts';
import { cutAtCharacter } from '../store/data/log-file.ts';
import { type EventStream, frame } from './http/stream.ts';

/** New output is batched for longer than the last batch took to send: with 1,000 readers, one write per line costs a core. */
const MIN_BATCH_MS = 15;
const MAX_BATCH_MS = 100;
const batchMs = (sendingMs: number) => Math.min(MAX_BATCH_MS, Math.max(MIN_BATCH_MS, sendingMs * 1.5));
const CHUNK_BYTES = 64 * 1024;

export type LogReader = {
  stream: EventStream;
  offset: number;
  /** Whether it gets the shared reads of new output. */
  caughtUp: boolean;
  /** Its own reads, in order. A slow reader does not delay the others. */
  ownReads: Promise<void>;
};

type Feed = {
  readers: Set<LogReader>;
  /** How far the readers that have caught up have read. */
  offset: number;
  unwatch: () => void;
  /** Schedules a shared read of new output. */
  schedule: () => void;
  timer: NodeJS.Timeout | undefined;
  /** How long the last batch took to send to all readers. */
  sendingMs: number;
  busy: Promise<void>;
};

export type LogFeeds = {
  /** Sends the log from `offset` on until the stream closes; from the beginning if the log is shorter. */
  follow(path: string, topic: string, stream: EventStream, offset: number): LogReader;
  /** Resolves when the reader has everything up to the end of the file, a broken last character included. */
  flush(path: string, reader: LogReader): Promise<void>;
};

export function createLogFeeds(live: Live): LogFeeds {
  const feeds = new Map<string, Feed>();

  const openFeed = (path: string, topic: string): Feed => {
    const open = feeds.get(path);
    if (open) return open;
    const feed: Feed = {
      readers: new Set(),
      offset: 0,
      unwatch: () => {},
      schedule() {
        feed.timer ??= setTimeout(() => {
          feed.timer = undefined;
          feed.busy = feed.busy
            .then(async () => {
              const startedAt = performance.now();
              await advance(path, feed);
              feed.sendingMs = performance.now() - startedAt;
            })
            .catch(() => {});
        }, batchMs(feed.sendingMs));
      },
      timer: undefined,
      sendingMs: 0,
      busy: Promise.resolve(),
    };
    feed.unwatch = live.watch(topic, feed.schedule);
    feeds.set(path, feed);
    return feed;
  };

  const leave = (path: string, reader: LogReader) => {
    const feed = feeds.get(path);
    if (!feed?.readers.delete(reader) || feed.readers.size > 0) return;
    feed.unwatch();
    clearTimeout(feed.timer);
    feeds.delete(path);
  };

  return {
    follow(path, topic, stream, offset) {
      const feed = openFeed(path, topic);
      const reader: LogReader = { stream, offset, caughtUp: false, ownReads: Promise.resolve() };
      feed.readers.add(reader);
      stream.onClose(() => leave(path, reader));
      readAlone(reader, async () => {
        if (offset > (await sizeOf(path))) reader.offset = 0;
        await catchUp(path, feed, reader);
      });
      return reader;
    },
    flush: (path, reader) => readAlone(reader, () => sendRange(path, reader, true)),
  };
}

/** Excludes the reader from shared reads while it reads by itself. */
function readAlone(reader: LogReader, read: () => Promise<void>): Promise<void> {
  reader.caughtUp = false;
  reader.ownReads = reader.ownReads.then(read).catch(() => reader.stream.end());
  return reader.ownReads;
}

/** One read and one frame for all readers that have caught up. */
async function advance(path: string, feed: Feed): Promise<void> {
  if (![...feed.readers].some(reader => reader.caughtUp)) return;
  await readChunks(path, feed.offset, false, (bytes, offset) => {
    const chunk = logFrame(bytes, offset);
    for (const reader of feed.readers) {
      if (!reader.caughtUp || reader.offset !== offset) continue;
      reader.stream.send(chunk);
      reader.offset = offset + bytes.length;
    }
    feed.offset = Math.max(feed.offset, offset + bytes.length);
    return true;
  });
  // A reader that caught up meanwhile may have advanced the feed beyond the others.
  for (const reader of feed.readers)
    if (reader.caughtUp && reader.offset < feed.offset) readAlone(reader, () => catchUp(path, feed, reader));
}

/** Sends one reader everything up to the feed's offset, at its own pace. */
async function catchUp(path: string, feed: Feed, reader: LogReader): Promise<void> {
  for (let from = -1; from < reader.offset; ) {
    from = reader.offset;
    await sendRange(path, reader, false);
    // The feed may have advanced during this read.
    if (reader.offset >= feed.offset) break;
  }
  feed.offset = Math.max(feed.offset, reader.offset);
  reader.caughtUp = true;
  // Output written after the last read and before `caughtUp` was set has no other trigger.
  feed.schedule();
}

async function sizeOf(path: string): Promise<number> {
  return (await stat(path).catch(() => undefined))?.size ?? 0;
}

async function sendRange(path: string, reader: LogReader, final: boolean): Promise<void> {
  await readChunks(path, reader.offset, final, async (bytes, offset) => {
    reader.stream.send(logFrame(bytes, offset));
    reader.offset = offset + bytes.length;
    await reader.stream.drained();
    return reader.stream.open;
  });
}

async function readChunks(
  path: string,
  from: number,
  final: boolean,
  /** Returns false to stop reading. */
  take: (bytes: Buffer, offset: number) => boolean | Promise<boolean>,
): Promise<void> {
  let file: FileHandle;
  try {
    file = await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  try {
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    for (let offset = from; ; ) {
      const { bytesRead } = await file.read(buffer, 0, CHUNK_BYTES, offset);
      if (bytesRead === 0) return;
      const read = buffer.subarray(0, bytesRead);
      // A character split over two writes waits until it is complete, except at the end of the log.
      const whole = bytesRead < CHUNK_BYTES && final ? bytesRead : cutAtCharacter(read);
      if (whole === 0) return;
      if (!(await take(read.subarray(0, whole), offset))) return;
      offset += whole;
    }
  } finally {
    await file.close();
  }
}

function logFrame(bytes: Buffer, offset: number): Buffer {
  return frame(
    'log',
    JSON.stringify({ offset, text: bytes.toString('utf8') }),
    String(offset + bytes.length),
  );
}
