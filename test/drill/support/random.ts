// Reproducible random choices: the same seed makes the same choices in the same order.

export type Random = {
  seed: number;
  /** An integer from `least` to `most`, both included. */
  between(least: number, most: number): number;
  pick<T>(of: readonly T[]): T;
  /** Returns true with this probability. */
  happens(share: number): boolean;
  /** An independent stream of choices. */
  apart(name: string): Random;
};

export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  // mulberry32: small, and good enough for choosing moments.
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (least: number, most: number) => least + Math.floor(next() * (most - least + 1));
  return {
    seed,
    between,
    pick: of => of[between(0, of.length - 1)] as (typeof of)[number],
    happens: share => next() < share,
    apart: name => createRandom([...name].reduce((mixed, letter) => mixed * 31 + letter.charCodeAt(0), seed)),
  };
}
