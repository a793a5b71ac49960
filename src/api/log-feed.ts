// A growing log for many readers at once: what is new is read from the file and framed once, then sent to all who are there;
// who comes late, or again, reads from the file until it has caught up.

import { type FileHandle, open } from 'node:fs/promises';
import type { Live } from '../live.ts';
import { cutAtCharacter } from '../store/log-file.ts';
import { type EventStream, frame } from './stream.ts';

/** New output is gathered this long: at 1,000 readers a write for each line would cost a core. */
const GATHER_MS = 40;
const CHUNK_BYTES = 64 * 1024;

export type LogReader = {
  stream: EventStream;
  offset: number;
  /** At the front: what is new comes to it with everybody else's. */
  caughtUp: boolean;
  catchingUp: Promise<void>;
};

type Feed = {
  readers: Set<LogReader>;
  /** Where the front is: nobody who has caught up is behind it. */
  offset: number;
  unwatch: () => void;
  timer: NodeJS.Timeout | undefined;
  advancing: Promise<void>;
};

export type LogFeeds = {
  /** Sends the log from `offset` on, until the reader leaves. */
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
        timer: undefined,
        advancing: Promise.resolve(),
      };
      const gather = () => {
        made.timer ??= setTimeout(() => {
          made.timer = undefined;
          made.advancing = made.advancing.then(() => advance(path, made)).catch(() => {});
        }, GATHER_MS);
      };
      made.unwatch = live.watch(topic, gather);
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
      const reader: LogReader = { stream, offset, caughtUp: false, catchingUp: Promise.resolve() };
      feed.readers.add(reader);
      stream.onClose(() => leave(path, reader));
      reader.catchingUp = catchUp(path, feed, reader).catch(() => stream.end());
      return reader;
    },
    async flush(path, reader) {
      await reader.catchingUp;
      // From here on nothing but this call sends to it.
      reader.caughtUp = false;
      await sendRange(path, reader, true).catch(() => reader.stream.end());
    },
  };
}

/** One read and one frame for all readers at the front. */
async function advance(path: string, feed: Feed): Promise<void> {
  if (![...feed.readers].some(reader => reader.caughtUp)) return;
  await readChunks(path, feed.offset, false, (bytes, offset) => {
    const end = offset + bytes.length;
    const chunk = logFrame(bytes, offset);
    for (const reader of feed.readers) {
      if (!reader.caughtUp || reader.offset >= end) continue;
      // Who came to the front while this was read may have a part of it already.
      reader.stream.send(
        reader.offset === offset ? chunk : logFrame(bytes.subarray(reader.offset - offset), reader.offset),
      );
      reader.offset = end;
    }
    feed.offset = end;
  });
}

/** Brings one reader from where it is to the front, at its own pace, which is nobody else's. */
async function catchUp(path: string, feed: Feed, reader: LogReader): Promise<void> {
  do await sendRange(path, reader, false);
  while (reader.offset < feed.offset && reader.stream.open);
  if (![...feed.readers].some(other => other.caughtUp)) feed.offset = reader.offset;
  reader.caughtUp = true;
}

async function sendRange(path: string, reader: LogReader, final: boolean): Promise<void> {
  await readChunks(path, reader.offset, final, async (bytes, offset) => {
    reader.stream.send(logFrame(bytes, offset));
    reader.offset = offset + bytes.length;
    await reader.stream.drained();
  });
}

async function readChunks(
  path: string,
  from: number,
  final: boolean,
  take: (bytes: Buffer, offset: number) => void | Promise<void>,
): Promise<void> {
  let file: FileHandle;
  try {
    file = await open(path, 'r');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw cause;
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
      await take(read.subarray(0, whole), offset);
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
