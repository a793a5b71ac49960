// A growing log for many readers at once: what is new is read from the file and framed once, then sent to all who are there;
// who comes late, or again, reads from the file until it has caught up.

import { type FileHandle, open, stat } from 'node:fs/promises';
import type { Live } from '../live.ts';
import { cutAtCharacter } from '../store/data/log-file.ts';
import { type EventStream, frame } from './http/stream.ts';

/**
 * New output is gathered for longer than the last was sent for: at 1,000 readers a write for each line would cost a core,
 * and on a busy machine more than there is.
 */
const GATHER_LEAST_MS = 15;
const GATHER_MOST_MS = 100;
const gatherMs = (sendingMs: number) => Math.min(GATHER_MOST_MS, Math.max(GATHER_LEAST_MS, sendingMs * 1.5));
const CHUNK_BYTES = 64 * 1024;

export type LogReader = {
  stream: EventStream;
  offset: number;
  /** At the front, where what is new is read once for all. */
  caughtUp: boolean;
  /** What it reads by itself, one after the other: a slow reader holds up nobody else. */
  own: Promise<void>;
};

type Feed = {
  readers: Set<LogReader>;
  /** Where the front is. */
  offset: number;
  unwatch: () => void;
  /** Has what is new read for all at the front, soon. */
  gather: () => void;
  timer: NodeJS.Timeout | undefined;
  /** How long it took to hand the last part to everybody. */
  sendingMs: number;
  busy: Promise<void>;
};

export type LogFeeds = {
  /** Sends the log from `offset` on, until the reader leaves; from its beginning where it is not that long. */
  follow(path: string, topic: string, stream: EventStream, offset: number): LogReader;
  /** Resolves when the reader has everything up to the end of the file, a broken last character included. */
  flush(path: string, reader: LogReader): Promise<void>;
};

export function createLogFeeds(live: Live): LogFeeds {
  const feeds = new Map<string, Feed>();

  const feedOf = (path: string, topic: string): Feed => {
    let feed = feeds.get(path);
    if (!feed) {
      const made: Feed = {
        readers: new Set(),
        offset: 0,
        unwatch: () => {},
        gather() {
          made.timer ??= setTimeout(() => {
            made.timer = undefined;
            made.busy = made.busy
              .then(async () => {
                const beganAt = performance.now();
                await advance(path, made);
                made.sendingMs = performance.now() - beganAt;
              })
              .catch(() => {});
          }, gatherMs(made.sendingMs));
        },
        timer: undefined,
        sendingMs: 0,
        busy: Promise.resolve(),
      };
      made.unwatch = live.watch(topic, made.gather);
      feeds.set(path, made);
      feed = made;
    }
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
      const feed = feedOf(path, topic);
      const reader: LogReader = { stream, offset, caughtUp: false, own: Promise.resolve() };
      feed.readers.add(reader);
      stream.onClose(() => leave(path, reader));
      readOn(reader, async () => {
        if (offset > (await sizeOf(path))) reader.offset = 0;
        await catchUp(path, feed, reader);
      });
      return reader;
    },
    flush: (path, reader) => readOn(reader, () => sendRange(path, reader, true)),
  };
}

/** Takes the reader from the front, to read by itself. */
function readOn(reader: LogReader, read: () => Promise<void>): Promise<void> {
  reader.caughtUp = false;
  reader.own = reader.own.then(read).catch(() => reader.stream.end());
  return reader.own;
}

/** One read and one frame for all readers at the front. */
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
  // One that came meanwhile took the front further than the others had read.
  for (const reader of feed.readers)
    if (reader.caughtUp && reader.offset < feed.offset) readOn(reader, () => catchUp(path, feed, reader));
}

/** Brings one reader from where it is to the front, at its own pace. */
async function catchUp(path: string, feed: Feed, reader: LogReader): Promise<void> {
  for (let from = -1; from < reader.offset; ) {
    from = reader.offset;
    await sendRange(path, reader, false);
    // The front may have moved while the last part was read.
    if (reader.offset >= feed.offset) break;
  }
  feed.offset = Math.max(feed.offset, reader.offset);
  reader.caughtUp = true;
  // What came after its last look and before this moment woke nobody, and nothing more may ever come.
  feed.gather();
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
  /** False ends the reading. */
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
      // A character that is split over two writes is held until whole; at the very end nothing more can come.
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
