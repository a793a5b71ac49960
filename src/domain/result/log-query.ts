// Searching logs for literal text. What is compared is folded: without the escape sequences of terminals, and in lower case
// unless case matters, so that a search finds what a reader sees. A small bit filter shows which parts of a log cannot
// contain a text, without reading them.

/** The filter of one part of a log. It has a bit for the hash of each group of 3 and of 6 bytes. */
export const FILTER_BYTES = 8 * 1024;
const HASH_SHIFT = 32 - Math.log2(FILTER_BYTES * 8);

export const QUERY_LENGTH = { min: 3, max: 200 };
/** How long the text of a match is at most. */
export const MAX_TEXT = 500;
const TEXT_BEFORE_MATCH = 120;
/** A regular expression takes time proportional to its length at each position of a hostile text. */
const MAX_PATTERN = 32;

const NEWLINE = 0x0a;
/** Short strings reuse the same memory, and are several times faster than long ones. */
const SLICE_BYTES = 64 * 1024;
const ESCAPE = '\x1b';
/** None contains a newline, so that lines keep their numbers. */
const ESCAPES =
  /\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]?|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[PX^_][^\x1b\n]*(?:\x1b\\)?|[ -/]*[0-~]?)/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f]/g;

/** How a folded byte counts in the filter. 0 ends a group: a query has no control characters but tabs. */
const GRAM = Uint8Array.from({ length: 256 }, (_, byte) => {
  if ((byte < 0x20 && byte !== 0x09) || byte === 0x7f) return 0;
  // The numbers and times of a log would fill its filter, so all digits are the same.
  return byte >= 0x30 && byte <= 0x39 ? 0x30 : byte;
});

export type LogQuery = {
  needle: string;
  isCaseSensitive: boolean;
  isAscii: boolean;
  /** Whether `find` expects folded text. */
  isFolded: boolean;
  /** Where the text is in a slice that `foldSlice` returned, or -1. */
  find(text: string, from: number): number;
  /** The bits that the filter of every part with a match has. */
  bits: Uint16Array;
};

export function compileQuery(text: string, isCaseSensitive = false): LogQuery {
  const filter = new Uint8Array(FILTER_BYTES);
  addGrams(filter, Buffer.from(foldText(text)));
  const needle = isCaseSensitive ? text : foldText(text);
  const isAscii = !/[^\x00-\x7f]/.test(text);
  const usesPattern = isAscii && !isCaseSensitive && needle.length <= MAX_PATTERN;
  const bits: number[] = [];
  for (const [at, byte] of filter.entries())
    for (let bit = at * 8, rest = byte; rest > 0; bit += 1, rest >>>= 1) if (rest & 1) bits.push(bit);
  return {
    needle,
    isCaseSensitive,
    isAscii,
    isFolded: !isCaseSensitive && !usesPattern,
    find: usesPattern ? findInAnyCase(needle) : (folded, from) => folded.indexOf(needle, from),
    bits: Uint16Array.from(bits),
  };
}

/** Faster than folding the text. Without the flag `u`, ASCII letters equal only ASCII letters. */
function findInAnyCase(needle: string): LogQuery['find'] {
  const pattern = new RegExp(RegExp.escape(needle), 'gi');
  return (text, from) => {
    pattern.lastIndex = from;
    return pattern.exec(text)?.index ?? -1;
  };
}

export const removeEscapes = (text: string): string =>
  text.includes(ESCAPE) ? text.replace(ESCAPES, '') : text;

/** The Greek letter sigma has another form at the end of a word. */
const foldText = (text: string): string => removeEscapes(text).toLowerCase().replaceAll('ς', 'σ');

/** Adds a part of a log to a filter. */
export function addToFilter(filter: Uint8Array, bytes: Buffer): void {
  addGrams(filter, Buffer.from(foldText(bytes.toString('utf8'))));
}

/** Whether the part of the log that the filter was made of may contain the text. */
export function mayContain(filter: Uint8Array, { bits }: LogQuery): boolean {
  for (const bit of bits) if (!hasBit(filter, bit)) return false;
  return true;
}

const hasBit = (filter: Uint8Array, bit: number) => ((filter[bit >>> 3]! >>> (bit & 7)) & 1) === 1;

/** Groups of 3 serve short texts. Groups of 6 distinguish words whose groups of 3 are in every log. */
function addGrams(filter: Uint8Array, folded: Uint8Array): void {
  const size = folded.length;
  let length = 0;
  let last = 0;
  let before = 0;
  for (let at = 0; at < size; at += 1) {
    const byte = GRAM[folded[at]!]!;
    if (byte === 0) {
      length = 0;
      continue;
    }
    before = ((before << 8) | (last >>> 16)) & 0xffffff;
    last = ((last << 8) | byte) & 0xffffff;
    length += 1;
    if (length < 3) continue;
    const hash = Math.imul(last, 0x9e3779b1);
    const bit = (hash ^ (hash >>> 15)) >>> HASH_SHIFT;
    filter[bit >>> 3]! |= 1 << (bit & 7);
    if (length < 6) continue;
    const pair = Math.imul(hash ^ Math.imul(before, 0x85ebca6b), 0x2c1b3c6d);
    const pairBit = (pair ^ (pair >>> 15)) >>> HASH_SHIFT;
    filter[pairBit >>> 3]! |= 1 << (pairBit & 7);
  }
}

/** A line with a match. `line` counts from 0 and `offset` is the byte where the line begins, both within the part. */
export type Match = { line: number; offset: number; text: string };

/** The first lines of a part of a log that contain the text. */
export function findMatches(bytes: Buffer, query: LogQuery, limit: number): Match[] {
  const matches: Match[] = [];
  let line = 0;
  let counted = 0;
  for (let start = 0; start < bytes.length; ) {
    const end = endOfSlice(bytes, start);
    const slice = bytes.subarray(start, end);
    const folded = foldSlice(slice, query);
    for (let at = query.find(folded, 0); at >= 0; ) {
      const offset = start + startOfLine(slice, folded, at);
      for (let next = bytes.indexOf(NEWLINE, counted); next >= 0 && next < offset; ) {
        line += 1;
        counted = next + 1;
        next = bytes.indexOf(NEWLINE, counted);
      }
      const lineEnd = bytes.indexOf(NEWLINE, offset);
      const text = excerptOf(bytes.subarray(offset, lineEnd < 0 ? undefined : lineEnd), query);
      matches.push({ line, offset, text });
      if (matches.length === limit) return matches;
      const nextLine = folded.indexOf('\n', at);
      at = nextLine < 0 ? -1 : query.find(folded, nextLine);
    }
    start = end;
  }
  return matches;
}

/** A slice has whole lines. */
function endOfSlice(bytes: Buffer, start: number): number {
  const end = start + SLICE_BYTES;
  if (end >= bytes.length) return bytes.length;
  const last = bytes.lastIndexOf(NEWLINE, end);
  const next = last >= start ? last : bytes.indexOf(NEWLINE, end);
  return next < 0 ? bytes.length : next + 1;
}

function foldSlice(slice: Buffer, { isAscii, isFolded }: LogQuery): string {
  // Reading bytes as Latin-1 is several times faster than decoding UTF-8, and finds ASCII as well.
  const text = removeEscapes(slice.toString(isAscii ? 'latin1' : 'utf8'));
  return !isFolded ? text : isAscii ? text.toLowerCase() : foldText(text);
}

/** Where the line begins in the slice that has the match at `at` in its folded text. */
function startOfLine(slice: Buffer, folded: string, at: number): number {
  if (folded.length === slice.length) return folded.lastIndexOf('\n', at) + 1;
  let start = 0;
  for (let next = folded.indexOf('\n'); next >= 0 && next < at; next = folded.indexOf('\n', next + 1))
    start = slice.indexOf(NEWLINE, start) + 1;
  return start;
}

/** The text of a line as a reader sees it, cut around the match. */
function excerptOf(line: Buffer, { needle, isCaseSensitive }: LogQuery): string {
  const text = removeEscapes(line.toString('utf8'));
  const found = (isCaseSensitive ? text : foldText(text)).indexOf(needle);
  // A carriage return starts the line over, so that the line may show something else in the end.
  const part = text.slice(text.lastIndexOf('\r', found) + 1).split('\r', 1)[0] ?? '';
  const shown = part.replace(CONTROLS, '').trim();
  return cutText(shown, (isCaseSensitive ? shown : foldText(shown)).indexOf(needle));
}

function cutText(text: string, at: number): string {
  if (text.length <= MAX_TEXT) return text;
  const from = Math.max(0, at - TEXT_BEFORE_MATCH);
  const start = from > 0 ? '…' : '';
  const length = MAX_TEXT - start.length;
  const isWhole = text.length - from <= length;
  return `${start}${text.slice(from, from + length - (isWhole ? 0 : 1))}${isWhole ? '' : '…'}`.toWellFormed();
}
