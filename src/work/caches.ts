// The caches of suites in Docker: chooses the volume that a build mounts, measures it, and empties caches that use too much
// disk space. src/store/caches.ts has their rows.

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
  openCache,
  recordCacheSize,
  sumCaches,
} from '../store/caches.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import type { ContainerHost } from './container-host.ts';

type CacheOptions = {
  db: Db;
  host: ContainerHost;
  log: Log;
  /** CACHE_LIMIT, for each suite; 0 is no limit. */
  limitBytes: number;
  /** CACHE_TOTAL. */
  total: CacheTotal;
  /** The size of the file system that holds Docker's volumes. */
  fileSystemBytes(): number;
};

export type Caches = {
  limitBytes: number;
  totalBytes(): number;
  /** Returns the volume that a build of the suite mounts. */
  open(suiteId: bigint): string;
  /** Returns sizes by volume, without volumes that could not be measured in time. */
  measure(volumes: readonly string[]): Promise<Map<string, number>>;
  /** Records the size of a cache in use. Empties it and returns true if it exceeds the limit. */
  record(suiteId: bigint, volume: string, found: { sizeBytes: number; measuredAt: number }): boolean;
  /** The volumes that builds may mount from now on. */
  listNeeded(): ReadonlySet<string>;
  /** Measures used caches, and empties those that exceed a limit. `volumes` are the volumes in Docker. */
  review(volumes: readonly OwnedVolume[]): Promise<void>;
  /** Empties the least recently used cache that no build uses; false if nothing can be freed. */
  emptyLeastRecentlyUsed(): Promise<boolean>;
};

/** Docker deletes file by file, which is slow for a large cache. */
const REMOVE_MS = 10 * 60_000;
const MEASURED_PER_REVIEW = 64;
/** A cache in constant use is measured no more often than this, because measuring takes as long as a short build. */
const MEASURE_AGAIN_MS = 2 * 60_000;

export function createCaches(options: CacheOptions): Caches {
  const { db, host, log, limitBytes } = options;
  const instance = instanceOf(db);
  const volumeOf = ({ suiteId, generation }: Cache) => cacheVolumeOf(instance, suiteId, generation);
  const totalBytes = () => cacheTotalBytes(options.total, options.fileSystemBytes());
  const tooLarge = `because it grew past ${limitBytes} bytes (CACHE_LIMIT)`;

  /** False if a build uses the volume now. The sweep removes it later. */
  const remove = async (volume: string) => {
    try {
      return await host.engine.removeVolume(volume, { deadlineMs: REMOVE_MS });
    } catch (error) {
      if (error instanceof EngineUnavailable) host.reportUnavailable(error);
      throw error;
    }
  };
  /** A full disk may prevent the record. Then the next review finds that the volume is gone. */
  const recordEmptied = (cache: Cache, because: string) => {
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

  /** Adds rows for volumes of older versions, and resets the size of caches whose volume is gone. */
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
    open: suiteId => volumeOf(openCache(db, suiteId)),
    measure: host.engine.measureVolumes,

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
      const used = listUnmeasuredCaches(db, {
        measuredBefore: measuredAt - MEASURE_AGAIN_MS,
        limit: MEASURED_PER_REVIEW,
      }).filter(cache => present.has(volumeOf(cache)));
      const sizes = await host.engine.measureVolumes(used.map(volumeOf));
      // Together, because each transaction waits for the disk.
      db.write(() => {
        for (const cache of used) {
          const sizeBytes = sizes.get(volumeOf(cache)) ?? null;
          if (sizeBytes === null) log.warn('cache could not be measured', { suite: cache.suiteId });
          recordCacheSize(db, cache, { sizeBytes, measuredAt });
        }
      });
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
      let isAnyRemoved = false;
      // Volumes that were in use when their cache was emptied.
      for (const { name, owner } of volumes)
        if (owner.kind === 'cache' && !needed.has(name) && (await remove(name))) isAnyRemoved = true;
      if (isAnyRemoved) return true;
      for (const cache of listIdleCaches(db)) {
        // No build starts while space is low, so a slow removal delays nobody.
        if (!present.has(volumeOf(cache)) || !(await remove(volumeOf(cache)))) continue;
        isAnyRemoved = true;
        recordEmptied(cache, 'because the disk was nearly full');
        // An unmeasured cache may be empty, so the next one is removed too.
        if (!isUnmeasured(cache)) break;
      }
      return isAnyRemoved;
    },
  };
}
