// A set of normalised log lines. It holds hashes of them, so that a log of many megabytes takes little memory.

import { MAX_LINE_BYTES, normaliseBytes } from './failure-line.ts';

export type LineSet = {
  /** False if it has a line like that already. Nothing is added to a full set. */
  add(bytes: Uint8Array, start: number, end: number): boolean;
  has(bytes: Uint8Array, start: number, end: number): boolean;
  readonly isFull: boolean;
};

const FIRST_SLOTS = 1024;

/** An empty line is in every set. */
export function createLineSet(maxLines: number): LineSet {
  const line = new Uint8Array(MAX_LINE_BYTES);
  const words = new Uint32Array(line.buffer);
  // Two words for each slot. An empty slot is 0, 0.
  let slots = new Uint32Array(2 * FIRST_SLOTS);
  let size = 0;
  let low = 0;
  let high = 0;

  /** Computes the hash of a line; false if nothing is left of it. */
  function hash(bytes: Uint8Array, start: number, end: number): boolean {
    const length = normaliseBytes(bytes, start, end, line);
    if (length === 0) return false;
    const count = (length + 3) >> 2;
    for (let at = length; at < count << 2; at += 1) line[at] = 0;
    let a = 0x811c9dc5 ^ length;
    let b = 0x9e3779b9;
    for (let at = 0; at < count; at += 1) {
      const word = words[at]!;
      a = Math.imul(a ^ word, 0x85ebca6b);
      a ^= a >>> 15;
      b = Math.imul(b + word, 0xc2b2ae35);
      b = (b << 13) | (b >>> 19);
    }
    low = Math.imul(a ^ (a >>> 13), 0x27d4eb2f) >>> 0;
    high = (b ^ low) >>> 0;
    if (low === 0 && high === 0) low = 1;
    return true;
  }

  /** The index of the hash, or of the empty slot where it belongs. */
  function find(table: Uint32Array): number {
    const mask = table.length / 2 - 1;
    let slot = (low ^ (low >>> 16)) & mask;
    for (;;) {
      const at = slot * 2;
      if ((table[at] === low && table[at + 1] === high) || (table[at] === 0 && table[at + 1] === 0))
        return at;
      slot = (slot + 1) & mask;
    }
  }

  function grow(): void {
    const grown = new Uint32Array(slots.length * 2);
    const [ownLow, ownHigh] = [low, high];
    for (let at = 0; at < slots.length; at += 2) {
      low = slots[at]!;
      high = slots[at + 1]!;
      if (low !== 0 || high !== 0) grown.set([low, high], find(grown));
    }
    slots = grown;
    low = ownLow;
    high = ownHigh;
  }

  return {
    has(bytes, start, end) {
      if (!hash(bytes, start, end)) return true;
      const at = find(slots);
      return slots[at] !== 0 || slots[at + 1] !== 0;
    },
    add(bytes, start, end) {
      if (!hash(bytes, start, end)) return false;
      let at = find(slots);
      if (slots[at] !== 0 || slots[at + 1] !== 0) return false;
      if (size >= maxLines) return true;
      if (size * 4 >= slots.length) {
        grow();
        at = find(slots);
      }
      slots[at] = low;
      slots[at + 1] = high;
      size += 1;
      return true;
    },
    get isFull() {
      return size >= maxLines;
    },
  };
}
