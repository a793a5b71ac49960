// The caches of suites in Docker: which volume a build mounts, how much each one holds, and emptying those that take too
// much disk space. The books are in src/store/caches.ts.

import { type CacheTotal, cachesToEmpty, cacheTotalBytes, cacheVolumeOf } from '../domain/cache.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { EngineUnavailable, type OwnedVolume } from '../engine/engine.ts';
import type { Log } from '../log.ts';
import {
  adoptCache,
  type Cache,
  emptyCache,
  findCache,
  isUnmeasured,
  listCacheGenerations,
  listIdleCaches,
  listUnmeasuredCaches,
  recordCacheSize,
  sumCaches,
  useCache,
} from '../store/caches.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/settings.ts';
import type { ContainerHost } from './container-host.ts';

export type CacheOptions = {
  db: Db;
  host: ContainerHost;
  log: Log;
  /** CACHE_LIMIT, of each suite; 0 is no limit. */
  limitBytes: number;
  /** CACHE_TOTAL. */
  total: CacheTotal;
  /** Of the file system that holds Docker's volumes. */
  fileSystemBytes(): number;
};

export type Caches = {
  limitBytes: number;
  totalBytes(): number;
  /** The volume that a build of the suite mounts. Notes that it is used. */
  open(suiteId: bigint): string;
  /** Counts what volumes hold; one that could not be counted in time is missing. */
  measure(volumes: readonly string[]): Promise<Map<string, number>>;
  /** Writes down what was measured while a build used it, and empties it where that is too much: true if so. */
  record(suiteId: bigint, volume: string, found: { sizeBytes: number; measuredAt: number }): boolean;
  /** The volumes that builds may mount from now on. */
  listNeeded(): ReadonlySet<string>;
  /** Measures what was used, and empties what takes too much. `volumes` are those that Docker has. */
  review(volumes: readonly OwnedVolume[]): Promise<void>;
  /** Empties the least recently used cache that no build uses; false where nothing can be freed. */
  emptyLeastRecentlyUsed(): Promise<boolean>;
};

/** Docker deletes file by file: a large cache takes its time. */
const REMOVE_MS = 10 * 60_000;
const MEASURED_AT_ONCE = 64;

export function createCaches(options: CacheOptions): Caches {
  const { db, host, log, limitBytes } = options;
  const instance = instanceOf(db);
  const volumeOf = ({ suiteId, generation }: Cache) => cacheVolumeOf(instance, suiteId, generation);
  const totalBytes = () => cacheTotalBytes(options.total, options.fileSystemBytes());
  const tooLarge = `because it grew past ${limitBytes} bytes (CACHE_LIMIT)`;

  const measure = host.engine.measureVolumes;

  /** False where a build has begun to use it meanwhile: it goes when that has ended. */
  const remove = async (volume: string) => {
    try {
      return await host.engine.removeVolume(volume, { deadlineMs: REMOVE_MS });
    } catch (error) {
      if (error instanceof EngineUnavailable) host.reportUnavailable(error);
      throw error;
    }
  };
  /** On a full disk it cannot be written down: the next review finds the volume gone. */
  const noteEmptied = (cache: Cache, because: string) => {
    log.info('cache emptied', { suite: cache.suiteId, bytes: cache.sizeBytes, because });
    try {
      emptyCache(db, cache.suiteId, because);
    } catch (error) {
      if (!isDiskFull(error)) throw error;
    }
  };
  const emptyNow = async (cache: Cache, because: string) => {
    emptyCache(db, cache.suiteId, because);
    log.info('cache emptied', { suite: cache.suiteId, bytes: cache.sizeBytes, because });
    await remove(volumeOf(cache));
  };

  const listNeeded = () =>
    new Set(
      listCacheGenerations(db).map(({ suiteId, generation }) =>
        cacheVolumeOf(instance, suiteId, generation ?? 0),
      ),
    );

  /** Volumes that were made before there were books, and books of volumes that Docker has lost. */
  const reconcile = (volumes: readonly OwnedVolume[]) => {
    const present = new Map(volumes.map(({ name, createdAt }) => [name, createdAt]));
    for (const { suiteId, generation } of listCacheGenerations(db)) {
      const createdAt = generation === null && present.get(cacheVolumeOf(instance, suiteId, 0));
      if (createdAt) adoptCache(db, suiteId, createdAt.getTime());
    }
    const measuredAt = db.now();
    for (const cache of listIdleCaches(db))
      if (!present.has(volumeOf(cache))) recordCacheSize(db, cache, { sizeBytes: 0, measuredAt });
    return present;
  };

  return {
    limitBytes,
    totalBytes,
    open: suiteId => volumeOf(useCache(db, suiteId)),
    measure,

    record(suiteId, volume, found) {
      const cache = findCache(db, suiteId);
      if (!cache || volumeOf(cache) !== volume) return false;
      recordCacheSize(db, cache, found);
      if (limitBytes === 0 || found.sizeBytes <= limitBytes) return false;
      emptyCache(db, suiteId, tooLarge);
      return true;
    },

    listNeeded,

    async review(volumes) {
      const present = reconcile(volumes);
      const measuredAt = db.now();
      const used = listUnmeasuredCaches(db, MEASURED_AT_ONCE).filter(cache => present.has(volumeOf(cache)));
      const sizes = await measure(used.map(volumeOf));
      for (const cache of used) {
        const sizeBytes = sizes.get(volumeOf(cache));
        if (sizeBytes === undefined) log.warn('cache could not be measured', { suite: cache.suiteId });
        recordCacheSize(db, cache, { sizeBytes: sizeBytes ?? null, measuredAt });
      }
      const idle = listIdleCaches(db);
      const large = idle.filter(({ sizeBytes }) => limitBytes > 0 && (sizeBytes ?? 0) > limitBytes);
      for (const cache of large) await emptyNow(cache, tooLarge);
      const rest = idle.filter(cache => !large.includes(cache));
      for (const cache of cachesToEmpty(rest, sumCaches(db).bytes, totalBytes()))
        await emptyNow(cache, 'because all caches together took too much disk space (CACHE_TOTAL)');
    },

    async emptyLeastRecentlyUsed() {
      if (host.unavailable() !== undefined) return false;
      const volumes = await host.engine.listVolumes();
      const present = new Set(volumes.map(({ name }) => name));
      const needed = listNeeded();
      let isAnyGone = false;
      // Those that were emptied while a build used them hold their space for nothing.
      for (const { name, owner } of volumes)
        if (owner.kind === 'cache' && !needed.has(name) && (await remove(name))) isAnyGone = true;
      if (isAnyGone) return true;
      for (const cache of listIdleCaches(db)) {
        // No build begins while space is short: one that takes long to remove is in nobody's way.
        if (!present.has(volumeOf(cache)) || !(await remove(volumeOf(cache)))) continue;
        isAnyGone = true;
        noteEmptied(cache, 'because the disk was nearly full');
        // One that may hold nothing does not count as the one that gives way.
        if (!isUnmeasured(cache)) break;
      }
      return isAnyGone;
    },
  };
}
