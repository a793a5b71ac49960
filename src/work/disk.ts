// Watches disk space. When it runs low, empties caches first, then ends the job that grew most, one job at a time. Also ends
// jobs that exceed their own limits (DISK, CACHE_LIMIT).

import type { StopReason } from '../domain/container/verdict.ts';
import type { Log } from '../log.ts';
import type { FreeSpace } from './file-systems.ts';
import type { MeasureJobs, RunningJob, Usage } from './usage.ts';

const CHECK_MS = 1_000;
const MEASURE_MS = 5_000;
/** The largest share of time that is spent on measuring. */
const MEASURE_SHARE = 0.1;
/** A job that is far below its limits is measured at least this often. */
const MAX_UNMEASURED_MS = 60_000;
/** How long to wait for the space of an evicted job before evicting another. */
const EVICTION_MS = 60_000;
/** The shortest period over which growth is compared, once there are measurements that old. */
const GROWTH_MS = 60_000;
/** Evicting a job that uses less would not help. */
const MIN_EVICTED_BYTES = 1024 * 1024;

export type Disk = {
  freeBytes(): number;
  /** Whether new work may start (MIN_FREE_DISK). */
  hasFreeSpace(): boolean;
  /** Whether there is so little space that jobs are ended. Always measured. */
  isNearlyFull(): boolean;
  /** Why the job must end now; undefined if it may continue. */
  stopReason(nonce: string): StopReason | undefined;
  /** Ends a job whose output cannot be stored. */
  evict(nonce: string): void;
  stop(): void;
};

export type DiskOptions = {
  minFreeBytes: number;
  /** DISK and CACHE_LIMIT; 0 is no limit. */
  workspaceLimitBytes: number;
  cacheLimitBytes: number;
  log: Log;
  free(): FreeSpace;
  jobs(): RunningJob[];
  measure: MeasureJobs;
  /** Records the size of a suite's cache. */
  recordCache(suiteId: bigint, volume: string, found: { sizeBytes: number; measuredAt: number }): void;
  /** Empties the least recently used cache; false if there is none. */
  emptyCache(): Promise<boolean>;
  /** Whether the container of the job has been removed. */
  isGone(job: RunningJob): Promise<boolean>;
  /** Makes the worker of the job check `stopReason`. */
  wake(topic: string): void;
};

type Round = { at: number; usages: ReadonlyMap<string, Usage> };

/** Jobs are identified by their nonce, so that later compiles of the same dependency are not ended too. */
export function watchDisk(options: DiskOptions): Disk {
  const { minFreeBytes, workspaceLimitBytes, cacheLimitBytes, log } = options;
  const ended = new Map<string, StopReason>();
  const busy = new Set<string>();
  /** Measurements while space is low: the last one, and two to compare it with. */
  let rounds: { older: Round; newer: Round; last: Round } | undefined;
  let nextRoundAt = 0;
  let lastMeasured: (Round & { dockerBytes: number }) | undefined;
  let evicting: { job: RunningJob; at: number } | undefined;

  const lowest = ({ dataBytes, dockerBytes }: FreeSpace) => Math.min(dataBytes, dockerBytes);
  const isTooLow = (space: FreeSpace) => lowest(space) < minFreeBytes / 2;
  let free = { space: options.free(), readAt: performance.now() };
  /** Called by every request, so the value is cached for a second. */
  const recent = () => {
    if (performance.now() - free.readAt > CHECK_MS)
      free = { space: options.free(), readAt: performance.now() };
    return free.space;
  };

  const end = (job: RunningJob, why: StopReason) => {
    if (ended.has(job.nonce)) return;
    ended.set(job.nonce, why);
    evicting = { job, at: performance.now() };
    log.info('job terminated', { job: job.topic, why });
    options.wake(job.topic);
  };

  /** Measures everything while space is getting low, to know which job grows before one has to be evicted. */
  const measureRound = async () => {
    const space = options.free();
    const bytes = lowest(space);
    const isLow = bytes < minFreeBytes * 2;
    if (!isLow) rounds = undefined;
    const workspaces = isLow || workspaceLimitBytes > 0;
    if ((!workspaces && cacheLimitBytes === 0) || performance.now() < nextRoundAt) return;
    const jobs = options.jobs().filter(job => isLow || Date.now() - job.startedAt >= MEASURE_MS);
    if (jobs.length === 0 || (!isLow && !mayExceedLimits(jobs, space))) return;
    const at = performance.now();
    const measuredAt = Date.now();
    try {
      const usages = await options.measure(jobs, { workspaces });
      lastMeasured = { at, usages, dockerBytes: space.dockerBytes };
      if (isLow) addRound({ at, usages });
      for (const job of jobs) enforceLimits(job, usages.get(job.nonce));
      // Last, because on a full disk nothing can be recorded.
      for (const job of jobs) recordCache(job, usages.get(job.nonce), measuredAt);
    } finally {
      const tookMs = performance.now() - at;
      const shortRestMs = tookMs > CHECK_MS ? tookMs : 0;
      const restMs =
        bytes < minFreeBytes ? shortRestMs : Math.max(MEASURE_MS - tookMs, tookMs / MEASURE_SHARE);
      nextRoundAt = performance.now() + restMs;
    }
  };

  /**
   * Measuring takes as long as starting a container. A job can only grow past a limit while the disk fills by as much, or by
   * less if other files are removed meanwhile. So it is measured when half of that is used.
   */
  const mayExceedLimits = (jobs: readonly RunningJob[], { dockerBytes }: FreeSpace) => {
    const last = lastMeasured;
    if (!last || performance.now() - last.at >= MAX_UNMEASURED_MS) return true;
    const filledBytes = Math.max(0, last.dockerBytes - dockerBytes);
    const isNear = (usedBytes: number, limit: number) => limit > 0 && usedBytes + 2 * filledBytes > limit;
    return jobs.some(job => {
      const usage = last.usages.get(job.nonce);
      // A job that was measured before its container was created has no cache yet.
      const cacheBytes = usage?.cache?.sizeBytes ?? (job.kind === 'build' ? Number.POSITIVE_INFINITY : 0);
      return (
        !usage || isNear(usage.workspaceBytes, workspaceLimitBytes) || isNear(cacheBytes, cacheLimitBytes)
      );
    });
  };

  const enforceLimits = (job: RunningJob, usage: Usage | undefined) => {
    // Infinity means that it could not be measured.
    const isPast = (bytes = 0, limit: number) => limit > 0 && bytes > limit && Number.isFinite(bytes);
    if (isPast(usage?.workspaceBytes, workspaceLimitBytes)) end(job, 'too_big');
    if (isPast(usage?.cache?.sizeBytes, cacheLimitBytes)) end(job, 'cache_too_big');
  };

  const recordCache = ({ suiteId }: RunningJob, usage: Usage | undefined, measuredAt: number) => {
    const { volume, sizeBytes = Number.POSITIVE_INFINITY } = usage?.cache ?? {};
    if (suiteId === undefined || volume === undefined || !Number.isFinite(sizeBytes)) return;
    options.recordCache(suiteId, volume, { sizeBytes, measuredAt });
  };

  const addRound = (last: Round) => {
    if (!rounds) rounds = { older: last, newer: last, last };
    else if (last.at - rounds.newer.at > GROWTH_MS) rounds = { older: rounds.newer, newer: last, last };
    else rounds = { ...rounds, last };
  };

  /** If this fails, a job is evicted instead. */
  const emptyCache = () =>
    options.emptyCache().catch(error => {
      log.error('cache could not be emptied', { cause: error });
      return false;
    });

  const recoverSpace = async () => {
    const space = options.free();
    if (lowest(space) >= minFreeBytes) return;
    if (space.dockerBytes < minFreeBytes && (await emptyCache())) return;
    if (isTooLow(space)) await evictOne(space);
  };

  const evictOne = async (space: FreeSpace) => {
    const jobs = options.jobs();
    if (evicting) {
      const { job, at } = evicting;
      const isRunning = jobs.some(({ nonce }) => nonce === job.nonce);
      // Wait until its space is free, then check the free space again.
      if (performance.now() - at > EVICTION_MS || (!isRunning && (await options.isGone(job))))
        evicting = undefined;
      return;
    }
    // It takes two rounds to see which job grows.
    if (!rounds || rounds.last === rounds.older) return;
    const { older, last } = rounds;
    const bytesOnFullDisks = (usage: Usage | undefined) =>
      usage === undefined
        ? 0
        : (space.dataBytes < minFreeBytes ? usage.outputBytes : 0) +
          (space.dockerBytes < minFreeBytes ? usage.workspaceBytes + (usage.cache?.sizeBytes ?? 0) : 0);
    const [largest] = jobs
      .filter(({ nonce }) => !ended.has(nonce))
      .map(job => {
        const usedBytes = bytesOnFullDisks(last.usages.get(job.nonce));
        // A job that is too large to be measured counts as the one that grew most.
        const grownBytes = Number.isFinite(usedBytes)
          ? usedBytes - bytesOnFullDisks(older.usages.get(job.nonce))
          : usedBytes;
        return { job, usedBytes, grownBytes };
      })
      .filter(({ usedBytes }) => usedBytes >= MIN_EVICTED_BYTES)
      .toSorted((a, b) => descending(a.grownBytes, b.grownBytes) || descending(a.usedBytes, b.usedBytes));
    if (largest) end(largest.job, 'disk_full');
  };

  /** Runs each task once at a time. A slow measurement does not delay the emptying of caches. */
  const attempt = async (name: string, work: () => Promise<void>) => {
    if (busy.has(name)) return;
    busy.add(name);
    try {
      await work();
    } catch (error) {
      // On a full or lost disk, the database and Docker may fail. The next check tries again.
      log.error('disk space could not be checked', { what: name, cause: error });
    } finally {
      busy.delete(name);
    }
  };
  const timer = setInterval(() => {
    attempt('space', recoverSpace);
    attempt('jobs', measureRound);
  }, CHECK_MS);

  return {
    freeBytes: () => lowest(options.free()),
    hasFreeSpace: () => lowest(recent()) >= minFreeBytes,
    isNearlyFull: () => isTooLow(options.free()),
    stopReason: nonce => ended.get(nonce),
    evict: nonce => void ended.set(nonce, 'disk_full'),
    stop: () => clearInterval(timer),
  };
}

/** Infinity minus Infinity is not 0. */
const descending = (one: number, other: number) => (one === other ? 0 : other - one);
