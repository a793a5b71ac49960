// Identifiers: 64-bit integers that increase with time and exceed 53 bits. The store keeps the last one it assigned.

/** Ids count milliseconds from here: 41 bits last until 2089. */
const EPOCH_MS = Date.UTC(2020, 0, 1);
const SEQUENCE_BITS = 22n;
const MAX_ID = 2n ** 63n - 1n;

/** The id after `last`. If the clock stands still or steps back, ids count up from `last`. */
export function nextId(last: bigint, nowMs: number): bigint {
  const first = idAt(nowMs);
  return first > last ? first : last + 1n;
}

/** Ids assigned before this time are lower, unless the clock has stepped back since. */
export function idAt(ms: number): bigint {
  return BigInt(Math.max(0, ms - EPOCH_MS)) << SEQUENCE_BITS;
}

/** Undefined if `text` is not a decimal 64-bit integer. */
export function parseId(text: string): bigint | undefined {
  if (!/^\d{1,19}$/.test(text)) return undefined;
  const id = BigInt(text);
  return id <= MAX_ID ? id : undefined;
}
