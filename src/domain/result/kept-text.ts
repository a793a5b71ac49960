// What is kept of the texts of a test report: the head and the tail of long ones, with secrets masked.

import { createHash } from 'node:crypto';
import { createMask } from '../text/mask.ts';

export const MAX_NAME_CHARACTERS = 1_000;
const gap = '\n[…]\n';
// An escape character is forbidden in XML. The reader replaces it, and leaves a reference to it as it is. pytest writes #x1B.
const colours = /(?:\uFFFD|&#(?:27|x1b);|#x1b)\[[0-9;]*m/gi;

/** The head and the tail of a text of any length. */
export type Excerpt = { head: string; tail: string; isCut: boolean };

const EXCERPT_HALF = 8 * 1024;

export function excerptOf(text: string): Excerpt {
  const excerpt = { head: '', tail: '', isCut: false };
  append(excerpt, text);
  return excerpt;
}

export function append(excerpt: Excerpt, text: string): void {
  const toHead = Math.min(text.length, EXCERPT_HALF - excerpt.head.length);
  if (toHead > 0) excerpt.head += text.slice(0, toHead);
  if (toHead === text.length) return;
  excerpt.tail += text.slice(toHead);
  if (excerpt.tail.length <= 2 * EXCERPT_HALF) return;
  excerpt.tail = excerpt.tail.slice(-EXCERPT_HALF);
  excerpt.isCut = true;
}

type Keep = {
  text(excerpt: Excerpt, maxBytes: number): string;
  name(name: string): string;
  /** The names in one buffer, each with a zero byte after it. */
  names(names: readonly string[]): Buffer;
};

/**
 * Returns functions that copy a text: without colours, masked, and cut. A copy is needed because a substring keeps all of the
 * text in memory that it was taken from.
 */
export function createKeep(secrets: readonly string[]): Keep {
  const mask = createMask(secrets);
  const whole = (bytes: Buffer) => {
    const text = mask.push(bytes).toString();
    return text + mask.end().toString();
  };
  // What the mask holds back may be the beginning of a secret that is cut off.
  const beginning = (bytes: Buffer) => {
    const text = mask.push(bytes).toString();
    mask.end();
    return text;
  };
  // A long name stays distinct.
  const shorten = (name: string) => {
    if (name.length <= MAX_NAME_CHARACTERS) return name;
    const hash = createHash('sha256').update(name).digest('hex').slice(0, 12);
    return `${beginning(Buffer.from(name.slice(0, MAX_NAME_CHARACTERS)))}… ${hash}`;
  };
  return {
    text({ head, tail, isCut }, maxBytes) {
      if (maxBytes <= 0) return '';
      const all = Buffer.from((isCut ? head : head + tail).replace(colours, '').trim());
      if (!isCut && all.length <= maxBytes) return whole(all);
      const end = isCut ? Buffer.from(tail.replace(colours, '').trimEnd()) : all;
      const availableBytes = maxBytes - Buffer.byteLength(gap);
      const half = end.subarray(-Math.floor(availableBytes / 2));
      // The end of a secret that is cut off cannot be recognised, but each line of a secret is masked.
      const line = half.indexOf('\n');
      const shownEnd = line === -1 ? '' : whole(half.subarray(line + 1));
      return beginning(cutBytes(all, availableBytes - Buffer.byteLength(shownEnd))) + gap + shownEnd;
    },
    name: name => whole(Buffer.from(shorten(name))),
    // Neither names nor secrets contain a zero byte. So the mask holds nothing back.
    names(names) {
      const shown = mask.push(Buffer.from(`${names.map(shorten).join('\0')}\0`));
      mask.end();
      return shown;
    },
  };
}

/** Cuts between characters. */
function cutBytes(bytes: Buffer, maxBytes: number): Buffer {
  let end = Math.max(0, Math.min(maxBytes, bytes.length));
  while (end < bytes.length && end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end);
}
