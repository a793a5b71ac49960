// The cache that a suite keeps in /srv/cache between builds: the name of its volume, and which caches to empty first.

import { resourceName } from './container/container-plan.ts';

/**
 * To empty a cache, the next build mounts a volume of the next generation. The old volume is removed when no build uses
 * it any more, so a build never loses its cache while it runs.
 */
export const cacheVolumeOf = (instance: string, suiteId: bigint, generation: number): string =>
  resourceName({
    instance,
    kind: 'cache',
    id: `${suiteId}${generation === 0 ? '' : `-${generation}`}`,
  });

/** CACHE_TOTAL: a share of the file system that holds Docker's volumes, or a size. 0 means no limit. */
export type CacheTotal = { share: number } | { bytes: number };

export const cacheTotalBytes = (total: CacheTotal, fileSystemBytes: number): number =>
  'bytes' in total ? total.bytes : Math.floor(total.share * fileSystemBytes);

type CacheSize = { suiteId: bigint; sizeBytes: number | null };

/**
 * The caches to empty so that all caches together use at most `totalBytes`. `idle` is ordered, least recently used first.
 */
export function cachesToEmpty<C extends CacheSize>(
  idle: readonly C[],
  usedBytes: number,
  totalBytes: number,
): C[] {
  const chosen: C[] = [];
  let leftBytes = usedBytes;
  for (const cache of idle) {
    if (totalBytes === 0 || leftBytes <= totalBytes) break;
    if (!cache.sizeBytes) continue;
    chosen.push(cache);
    leftBytes -= cache.sizeBytes;
  }
  return chosen;
}
