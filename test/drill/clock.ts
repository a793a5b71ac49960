// A clock that a drill can set, for any program: a small library (clock.c) that the program is started with moves the time
// of day by what is in a file.
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';

export type DrillClock = {
  /** What the program is started with. */
  environment: Record<string, string>;
  /** From now on so far from the real one. */
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
  // In one write and in place: the program has the file mapped.
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
