// How much room there is, and which job must end when there is hardly any.

import { statfsSync } from 'node:fs';
import type { Log } from '../log.ts';

const LOOK_MS = 1_000;

export type Disk = {
  freeBytes(): number;
  /** Whether new work may be taken on (MIN_FREE_DISK). */
  hasRoom(): boolean;
  /** Whether this run is the one that must end now. */
  mustEnd(nonce: string): boolean;
  /** This job must end: what it prints finds no room. */
  condemn(nonce: string): void;
  stop(): void;
};

/** The nonce is the run's own: what is condemned is one compile of a dependency, not every later one. */
export type Growing = { topic: string; nonce: string; sizeBytes(): Promise<number> };

/** `growing` lists what runs; `condemn` wakes the one that is to end. */
export function watchDisk(options: {
  directory: string;
  minFreeBytes: number;
  log: Log;
  growing(): Growing[];
  condemn(topic: string): void;
}): Disk {
  let sizes = new Map<string, number>();
  const condemned = new Set<string>();
  let busy = false;

  const freeBytes = () => {
    const { bavail, bsize } = statfsSync(options.directory);
    return bavail * bsize;
  };
  let free = { bytes: freeBytes(), readAt: performance.now() };
  /** Asked for with every request: one look a second is enough. */
  const recent = () => {
    if (performance.now() - free.readAt > LOOK_MS) free = { bytes: freeBytes(), readAt: performance.now() };
    return free.bytes;
  };

  /** Ends the job that grew most since the last look. */
  const condemnOne = async () => {
    const before = sizes;
    sizes = new Map();
    let most: { job: Growing; grown: number } | undefined;
    for (const job of options.growing()) {
      const size = await job.sizeBytes().catch(() => 0);
      const grown = size - (before.get(job.nonce) ?? 0);
      sizes.set(job.nonce, size);
      if (!condemned.has(job.nonce) && (!most || grown > most.grown)) most = { job, grown };
    }
    if (!most) return;
    condemned.add(most.job.nonce);
    options.condemn(most.job.topic);
  };
  const timer = setInterval(async () => {
    if (busy) return;
    busy = true;
    try {
      if (freeBytes() < options.minFreeBytes / 2) await condemnOne();
    } catch (cause) {
      // Where the disk is that full, or gone, the database may not answer either: the next look tries again.
      options.log.error('disk could not be looked at', { cause });
    } finally {
      busy = false;
    }
  }, LOOK_MS);

  return {
    freeBytes,
    hasRoom: () => recent() >= options.minFreeBytes,
    mustEnd: nonce => condemned.has(nonce),
    condemn: nonce => void condemned.add(nonce),
    stop: () => clearInterval(timer),
  };
}
