// Sends a growing log to many readers. Readers that have caught up form groups: new output is read from the file and framed
// once for each group. A reader that is behind reads from the file by itself.

import { closeSync, openSync, readSync } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import type { Live } from '../live.ts';
import { cutAtCharacter } from '../store/data/log-file.ts';
import { type EventStream, frame } from './http/stream.ts';

/** Sending to one group blocks the process for about 2 ms. */
const GROUP_READERS = 100;
/** A group gets new output at most this often. */
const BATCH_MS = 15;
/**
 * After sending to a group, a rest of at most the same length, so that readers do not take a whole core. All groups
 * together rest at most this long before each has had its turn, so that a slow machine does not delay them further.
 */
const MAX_REST_MS = 10;
/** A reader that lags more reads by itself, at its own pace. */
const MAX_SHARED_LAG_BYTES = 256 * 1024;
const CHUNK_BYTES = 64 * 1024;

export type LogReader = {
  readonly group: Group;
  readonly stream: EventStream;
  offset: number;
  /** Whether it gets the shared reads of its group. Then its offset is that of the group. */
  caughtUp: boolean;
  /** Its own reads, in order. A slow reader does not delay the others. */
  ownReads: Promise<void>;
};

type Group = {
  readonly path: string;
  readonly readers: Set<LogReader>;
  /** How far the readers that have caught up have read. */
  offset: number;
  /** When new output was last sent to them. */
  sentAt: number;
  timer: NodeJS.Timeout | undefined;
  /** Schedules a shared read of new output. */
  schedule(): void;
  unwatch(): void;
};

export type LogFeeds = {
  /** Sends the log from `offset` on until the stream closes; from the beginning if the log is shorter. */
  follow(path: string, topic: string, stream: EventStream, offset: number): LogReader;
  /** Resolves when the reader has everything up to the end of the file, a broken last character included. */
  flush(reader: LogReader): Promise<void>;
};

export function createLogFeeds(live: Live): LogFeeds {
  const groups = new Map<string, Set<Group>>();
  const due = new Set<Group>();
  let isSending = false;

  /** Sends to one group after the other. A group that is due again meanwhile waits for the others. */
  const sendDue = async () => {
    if (isSending) return;
    isSending = true;
    let restMs = 0;
    for (const group of due) {
      due.delete(group);
      group.sentAt = performance.now();
      if (advance(group)) due.add(group);
      // Node writes to the sockets after this turn.
      await nextTurn();
      restMs += performance.now() - group.sentAt;
      if (restMs < 1) continue;
      await pause(Math.min(restMs, MAX_REST_MS / (due.size + 1)));
      restMs = 0;
    }
    isSending = false;
  };

  const openGroup = (path: string, topic: string): Group => {
    const ofPath = groups.get(path) ?? new Set();
    groups.set(path, ofPath);
    const open = ofPath.values().find(({ readers }) => readers.size < GROUP_READERS);
    if (open) return open;
    const group: Group = {
      path,
      readers: new Set(),
      offset: 0,
      sentAt: 0,
      timer: undefined,
      schedule() {
        if (due.has(group)) return;
        const waitMs = Math.max(0, group.sentAt + BATCH_MS - performance.now());
        group.timer ??= setTimeout(() => {
          group.timer = undefined;
          due.add(group);
          sendDue();
        }, waitMs);
      },
      unwatch: live.watch(topic, () => group.schedule()),
    };
    ofPath.add(group);
    return group;
  };

  const leave = (reader: LogReader) => {
    const { group } = reader;
    if (!group.readers.delete(reader) || group.readers.size > 0) return;
    group.unwatch();
    clearTimeout(group.timer);
    due.delete(group);
    const ofPath = groups.get(group.path);
    ofPath?.delete(group);
    if (ofPath?.size === 0) groups.delete(group.path);
  };

  return {
    follow(path, topic, stream, offset) {
      const group = openGroup(path, topic);
      const reader: LogReader = { group, stream, offset, caughtUp: false, ownReads: Promise.resolve() };
      group.readers.add(reader);
      stream.onClose(() => leave(reader));
      readAlone(reader, async () => {
        if (offset > (await sizeOf(path))) reader.offset = 0;
        await catchUp(reader);
      });
      return reader;
    },
    flush(reader) {
      // In most cases the whole group has the rest after this.
      if (reader.caughtUp) advance(reader.group);
      return readAlone(reader, () => sendRange(reader, true));
    },
  };
}

/** Excludes the reader from shared reads while it reads by itself. */
function readAlone(reader: LogReader, read: () => Promise<void>): Promise<void> {
  reader.caughtUp = false;
  reader.ownReads = reader.ownReads
    .then(() => {
      // An earlier read may have caught up meanwhile.
      reader.caughtUp = false;
      return read();
    })
    .catch(() => reader.stream.end());
  return reader.ownReads;
}

/**
 * One read and one frame for all readers of the group that have caught up. Synchronous, so that their offsets stay equal:
 * the bytes were written a moment ago, and are in memory. Returns true if there is more to read.
 */
function advance(group: Group): boolean {
  for (const reader of group.readers)
    if (reader.caughtUp && reader.stream.lagBytes > MAX_SHARED_LAG_BYTES)
      readAlone(reader, () => catchUp(reader));
  const readers = [...group.readers].filter(reader => reader.caughtUp);
  if (readers.length === 0) return false;
  try {
    const bytes = readChunk(group.path, group.offset);
    if (bytes.length === 0) return false;
    const chunk = logFrame(bytes, group.offset);
    group.offset += bytes.length;
    for (const reader of readers) {
      reader.offset = group.offset;
      reader.stream.send(chunk);
    }
    return bytes.length > CHUNK_BYTES / 2;
  } catch {
    for (const { stream } of readers) stream.end();
    return false;
  }
}

/** Sends one reader everything up to the offset of its group, at its own pace. Then it gets the shared reads. */
async function catchUp(reader: LogReader): Promise<void> {
  const { group } = reader;
  while (reader.stream.open) {
    const from = reader.offset;
    await sendRange(reader, false);
    if (!group.readers.values().some(({ caughtUp }) => caughtUp)) group.offset = reader.offset;
    while (group.offset < reader.offset && advance(group));
    if (reader.offset === group.offset) {
      reader.caughtUp = true;
      // Output written after the last read and before `caughtUp` was set has no other trigger.
      group.schedule();
      return;
    }
    // The group has advanced during this read, or a write failed and is repeated.
    if (reader.offset === from) await pause(BATCH_MS);
  }
}

async function sizeOf(path: string): Promise<number> {
  return (await stat(path).catch(() => undefined))?.size ?? 0;
}

async function sendRange(reader: LogReader, final: boolean): Promise<void> {
  await readChunks(reader.group.path, reader.offset, final, async (bytes, offset) => {
    reader.stream.send(logFrame(bytes, offset));
    reader.offset = offset + bytes.length;
    await reader.stream.drained();
    return reader.stream.open;
  });
}

const block = Buffer.allocUnsafeSlow(CHUNK_BYTES);

/** Whole characters from `offset` on. Valid until the next call. */
function readChunk(path: string, offset: number): Buffer {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return block.subarray(0, 0);
    throw error;
  }
  try {
    const read = block.subarray(0, readSync(file, block, 0, CHUNK_BYTES, offset));
    return read.subarray(0, cutAtCharacter(read));
  } finally {
    closeSync(file);
  }
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
