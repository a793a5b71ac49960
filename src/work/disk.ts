// How much room there is, and which job must end when there is hardly any.

import { statfsSync } from 'node:fs';

const LOOK_MS = 1_000;

export type Disk = {
  freeBytes(): number;
  /** Whether new work may be taken on (MIN_FREE_DISK). */
  hasRoom(): boolean;
  /** Whether this job is the one that must end now. */
  mustEnd(topic: string): boolean;
  stop(): void;
};

export type Growing = { topic: string; sizeBytes(): Promise<number> };

/** `growing` lists what runs; `condemn` wakes the one that is to end. */
export function watchDisk(options: {
  directory: string;
  minFreeBytes: number;
  growing(): Growing[];
  condemn(topic: string): void;
}): Disk {
  const sizes = new Map<string, number>();
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

  const timer = setInterval(async () => {
    if (busy || freeBytes() >= options.minFreeBytes / 2) return;
    busy = true;
    try {
      let most: { topic: string; grown: number } | undefined;
      for (const job of options.growing()) {
        const size = await job.sizeBytes().catch(() => 0);
        const grown = size - (sizes.get(job.topic) ?? 0);
        sizes.set(job.topic, size);
        if (!condemned.has(job.topic) && (!most || grown > most.grown)) most = { topic: job.topic, grown };
      }
      if (!most) return;
      condemned.add(most.topic);
      options.condemn(most.topic);
    } finally {
      busy = false;
    }
  }, LOOK_MS);

  return {
    freeBytes,
    hasRoom: () => recent() >= options.minFreeBytes,
    mustEnd: topic => condemned.has(topic),
    stop: () => clearInterval(timer),
  };
}
