// A clock that a drill can set for any program: a preloaded library (clock.c) shifts the time of day by the value in a
// file.
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';

export type DrillClock = {
  /** The environment of the program. */
  environment: Record<string, string>;
  /** Sets the difference to the real time. */
  set(aheadMs: number): void;
  close(): void;
};

const COMPILE_MS = 30_000;

export function createClock(directory: string): DrillClock {
  const library = join(directory, 'clock.so');
  execFileSync(
    'gcc',
    ['-Wall', '-Werror', '-O2', '-shared', '-fPIC', '-o', library, join(import.meta.dirname, 'clock.c')],
    { timeout: COMPILE_MS },
  );
  const path = join(directory, 'ahead');
  const file = openSync(path, 'w');
  // One write in place, because the program has mapped the file.
  const set = (aheadMs: number) => {
    writeSync(file, new BigInt64Array([BigInt(aheadMs)]), 0, 8, 0);
  };
  set(0);
  return {
    environment: { LD_PRELOAD: library, DRILL_CLOCK: path },
    set,
    close: () => closeSync(file),
  };
}
