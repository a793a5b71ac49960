// Watches disk space. Caches give way first when it runs short; then the job that grew most is ended, alone, and others
// only if that did not help. It also ends jobs that outgrow their own limits (DISK, CACHE_LIMIT).

import type { StopReason } from '../domain/container/verdict.ts';
import type { Log } from '../log.ts';
import type { FreeSpace } from './file-systems.ts';
import type { MeasureJobs, RunningJob, Usage } from './usage.ts';

const LOOK_MS = 1_000;
const MEASURE_MS = 5_000;
/** Measuring takes at most this part of the time. */
const MEASURE_SHARE = 0.1;
/** A job that was ended has this long to go before another one is chosen. */
const END_MS = 60_000;
/** Growth counts over at least this time, once there are such old figures. */
const GROWTH_MS = 60_000;
/** To end a job that holds less frees nothing. */
const LEAST_BYTES = 1024 * 1024;

export type Disk = {
  freeBytes(): number;
  /** Whether new work may be taken on (MIN_FREE_DISK). */
  hasFreeSpace(): boolean;
  /** Why this run must end now; undefined when it may go on. */
  stopReason(nonce: string): StopReason | undefined;
  /** This job must end: what it prints finds no disk space. */
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
  /** Writes down how much a suite's cache holds. */
  recordCache(suiteId: bigint, volume: string, found: { sizeBytes: number; measuredAt: number }): void;
  /** Empties the least recently used cache; false where none is left to empty. */
  emptyCache(): Promise<boolean>;
  /** Whether what the job wrote has been removed. */
  isGone(job: RunningJob): Promise<boolean>;
  /** Makes whoever runs the job ask `stopReason`. */
  wake(topic: string): void;
};

type Round = { at: number; usages: ReadonlyMap<string, Usage> };

/** The nonce is the run's own: what is ended is one compile of a dependency, not every later one. */
export function watchDisk(options: DiskOptions): Disk {
  const { minFreeBytes, workspaceLimitBytes, cacheLimitBytes, log } = options;
  const ended = new Map<string, StopReason>();
  const busy = new Set<string>();
  /** Rounds of a time in which space is short: the last one, and two to compare it with. */
  let rounds: { older: Round; newer: Round; last: Round } | undefined;
  let nextRoundAt = 0;
  let ending: { job: RunningJob; at: number } | undefined;

  const lowest = ({ dataBytes, dockerBytes }: FreeSpace) => Math.min(dataBytes, dockerBytes);
  let free = { space: options.free(), readAt: performance.now() };
  /** Asked for with every request: one look a second is enough. */
  const recent = () => {
    if (performance.now() - free.readAt > LOOK_MS)
      free = { space: options.free(), readAt: performance.now() };
    return free.space;
  };

  const end = (job: RunningJob, why: StopReason) => {
    if (ended.has(job.nonce)) return;
    ended.set(job.nonce, why);
    ending = { job, at: performance.now() };
    log.info('job is ended', { job: job.topic, why });
    options.wake(job.topic);
  };

  /** While space is getting short everything is counted, so that it is known who grows when somebody has to end. */
  const measureRound = async () => {
    const bytes = lowest(options.free());
    const isNear = bytes < minFreeBytes * 2;
    if (!isNear) rounds = undefined;
    const workspaces = isNear || workspaceLimitBytes > 0;
    if ((!workspaces && cacheLimitBytes === 0) || performance.now() < nextRoundAt) return;
    const jobs = options.jobs().filter(job => isNear || Date.now() - job.startedAt >= MEASURE_MS);
    if (jobs.length === 0) return;
    const at = performance.now();
    const measuredAt = Date.now();
    try {
      const usages = await options.measure(jobs, { workspaces });
      if (isNear) remember({ at, usages });
      for (const job of jobs) enforceLimits(job, usages.get(job.nonce));
      // Last: on a full disk nothing can be written down.
      for (const job of jobs) recordCache(job, usages.get(job.nonce), measuredAt);
    } finally {
      const tookMs = performance.now() - at;
      const shortRestMs = tookMs > LOOK_MS ? tookMs : 0;
      const restMs =
        bytes < minFreeBytes ? shortRestMs : Math.max(MEASURE_MS - tookMs, tookMs / MEASURE_SHARE);
      nextRoundAt = performance.now() + restMs;
    }
  };

  const enforceLimits = (job: RunningJob, usage: Usage | undefined) => {
    // What could not be counted is no proof that it is too much.
    const isPast = (bytes = 0, limit: number) => limit > 0 && bytes > limit && Number.isFinite(bytes);
    if (isPast(usage?.workspaceBytes, workspaceLimitBytes)) end(job, 'too_big');
    if (isPast(usage?.cache?.sizeBytes, cacheLimitBytes)) end(job, 'cache_too_big');
  };

  const recordCache = ({ suiteId }: RunningJob, usage: Usage | undefined, measuredAt: number) => {
    const { volume, sizeBytes = Number.POSITIVE_INFINITY } = usage?.cache ?? {};
    if (suiteId === undefined || volume === undefined || !Number.isFinite(sizeBytes)) return;
    options.recordCache(suiteId, volume, { sizeBytes, measuredAt });
  };

  const remember = (last: Round) => {
    if (!rounds) rounds = { older: last, newer: last, last };
    else if (last.at - rounds.newer.at > GROWTH_MS) rounds = { older: rounds.newer, newer: last, last };
    else rounds = { ...rounds, last };
  };

  /** What cannot be emptied keeps nobody from ending. */
  const emptyCache = () =>
    options.emptyCache().catch(error => {
      log.error('cache could not be emptied', { cause: error });
      return false;
    });

  const relieve = async () => {
    const space = options.free();
    if (lowest(space) >= minFreeBytes) return;
    if (space.dockerBytes < minFreeBytes && (await emptyCache())) return;
    if (lowest(space) < minFreeBytes / 2) await endOne(space);
  };

  const endOne = async (space: FreeSpace) => {
    const jobs = options.jobs();
    if (ending) {
      const { job, at } = ending;
      const isRunning = jobs.some(({ nonce }) => nonce === job.nonce);
      // It is alone until its space is back, and then there is another look at how much there is.
      if (performance.now() - at > END_MS || (!isRunning && (await options.isGone(job)))) ending = undefined;
      return;
    }
    // It takes two rounds to see which job grows.
    if (!rounds || rounds.last === rounds.older) return;
    const { older, last } = rounds;
    const counted = (usage: Usage | undefined) =>
      usage === undefined
        ? 0
        : (space.dataBytes < minFreeBytes ? usage.outputBytes : 0) +
          (space.dockerBytes < minFreeBytes ? usage.workspaceBytes + (usage.cache?.sizeBytes ?? 0) : 0);
    const [most] = jobs
      .filter(({ nonce }) => !ended.has(nonce))
      .map(job => {
        const heldBytes = counted(last.usages.get(job.nonce));
        // What cannot be counted has grown past counting.
        const grownBytes = Number.isFinite(heldBytes)
          ? heldBytes - counted(older.usages.get(job.nonce))
          : heldBytes;
        return { job, heldBytes, grownBytes };
      })
      .filter(({ heldBytes }) => heldBytes >= LEAST_BYTES)
      .toSorted((one, other) => compare(other, one, 'grownBytes') || compare(other, one, 'heldBytes'));
    if (most) end(most.job, 'disk_full');
  };

  /** One at a time of each: a slow count keeps nobody from emptying caches. */
  const attempt = async (name: string, work: () => Promise<void>) => {
    if (busy.has(name)) return;
    busy.add(name);
    try {
      await work();
    } catch (cause) {
      // Where the disk is that full, or gone, neither the database nor Docker may answer: the next look tries again.
      log.error('disk could not be looked at', { what: name, cause });
    } finally {
      busy.delete(name);
    }
  };
  const timer = setInterval(() => {
    attempt('space', relieve);
    attempt('jobs', measureRound);
  }, LOOK_MS);

  return {
    freeBytes: () => lowest(options.free()),
    hasFreeSpace: () => lowest(recent()) >= minFreeBytes,
    stopReason: nonce => ended.get(nonce),
    evict: nonce => void ended.set(nonce, 'disk_full'),
    stop: () => clearInterval(timer),
  };
}

const compare = <Key extends string>(one: Record<Key, number>, other: Record<Key, number>, key: Key) =>
  one[key] === other[key] ? 0 : one[key] - other[key];
