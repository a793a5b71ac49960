// Removes from a log line what changes from run to run, so that lines of different builds can be compared: colours, times,
// numbers, hex values, UUIDs and the directories of absolute paths. Works on bytes in one pass, because whole logs go
// through it.

/** A longer line is cut here. */
export const MAX_LINE_BYTES = 4_096;

const ESC = 0x1b;
const BELL = 0x07;
const SPACE = 0x20;
const HASH = 0x23;
const SLASH = 0x2f;
// Kinds of bytes, as bits: a word's kind is that of all its bytes together.
const DIGIT = 1;
const HEX_LETTER = 2;
const LETTER = 4;
const WORD = DIGIT | HEX_LETTER | LETTER;
const BLANK = 8;
/** Between the parts of a time, a version or a UUID. */
const JOINER = 16;

const KINDS = new Uint8Array(256);
const setKind = (bytes: string, kind: number) => {
  for (const byte of Buffer.from(bytes)) KINDS[byte] = kind;
};
for (let byte = 0; byte <= SPACE; byte += 1) KINDS[byte] = BLANK;
KINDS[0x7f] = BLANK;
setKind('ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ_', LETTER);
setKind('abcdefABCDEF', HEX_LETTER);
setKind('0123456789', DIGIT);
setKind('.:,-+/', JOINER);

/** Where an absolute path ends. */
const ENDS_PATH = new Uint8Array(256);
for (let byte = 0; byte <= SPACE; byte += 1) ENDS_PATH[byte] = 1;
for (const byte of Buffer.from('"\'`<>|:;,()[]{}=*?')) ENDS_PATH[byte] = 1;

/** A path in the checkout is the same in every build, so that only the checkout's own directory is removed. */
const CHECKOUT = Buffer.from('/srv/project/');
const DATE_WORDS = new Set(
  'Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' '),
);
/** The longest letters after a number that are a unit. */
const UNIT_LETTERS = 3;
const SHORTEST_HEX = 6;
const SHORTEST_HEX_LETTERS = 8;

/** Each value that was removed is shown as `#`. */
export function normaliseLine(text: string): string {
  const line = Buffer.from(text.slice(0, MAX_LINE_BYTES));
  const normalised = Buffer.allocUnsafe(MAX_LINE_BYTES);
  return normalised.toString('utf8', 0, normaliseBytes(line, 0, line.length, normalised));
}

/**
 * Writes the normalised form of the line at `start` to `out`, which has MAX_LINE_BYTES, and returns its length. It is
 * never longer than the line.
 */
export function normaliseBytes(bytes: Uint8Array, start: number, end: number, out: Uint8Array): number {
  const limit = Math.min(end, start + MAX_LINE_BYTES);
  let length = 0;
  let at = start;
  while (at < limit) {
    let byte = bytes[at]!;
    let kind = KINDS[byte]!;
    if ((kind & WORD) !== 0) {
      const wordStart = at;
      const wordAt = length;
      let kinds = 0;
      do {
        kinds |= kind;
        out[length++] = byte;
        at += 1;
        if (at >= limit) break;
        byte = bytes[at]!;
        kind = KINDS[byte]!;
      } while ((kind & WORD) !== 0);
      // Most words are plain, and most others are numbers.
      const isHex = (kinds & LETTER) === 0;
      if (!isHex && (kinds & DIGIT) === 0 && at - wordStart !== 3) continue;
      if (
        kinds === DIGIT ||
        (isHex && isHexValue(out, wordAt, (kinds & DIGIT) !== 0, at - wordStart)) ||
        ((kinds & DIGIT) !== 0 && isPrefixedHex(bytes, wordStart, at)) ||
        (at - wordStart === 3 && isDateWord(bytes, wordStart, at, limit))
      )
        length = writeValue(out, wordAt);
      else if ((kinds & DIGIT) !== 0) length = writeWord(bytes, wordStart, at, out, wordAt);
    } else if (kind === BLANK) {
      if (byte === ESC) at = skipEscape(bytes, at, limit);
      else {
        if (length > 0 && out[length - 1] !== SPACE) out[length++] = SPACE;
        at += 1;
      }
    } else if (byte === SLASH && startsPath(bytes, start, at, limit)) at = skipDirectories(bytes, at, limit);
    else {
      out[length++] = byte;
      at += 1;
    }
  }
  return length > 0 && out[length - 1] === SPACE ? length - 1 : length;
}

/** Writes `#`, once for values that only a joiner or a space separates. */
function writeValue(out: Uint8Array, length: number): number {
  if (length > 0 && out[length - 1] === HASH) return length;
  if (length > 1 && out[length - 2] === HASH) {
    const between = KINDS[out[length - 1]!]!;
    if ((between & (JOINER | BLANK)) !== 0) return length - 1;
  }
  out[length] = HASH;
  return length + 1;
}

function isHexValue(out: Uint8Array, length: number, hasDigit: boolean, wordLength: number): boolean {
  if (wordLength >= (hasDigit ? SHORTEST_HEX : SHORTEST_HEX_LETTERS)) return true;
  // A part of a UUID.
  return length > 1 && out[length - 1] === 0x2d && out[length - 2] === HASH;
}

function isPrefixedHex(bytes: Uint8Array, start: number, end: number): boolean {
  if (bytes[start] !== 0x30 || (bytes[start + 1]! | 0x20) !== 0x78 || end - start < 3) return false;
  for (let at = start + 2; at < end; at += 1) {
    if ((KINDS[bytes[at]!]! & (DIGIT | HEX_LETTER)) === 0) return false;
  }
  return true;
}

/** Writes a word with digits. A unit after the number at its start goes with the number. */
function writeWord(bytes: Uint8Array, start: number, end: number, out: Uint8Array, begin: number): number {
  let length = begin;
  let at = start;
  while (at < end) {
    if (KINDS[bytes[at]!] !== DIGIT) {
      out[length++] = bytes[at++]!;
      continue;
    }
    const startsWord = at === start;
    while (at < end && KINDS[bytes[at]!] === DIGIT) at += 1;
    length = writeValue(out, length);
    if (!startsWord) continue;
    let unitEnd = at;
    while (unitEnd < end && KINDS[bytes[unitEnd]!] !== DIGIT) unitEnd += 1;
    if (unitEnd - at <= UNIT_LETTERS) at = unitEnd;
  }
  return length;
}

/** The name of a day or month, in front of a number or another such name. */
function isDateWord(bytes: Uint8Array, start: number, end: number, limit: number): boolean {
  // The first letter is checked before a string is made: most words of three letters are no dates.
  if ((bytes[start]! & 0x20) !== 0) return false;
  let next = end;
  if (bytes[next] === 0x2c) next += 1;
  if (bytes[next] !== SPACE && bytes[next] !== 0x2d) return false;
  while (next < limit && bytes[next] === SPACE) next += 1;
  if (next >= limit) return false;
  const isDate = (from: number) =>
    DATE_WORDS.has(String.fromCharCode(bytes[from]!, bytes[from + 1]!, bytes[from + 2]!));
  if (bytes[next] === 0x2d) next += 1;
  return isDate(start) && (KINDS[bytes[next]!] === DIGIT || (next + 3 <= limit && isDate(next)));
}

/** Returns the index after an escape sequence of a terminal. */
function skipEscape(bytes: Uint8Array, start: number, limit: number): number {
  const kind = bytes[start + 1];
  let at = start + 2;
  if (kind === 0x5b) {
    while (at < limit && bytes[at]! >= 0x20 && bytes[at]! < 0x40) at += 1;
    return Math.min(at + 1, limit);
  }
  if (kind !== 0x5d) return Math.min(at, limit);
  while (at < limit && bytes[at] !== BELL && bytes[at] !== ESC) at += 1;
  return Math.min(bytes[at] === ESC ? at + 2 : at + 1, limit);
}

/** Whether a slash starts an absolute path, rather than stands in a relative one or in an address. */
function startsPath(bytes: Uint8Array, start: number, at: number, limit: number): boolean {
  if (at + 1 >= limit || bytes[at + 1] === SLASH || ENDS_PATH[bytes[at + 1]!]) return false;
  if (at === start) return true;
  const before = bytes[at - 1]!;
  return before !== SLASH && before !== 0x2e && (KINDS[before]! & WORD) === 0;
}

function skipDirectories(bytes: Uint8Array, start: number, limit: number): number {
  let at = start;
  while (at < limit && at - start < CHECKOUT.length && bytes[at] === CHECKOUT[at - start]) at += 1;
  if (at - start === CHECKOUT.length) return at;
  let name = start + 1;
  for (at = start + 1; at < limit && !ENDS_PATH[bytes[at]!]; at += 1)
    if (bytes[at] === SLASH && at + 1 < limit && !ENDS_PATH[bytes[at + 1]!]) name = at + 1;
  return name;
}
