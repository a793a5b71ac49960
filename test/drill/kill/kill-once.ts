// Kills the program in one of three ways: at a random moment, at a sync of its database, or while it starts again.
import { setTimeout as delay } from 'node:timers/promises';
import type { DrillEnvironment } from '../support/environment.ts';
import { inject, type Running } from '../support/program.ts';
import type { Random } from '../support/random.ts';

/** An idle program makes no syncs; after this time it is killed anyway. */
const SYNC_WAIT_MS = 6_000;

export type KillOptions = {
  times: number;
  random: Random;
  command: readonly string[];
  /** How long the program may run between two kills. */
  livesMs: number;
  /** How long the removal of left-overs may take. */
  sweepMs: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

export type Kills = { moment: number; sync: number; start: number };

/** Lets the program run for a while, then kills it in one of three ways. Returns a description. */
export async function killOnce(
  { random, livesMs }: KillOptions,
  environment: DrillEnvironment,
  running: Running,
  kills: Kills,
  driver?: { shut(): void },
): Promise<string> {
  const way = random.pick(['moment', 'moment', 'moment', 'sync', 'sync', 'sync', 'start'] as const);
  const liveMs = random.between(0, livesMs);
  const syncs = random.between(1, 40);
  const startMs = random.between(20, 1_200);
  kills[way] += 1;
  await delay(liveMs);
  if (way === 'sync') {
    const strace = await inject(running.pid, `fsync,fdatasync:signal=SIGKILL:when=${syncs}`);
    const timeoutMs = new AbortController();
    await Promise.race([
      running.ended,
      delay(SYNC_WAIT_MS, undefined, { signal: timeoutMs.signal }).catch(() => {}),
    ]);
    timeoutMs.abort();
    driver?.shut();
    if (!running.hasEnded()) await running.kill();
    await strace.ended;
    return `at sync ${syncs} after ${liveMs} ms`;
  }
  await running.kill();
  driver?.shut();
  if (way === 'moment') return `after ${liveMs} ms`;
  await environment.program.killWhileStarting(startMs);
  return `after ${liveMs} ms, and ${startMs} ms into its start`;
}
