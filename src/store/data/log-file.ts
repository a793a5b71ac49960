// The log of a job on disk, and `<path>.times` with one checkpoint for each write. A checkpoint says when the log reached
// a length, and how many bytes of the raw output that covers. The caller masks and batches the output.

import { constants, copyFileSync, existsSync, linkSync, rmSync } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';
import { syncDirectory } from '../../fsync.ts';
import { logFilterPath } from './paths.ts';

export type LogWriter = {
  /** Appends output that covers the raw bytes up to `rawOffset`. Resolves with the length of the log. */
  append(bytes: Buffer, rawOffset: number): Promise<number>;
  /** Starts an attempt: its output is read from the first byte, and `finish` adds its final lines again. */
  beginAttempt(): Promise<number>;
  /** Appends a service line on a separate line, even past the limit. It may cover raw bytes too. */
  line(text: string, rawOffset?: number): Promise<number>;
  /** Appends the whole of another log, even past the limit, with the times of its writes. False if there is none. */
  copy(path: string): Promise<boolean>;
  /**
   * Appends the final lines and the number of omitted bytes, syncs the log and closes it. Repeated after a crash, it does
   * not append its lines twice. The log stays open if it fails.
   */
  finish(lines?: readonly string[]): Promise<number>;
  /** Closes an unfinished log, to be opened again later. */
  close(): Promise<void>;
  /** Where to continue reading the raw output, so that nothing is lost or repeated. */
  readonly rawOffset: number;
  readonly sizeBytes: number;
  readonly omittedBytes: number;
  /** Whether it ends with the lines of `finish`, which a server wrote before it was killed. */
  readonly isEnded: boolean;
};

type Checkpoint = {
  endOffset: number;
  atMs: number;
  rawOffset: number;
  omittedBytes: number;
  isNoted: boolean;
  /** Whether the log ends with the lines of `finish`. */
  isEnded: boolean;
};

const recordBytes = 40;
const COPY_BYTES = 1024 * 1024;
const NOTED = 1;
const ENDED = 2;
const newline = 0x0a;

/** Truncates the log to its last complete checkpoint, in case a crash interrupted a write. */
export async function openLog(options: { path: string; limitBytes: number }): Promise<LogWriter> {
  const { path, limitBytes } = options;
  // Not opened for appending, because writes go to explicit offsets.
  const log = await open(path, constants.O_RDWR | constants.O_CREAT, 0o600);
  const times = await open(`${path}.times`, constants.O_RDWR | constants.O_CREAT, 0o600).catch(
    async error => {
      await log.close();
      throw error;
    },
  );
  const closeFiles = () => Promise.all([log.close(), times.close()]);
  let { checkpoint, records, lastByte } = await cutToCheckpoint(log, times).catch(async error => {
    await closeFiles();
    throw error;
  });
  let previous: Promise<unknown> = Promise.resolve();

  /** Runs operations one at a time and in order. After a failed write the caller reads the same bytes again. */
  function serialize<T>(work: () => Promise<T>): Promise<T> {
    const mine = previous.then(work);
    previous = mine.catch(() => {});
    return mine;
  }

  async function write(bytes: Buffer, change: Partial<Checkpoint>): Promise<number> {
    const endOffset = checkpoint.endOffset + bytes.length;
    const grows = bytes.length > 0 || records === 0;
    const next = {
      ...checkpoint,
      isEnded: false,
      ...change,
      endOffset,
      atMs: grows ? Date.now() : checkpoint.atMs,
    };
    // If only counters changed, the last record is overwritten, so that output past the limit uses no disk space.
    const record = grows ? records : records - 1;
    // Both writes may run in parallel: a checkpoint past the end of the log is ignored when it is opened again.
    const writes = await Promise.allSettled([
      writeAll(log, bytes, checkpoint.endOffset),
      writeAll(times, encode(next), record * recordBytes),
    ]);
    const failed = writes.find(result => result.status === 'rejected');
    if (failed) {
      // A stale checkpoint could otherwise be mistaken for one of later bytes.
      await Promise.allSettled([log.truncate(checkpoint.endOffset), times.truncate(records * recordBytes)]);
      throw failed.reason;
    }
    if (bytes.length > 0) lastByte = bytes.at(-1)!;
    checkpoint = next;
    records = record + 1;
    return endOffset;
  }

  const serviceLines = (texts: readonly string[], change: Partial<Checkpoint> = {}) => {
    const lines = texts.map(text => `[assay] ${text.replace(/[\r\n]+/g, ' ')}\n`).join('');
    return write(Buffer.from(`${lastByte === newline ? '' : '\n'}${lines}`), change);
  };

  async function copy(source: FileHandle, sourceTimes: readonly LogTime[]): Promise<void> {
    if (lastByte !== newline) await write(Buffer.from('\n'), {});
    const start = checkpoint.endOffset;
    const block = Buffer.alloc(COPY_BYTES);
    let copied = 0;
    let last = lastByte;
    try {
      for (;;) {
        const { bytesRead } = await source.read(block, 0, block.length, copied);
        if (bytesRead === 0) break;
        await writeAll(log, block.subarray(0, bytesRead), start + copied);
        last = block[bytesRead - 1] as number;
        copied += bytesRead;
      }
      const before = sourceTimes.filter(({ endOffset }) => endOffset < copied);
      const atMs = sourceTimes.at(-1)?.atMs ?? Date.now();
      const added = [...before, { endOffset: copied, atMs }].map(time => ({
        ...checkpoint,
        isEnded: false,
        atMs: time.atMs,
        endOffset: start + time.endOffset,
      }));
      // After the bytes and at once: after a crash, the log has all of it or is cut off before it.
      await writeAll(times, Buffer.concat(added.map(encode)), records * recordBytes);
      checkpoint = added.at(-1) as Checkpoint;
      records += added.length;
      lastByte = last;
    } catch (error) {
      await Promise.allSettled([log.truncate(start), times.truncate(records * recordBytes)]);
      throw error;
    }
  }

  return {
    append: (bytes, rawOffset) =>
      serialize(async () => {
        const { endOffset, omittedBytes } = checkpoint;
        if (bytes.length === 0 && rawOffset === checkpoint.rawOffset) return endOffset;
        const freeBytes = omittedBytes > 0 ? 0 : Math.max(0, limitBytes - endOffset);
        const kept = bytes.length <= freeBytes ? bytes.length : cutAtCharacter(bytes.subarray(0, freeBytes));
        const change = { rawOffset, omittedBytes: omittedBytes + bytes.length - kept };
        return write(bytes.subarray(0, kept), change);
      }),
    beginAttempt: () =>
      serialize(async () => {
        const { endOffset, rawOffset, isEnded } = checkpoint;
        return rawOffset === 0 && !isEnded ? endOffset : write(Buffer.alloc(0), { rawOffset: 0 });
      }),
    line: (text, rawOffset) =>
      serialize(() => serviceLines([text], rawOffset === undefined ? {} : { rawOffset })),
    copy: source =>
      serialize(async () => {
        const file = await open(source, 'r').catch(ignoreMissing);
        if (!file) return false;
        try {
          await copy(file, (await readLogTimes(source).catch(ignoreMissing)) ?? []);
          return true;
        } finally {
          await file.close();
        }
      }),
    finish: (lines = []) =>
      serialize(async () => {
        const { omittedBytes, isNoted, isEnded } = checkpoint;
        const note = `output past the limit of ${limitBytes} bytes was not kept: ${omittedBytes} bytes omitted`;
        const last = omittedBytes > 0 && !isNoted ? [...lines, note] : lines;
        if (last.length > 0 && !isEnded)
          await serviceLines(last, { isEnded: true, isNoted: isNoted || omittedBytes > 0 });
        await Promise.all([log.sync(), times.sync(), syncDirectory(dirname(path))]);
        await closeFiles();
        return checkpoint.endOffset;
      }),
    close: () => serialize(async () => void (await closeFiles())),
    get rawOffset() {
      return checkpoint.rawOffset;
    },
    get sizeBytes() {
      return checkpoint.endOffset;
    },
    get omittedBytes() {
      return checkpoint.omittedBytes;
    },
    get isEnded() {
      return checkpoint.isEnded;
    },
  };
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/** Gives a finished log another name too, in place of what has that name. The content is not copied. */
export function linkLog(from: string, to: string): void {
  removeLog(to);
  for (const suffix of ['', '.times'].filter(one => existsSync(from + one)))
    try {
      linkSync(from + suffix, to + suffix);
    } catch {
      // A file system without hard links.
      copyFileSync(from + suffix, to + suffix);
    }
}

/** Removes a log. The checkpoints go first: without them the rest counts as nothing, should a crash come between. */
export function removeLog(path: string): void {
  rmSync(logFilterPath(path), { force: true });
  rmSync(`${path}.times`, { force: true });
  rmSync(path, { force: true });
}

async function writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    written += (await file.write(bytes, written, bytes.length - written, position + written)).bytesWritten;
  }
}

async function cutToCheckpoint(log: FileHandle, times: FileHandle) {
  const [{ size }, { size: timesSize }] = await Promise.all([log.stat(), times.stat()]);
  const { checkpoint, records } = await lastCheckpoint(times, timesSize, size);
  const { endOffset } = checkpoint;
  if (size > endOffset) await log.truncate(endOffset);
  if (timesSize > records * recordBytes) await times.truncate(records * recordBytes);
  if (endOffset === 0) return { checkpoint, records, lastByte: newline };
  const { buffer } = await log.read(Buffer.alloc(1), 0, 1, endOffset - 1);
  return { checkpoint, records, lastByte: buffer[0]! };
}

function encode(checkpoint: Checkpoint): Buffer {
  const record = Buffer.alloc(recordBytes);
  record.writeDoubleLE(checkpoint.endOffset, 0);
  record.writeDoubleLE(checkpoint.atMs, 8);
  record.writeDoubleLE(checkpoint.rawOffset, 16);
  record.writeDoubleLE(checkpoint.omittedBytes, 24);
  record.writeUInt32LE((checkpoint.isNoted ? NOTED : 0) | (checkpoint.isEnded ? ENDED : 0), 32);
  record.writeUInt32LE(crc32(record.subarray(0, 36)), 36);
  return record;
}

/** Undefined if the checksum does not match, because a crash interrupted the write. */
function decode(record: Buffer): Checkpoint | undefined {
  if (record.length < recordBytes || record.readUInt32LE(36) !== crc32(record.subarray(0, 36)))
    return undefined;
  return {
    endOffset: record.readDoubleLE(0),
    atMs: record.readDoubleLE(8),
    rawOffset: record.readDoubleLE(16),
    omittedBytes: record.readDoubleLE(24),
    isNoted: (record.readUInt32LE(32) & NOTED) !== 0,
    isEnded: (record.readUInt32LE(32) & ENDED) !== 0,
  };
}

async function readRecord(times: FileHandle, index: number): Promise<Checkpoint | undefined> {
  const { buffer, bytesRead } = await times.read(
    Buffer.alloc(recordBytes),
    0,
    recordBytes,
    index * recordBytes,
  );
  return decode(buffer.subarray(0, bytesRead));
}

const recordsIn = (sizeBytes: number) => Math.floor(sizeBytes / recordBytes);

async function lastCheckpoint(
  times: FileHandle,
  timesBytes: number,
  logBytes: number,
): Promise<{ checkpoint: Checkpoint; records: number }> {
  for (let records = recordsIn(timesBytes); records > 0; records--) {
    const checkpoint = await readRecord(times, records - 1);
    if (checkpoint && checkpoint.endOffset <= logBytes) return { checkpoint, records };
  }
  const checkpoint = { endOffset: 0, atMs: 0, rawOffset: 0, omittedBytes: 0, isNoted: false, isEnded: false };
  return { checkpoint, records: 0 };
}

/** 0 if there is no log yet. */
export async function logSize(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    error => {
      if (error.code === 'ENOENT') return 0;
      throw error;
    },
  );
}

export type LogTime = { endOffset: number; atMs: number };

/** The writes that produced the bytes from `start` up to `end`, in order. A byte belongs to the first write that ends after it. */
export async function readLogTimes(
  path: string,
  range: { start?: number; end?: number } = {},
): Promise<LogTime[]> {
  const { start = 0, end = Number.POSITIVE_INFINITY } = range;
  const times = await open(`${path}.times`, 'r');
  try {
    const records = recordsIn((await times.stat()).size);
    let low = 0;
    for (let high = records; low < high; ) {
      const middle = (low + high) >>> 1;
      const record = await readRecord(times, middle);
      if (record && record.endOffset <= start) low = middle + 1;
      else high = middle;
    }
    return await readTimes(times, low, records, end);
  } finally {
    await times.close();
  }
}

async function readTimes(times: FileHandle, first: number, records: number, end: number): Promise<LogTime[]> {
  const found: LogTime[] = [];
  const block = Buffer.alloc(recordBytes * 1_024);
  for (let index = first; index < records; ) {
    const { bytesRead } = await times.read(block, 0, block.length, index * recordBytes);
    for (let at = 0; at + recordBytes <= bytesRead; at += recordBytes, index++) {
      const record = decode(block.subarray(at, at + recordBytes));
      // The last record may be incomplete while it is being written.
      if (!record) return found;
      found.push({ endOffset: record.endOffset, atMs: record.atMs });
      if (record.endOffset >= end) return found;
    }
    if (bytesRead < recordBytes) return found;
  }
  return found;
}

/** When the byte at `offset` was written, according to the result of `readLogTimes`. */
export function timeOf(times: readonly LogTime[], offset: number): number | undefined {
  let low = 0;
  for (let high = times.length; low < high; ) {
    const middle = (low + high) >>> 1;
    if (times[middle]!.endOffset <= offset) low = middle + 1;
    else high = middle;
  }
  return times[low]?.atMs;
}

/** The length of the bytes without an incomplete UTF-8 character at the end. */
export function cutAtCharacter(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const isStarted =
      back < lengthOf(byte) && (back === 1 || mayFollow(byte, bytes[bytes.length - back + 1]!));
    return isStarted ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

function lengthOf(lead: number): number {
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  return lead >= 0xf0 && lead <= 0xf4 ? 4 : 1;
}

/** Some second bytes make a sequence overlong, a surrogate or beyond Unicode: it can never become a valid character. */
function mayFollow(lead: number, second: number): boolean {
  if (lead === 0xe0) return second >= 0xa0;
  if (lead === 0xed) return second <= 0x9f;
  if (lead === 0xf0) return second >= 0x90;
  return lead !== 0xf4 || second <= 0x8f;
}
