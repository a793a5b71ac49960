// Identifiers: 64-bit, increasing with time, beyond 53 bits. Who keeps the last one given out is the store.

/** Ids count milliseconds from here, so that 41 bits of time last until 2089. */
const EPOCH_MS = Date.UTC(2020, 0, 1);
const SEQUENCE_BITS = 22n;
const MAX_ID = 2n ** 63n - 1n;

/** The id after `last`: a clock that stands still or steps back counts on from there. */
export function nextId(last: bigint, nowMs: number): bigint {
  const first = idAt(nowMs);
  return first > last ? first : last + 1n;
}

/** Ids that were given out before this moment are below this one, but for those after a clock that stepped back. */
export function idAt(ms: number): bigint {
  return BigInt(Math.max(0, ms - EPOCH_MS)) << SEQUENCE_BITS;
}

/** The id that `text` spells, or undefined where it is not a decimal 64-bit integer. */
export function parseId(text: string): bigint | undefined {
  if (!/^\d{1,19}$/.test(text)) return undefined;
  const id = BigInt(text);
  return id <= MAX_ID ? id : undefined;
}
