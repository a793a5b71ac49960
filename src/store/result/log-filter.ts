// Searches the log of a build. `<log>.grams` beside a finished log has a filter for each MiB: a search reads only the parts
// of the log that may contain its text. Without the file, it reads all of the log.

import { closeSync, constants, fstatSync, openSync, readSync, read as readWithCallback } from 'node:fs';
import { access, rm, writeFile } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import {
  addToFilter,
  FILTER_BYTES,
  findMatches,
  type LogQuery,
  mayContain,
} from '../../domain/result/log-query.ts';
import { cutAtCharacter } from '../data/log-file.ts';
import { logFilterPath } from '../data/paths.ts';

/** A shorter log is searched faster than its filter is worth. */
export const MIN_FILTERED_BYTES = 64 * 1024;
/** How much of a log one filter is made of. */
const PART_BYTES = 1024 * 1024;
/** How much is added to a filter without letting other work run. */
const STEP_BYTES = 64 * 1024;
/** A part that ends within a line is read again from here, so that no match is cut in two. */
const OVERLAP_BYTES = 4 * 1024;
const NEWLINE = 0x0a;

/** Recording the time of access would wait for the disk. */
const READ = constants.O_RDONLY | constants.O_NOATIME;
/** Opening and closing a file takes microseconds, but its content may have to be read from the disk. */
const readAt = promisify(readWithCallback);

/** Where a part of a log begins: `line` lines are before it, and the line that it begins in starts at `lineStart`. */
type Position = { start: number; line: number; lineStart: number };
type Part = Position & { end: number };

const VERSION = 1;
/** Set in the version of the last record: without it, the file is incomplete. */
const IS_LAST = 0x8000_0000;
const HEAD_BYTES = 40;
const RECORD_BYTES = HEAD_BYTES + FILTER_BYTES;
/** Most logs have one part or few. */
const records = Buffer.alloc(RECORD_BYTES * 8);

/** Makes the filter of a finished log. Other work continues meanwhile. */
export async function makeLogFilter(path: string, signal?: AbortSignal): Promise<void> {
  const made: Buffer[] = [];
  const log = openSync(path, 'r');
  try {
    if (fstatSync(log).size < MIN_FILTERED_BYTES) return;
    let part: Part | undefined;
    let filter = new Uint8Array(FILTER_BYTES);
    const finishPart = (isLast: boolean) => {
      if (part) made.push(encodeRecord(part, filter, isLast));
      filter = new Uint8Array(FILTER_BYTES);
    };
    for await (const { bytes, ...step } of readPieces(log, Buffer.allocUnsafe(STEP_BYTES))) {
      signal?.throwIfAborted();
      if (part && step.end - part.start > PART_BYTES) {
        finishPart(false);
        part = undefined;
      }
      part = { ...(part ?? step), end: step.end };
      addToFilter(filter, bytes);
      await nextTurn();
    }
    finishPart(true);
  } finally {
    closeSync(log);
  }
  const filterPath = logFilterPath(path);
  try {
    await writeFile(filterPath, Buffer.concat(made), { mode: 0o600 });
    // Its log may have been deleted meanwhile.
    await access(path);
  } catch (error) {
    await rm(filterPath, { force: true });
    throw error;
  }
}

function encodeRecord(part: Part, filter: Uint8Array, isLast: boolean): Buffer {
  const record = Buffer.alloc(RECORD_BYTES);
  record.writeUInt32LE((isLast ? IS_LAST : 0) + VERSION, 4);
  for (const [at, value] of [part.start, part.end, part.line, part.lineStart].entries())
    record.writeDoubleLE(value, 8 + at * 8);
  record.set(filter, HEAD_BYTES);
  record.writeUInt32LE(crc32(record.subarray(4)), 0);
  return record;
}

/**
 * The parts of a log that may contain the text; undefined without a complete filter. Reads synchronously: a search reads
 * thousands of these small files.
 */
function listParts(path: string, query: LogQuery): Part[] | undefined {
  const file = openIfThere(logFilterPath(path));
  if (file === undefined) return undefined;
  try {
    const parts: Part[] = [];
    for (;;) {
      const bytes = readSync(file, records);
      for (let at = 0; at + RECORD_BYTES <= bytes; at += RECORD_BYTES) {
        const record = records.subarray(at, at + RECORD_BYTES);
        const version = record.readUInt32LE(4);
        if ((version & ~IS_LAST) !== VERSION || record.readUInt32LE(0) !== crc32(record.subarray(4)))
          return undefined;
        if (mayContain(record.subarray(HEAD_BYTES), query)) parts.push(decodePart(record));
        if (version !== VERSION) return parts;
      }
      if (bytes < records.length) return undefined;
    }
  } finally {
    closeSync(file);
  }
}

const decodePart = (record: Buffer): Part => ({
  start: record.readDoubleLE(8),
  end: record.readDoubleLE(16),
  line: record.readDoubleLE(24),
  lineStart: record.readDoubleLE(32),
});

function openIfThere(path: string): number | undefined {
  try {
    return openSync(path, READ);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Only the owner of a file may leave its time of access as it is.
    if (code === 'EPERM') return openSync(path, 'r');
    if (code === 'ENOENT') return undefined;
    throw error;
  }
}

/** A line that contains the text. `line` counts from 1, `offset` is the byte of the log where the line begins. */
export type LogMatch = { line: number; offset: number; text: string };

/** Buffers for one search at a time. */
export const createSearchBuffer = () => Buffer.allocUnsafe(PART_BYTES);

/** The first lines of a log that contain the text; none if there is no log. `mayContinue` is checked before each part. */
export async function searchLog(
  path: string,
  query: LogQuery,
  options: { limit: number; buffer: Buffer; mayContinue?: () => boolean },
): Promise<LogMatch[]> {
  const parts = listParts(path, query);
  if (parts?.length === 0) return [];
  const { limit, buffer } = options;
  if (!parts) {
    const bytes = readShortLog(path, buffer);
    if (bytes) return matchesIn({ start: 0, line: 0, lineStart: 0 }, bytes, query, limit);
  }
  const log = openIfThere(path);
  if (log === undefined) return [];
  const found: LogMatch[] = [];
  try {
    for await (const { bytes, ...position } of parts
      ? readParts(log, parts, buffer)
      : readPieces(log, buffer)) {
      const last = found.at(-1);
      // Parts overlap within a long line.
      for (const match of matchesIn(position, bytes, query, limit))
        if (match.line !== last?.line && found.length < limit) found.push(match);
      if (found.length >= limit || options.mayContinue?.() === false) break;
      await nextTurn();
    }
  } finally {
    closeSync(log);
  }
  return found;
}

function matchesIn(position: Position, bytes: Buffer, query: LogQuery, limit: number): LogMatch[] {
  return findMatches(bytes, query, limit).map(({ line, offset, text }) => ({
    line: position.line + line + 1,
    offset: line === 0 ? position.lineStart : position.start + offset,
    text,
  }));
}

/** The whole log if it is too short for a filter; undefined if it is longer or missing. */
function readShortLog(path: string, buffer: Buffer): Buffer | undefined {
  const file = openIfThere(path);
  if (file === undefined) return undefined;
  try {
    if (fstatSync(file).size >= MIN_FILTERED_BYTES) return undefined;
    return buffer.subarray(0, readSync(file, buffer, 0, MIN_FILTERED_BYTES, 0));
  } finally {
    closeSync(file);
  }
}

type Piece = Part & { bytes: Buffer };

async function* readParts(log: number, parts: readonly Part[], buffer: Buffer): AsyncGenerator<Piece> {
  for (const part of parts) {
    const { bytesRead } = await readAt(log, buffer, 0, part.end - part.start, part.start);
    yield { ...part, bytes: buffer.subarray(0, bytesRead) };
  }
}

/** Reads a log in pieces of whole lines, as many as fit into the buffer. A longer line comes in pieces that overlap. */
export async function* readPieces(log: number, buffer: Buffer): AsyncGenerator<Piece> {
  for (let position: Position = { start: 0, line: 0, lineStart: 0 }; ; ) {
    const { start } = position;
    const { bytesRead } = await readAt(log, buffer, 0, buffer.length, start);
    if (bytesRead === 0) return;
    const isAtEnd = bytesRead < buffer.length;
    const read = buffer.subarray(0, bytesRead);
    const lastLine = isAtEnd ? bytesRead : read.lastIndexOf(NEWLINE) + 1;
    const bytes = read.subarray(0, lastLine > 0 ? lastLine : cutAtCharacter(read));
    yield { ...position, end: start + bytes.length, bytes };
    if (isAtEnd) return;
    position =
      lastLine > 0
        ? { start: start + lastLine, line: position.line + countLines(bytes), lineStart: start + lastLine }
        : { ...position, start: start + cutAtCharacter(bytes.subarray(0, bytes.length - OVERLAP_BYTES)) };
  }
}

function countLines(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}
