// Finds the lines of a log that another log has nothing like. Reads both in pieces, and keeps hashes of lines only.

import { type FileHandle, open } from 'node:fs/promises';
import type { LogDiff } from '../../domain/result/build-diff.ts';
import { MAX_LINE_BYTES } from '../../domain/result/failure-line.ts';
import { createLineSet } from '../../domain/result/line-set.ts';
import { LONGEST_STEP, lastStepIn, SERVICE_LINE, STEP_LINES } from '../../domain/result/log-step.ts';

const PIECE_BYTES = 256 * 1024;
const MAX_DIFFERENT_LINES = 200;
/** A log of the largest size rarely has as many different lines. They take 16 MiB. */
const MAX_KNOWN_LINES = 1_000_000;
const MAX_TEXT_BYTES = 500;
const DEADLINE_MS = 10_000;
const NEWLINE = 0x0a;

/** How many logs end. They explain nothing that the build's record does not. */
const ENDINGS = ['the command exited with ', 'tests: ', 'kept '].map(text => SERVICE_LINE + text);

/** The lines of the last step in `log` that are not in `other`. Undefined if one of the files does not exist. */
export async function compareLogs(
  other: string,
  log: string,
  options: { deadlineMs?: number; maxKnownLines?: number } = {},
): Promise<LogDiff | undefined> {
  await using files = new AsyncDisposableStack();
  const [known, compared] = await Promise.all([openIn(files, other), openIn(files, log)]);
  if (!known || !compared) return undefined;
  const endsAt = performance.now() + (options.deadlineMs ?? DEADLINE_MS);
  const isLate = () => performance.now() > endsAt;
  const set = createLineSet(options.maxKnownLines ?? MAX_KNOWN_LINES);
  const diff: LogDiff = { lines: [], cutBecause: null };
  await eachLine(
    known,
    0,
    (bytes, start, end) => {
      set.add(bytes, start, end);
      return set.isFull;
    },
    isLate,
  );
  if (set.isFull) diff.cutBecause = 'size';
  const from = await findLastStep(compared);
  let line = from.line;
  // Service lines count too, but are not listed.
  const listed = createLineSet(2 * MAX_DIFFERENT_LINES);
  await eachLine(
    compared,
    from.offset,
    (bytes, start, end) => {
      line += 1;
      if (set.has(bytes, start, end) || !listed.add(bytes, start, end)) return false;
      const text = textOf(bytes, start, end);
      if ([...ENDINGS, ...STEP_LINES].some(service => text.startsWith(service))) return false;
      if (diff.lines.length === MAX_DIFFERENT_LINES) {
        diff.cutBecause = 'lines';
        return true;
      }
      diff.lines.push({ line, text });
      return false;
    },
    isLate,
  );
  if (isLate()) diff.cutBecause = 'time';
  return diff;
}

async function openIn(files: AsyncDisposableStack, path: string): Promise<FileHandle | undefined> {
  try {
    const file = await open(path, 'r');
    files.defer(() => file.close());
    return file;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}

/** Without colours and control characters, cut at a character. */
function textOf(bytes: Uint8Array, start: number, end: number): string {
  const text = Buffer.from(bytes.subarray(start, Math.min(end, start + MAX_LINE_BYTES)))
    .toString()
    .replace(/\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g, '');
  const plain = text
    .replace(/\t/g, '  ')
    .replace(/[\x00-\x1f\x7f]/g, '')
    .trimEnd();
  const characters = [...plain.slice(0, MAX_TEXT_BYTES * 2)];
  return characters.length > MAX_TEXT_BYTES ? `${characters.slice(0, MAX_TEXT_BYTES - 1).join('')}…` : plain;
}

/**
 * Passes each line from an offset on to `visit`, without its end, until `visit` returns true. The part of a line that no
 * comparison looks at is left out.
 */
async function eachLine(
  file: FileHandle,
  offset: number,
  visit: (bytes: Uint8Array, start: number, end: number) => boolean,
  isLate: () => boolean,
): Promise<void> {
  const bytes = Buffer.allocUnsafe(PIECE_BYTES + MAX_LINE_BYTES);
  // V8 reads a plain array faster.
  const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  let position = offset;
  let held = 0;
  let isSkipping = false;
  while (!isLate()) {
    // Other work gets its turn while the file is read.
    const { bytesRead } = await file.read(bytes, held, PIECE_BYTES, position);
    position += bytesRead;
    const end = held + bytesRead;
    let start = 0;
    for (let at = bytes.indexOf(NEWLINE, held); at !== -1 && at < end; at = bytes.indexOf(NEWLINE, start)) {
      if (isSkipping) isSkipping = false;
      else if (visit(plain, start, at)) return;
      start = at + 1;
    }
    held = end - start;
    if (isSkipping) held = 0;
    else if (bytesRead === 0 || held >= MAX_LINE_BYTES) {
      if (held > 0 && visit(plain, start, end)) return;
      isSkipping = bytesRead > 0;
      held = 0;
    } else bytes.copyWithin(0, start, end);
    if (bytesRead === 0) return;
  }
}

/** Where the last step begins, and the number of lines before it. The whole log is one step if none is found. */
async function findLastStep(file: FileHandle): Promise<{ offset: number; line: number }> {
  const { size } = await file.stat();
  const bytes = Buffer.allocUnsafe(PIECE_BYTES);
  let offset = 0;
  for (let end = size; end > 0 && offset === 0; ) {
    const from = Math.max(0, end - PIECE_BYTES);
    const { bytesRead } = await file.read(bytes, 0, end - from, from);
    const at = lastStepIn(bytes.subarray(0, bytesRead));
    if (at !== -1) offset = from + at;
    // A step may begin at the end of one piece and continue in the next.
    end = from === 0 ? 0 : from + LONGEST_STEP;
  }
  let line = 0;
  for (let position = 0; position < offset; ) {
    const { bytesRead } = await file.read(bytes, 0, Math.min(PIECE_BYTES, offset - position), position);
    if (bytesRead === 0) break;
    for (let at = bytes.indexOf(NEWLINE); at !== -1 && at < bytesRead; at = bytes.indexOf(NEWLINE, at + 1))
      line += 1;
    position += bytesRead;
  }
  return { offset, line };
}
