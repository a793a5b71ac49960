// What a suite keeps in /srv/cache between builds: the name of its volume, and which caches have to be emptied.

/**
 * Emptying a cache means the next build mounts a volume of the next generation. The old one goes when no build uses it
 * any more, so no build ever loses its cache while it runs.
 */
export const cacheVolumeOf = (instance: string, suiteId: bigint, generation: number): string =>
  `assay-${instance}-cache-${suiteId}${generation === 0 ? '' : `-${generation}`}`;

/** CACHE_TOTAL: a share of the file system that holds Docker's volumes, or a size. 0 is no limit. */
export type CacheTotal = { share: number } | { bytes: number };

export const cacheTotalBytes = (total: CacheTotal, fileSystemBytes: number): number =>
  'bytes' in total ? total.bytes : Math.floor(total.share * fileSystemBytes);

export type CacheSize = { suiteId: bigint; sizeBytes: number | null };

/**
 * The caches that have to be emptied so that all of them take no more than `totalBytes`: from the beginning of `idle`,
 * which begins with the least recently used.
 */
export function cachesToEmpty<C extends CacheSize>(
  idle: readonly C[],
  takenBytes: number,
  totalBytes: number,
): C[] {
  const chosen: C[] = [];
  let leftBytes = takenBytes;
  for (const cache of idle) {
    if (totalBytes === 0 || leftBytes <= totalBytes) break;
    if (!cache.sizeBytes) continue;
    chosen.push(cache);
    leftBytes -= cache.sizeBytes;
  }
  return chosen;
}
