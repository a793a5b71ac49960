// Computations over the results of up to 100,000 tests, in steps of a millisecond at most. Requests are handled in between.

/** A computation that pauses after each step. Its end is its result. */
export type Steps<Result = void> = Generator<void, Result, void>;

const ROWS = 1_000;

/** Calls `step` for all of `length` rows, some at a time. */
export function* inSteps(length: number, step: (from: number, to: number) => void): Steps {
  for (let from = 0; from < length; from += ROWS) {
    step(from, Math.min(length, from + ROWS));
    yield;
  }
}
