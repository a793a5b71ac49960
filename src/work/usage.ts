// How much disk space running jobs take: their output, their container's writable layer, and the volumes that they write
// to. One question to Docker and one short-lived container count for all of them.

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CACHE_DIRECTORY,
  prefixVolumeName,
  workspaceVolumeName,
} from '../domain/container/container-plan.ts';
import type { Log } from '../log.ts';
import { jobDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/settings.ts';
import { listCompiling, listRunningBuilds } from '../store/queue.ts';
import type { Caches } from './caches.ts';
import type { ContainerHost } from './container-host.ts';

export type RunningJob = {
  kind: 'build' | 'dependency';
  id: bigint;
  topic: string;
  nonce: string;
  /** Whose cache a build uses. */
  suiteId?: bigint;
  startedAt: number;
};

export type Usage = {
  /** On DATA's disk. */
  outputBytes: number;
  /** The writable layer and the job's own volumes. Infinity where a volume holds too many files to count in time. */
  workspaceBytes: number;
  cache?: { volume: string; sizeBytes: number };
};

export function listRunningJobs(db: Db): RunningJob[] {
  return [
    ...listRunningBuilds(db).map(({ id, nonce, suiteId, startedAt }) => ({
      kind: 'build' as const,
      id,
      topic: `build:${id}`,
      nonce: nonce as string,
      suiteId,
      startedAt: startedAt ?? 0,
    })),
    ...listCompiling(db).map(({ id, nonce, startedAt }) => ({
      kind: 'dependency' as const,
      id,
      topic: `dependency:${id}`,
      nonce: nonce as string,
      startedAt: startedAt ?? 0,
    })),
  ];
}

export type MeasureJobs = (
  jobs: readonly RunningJob[],
  /** Whether more than the caches is counted. */
  what: { workspaces: boolean },
) => Promise<Map<string, Usage>>;

/** Measures jobs, by their nonces. */
export function createJobMeter(options: {
  db: Db;
  host: ContainerHost;
  caches: Pick<Caches, 'measure'>;
  dataDirectory: string;
  log: Log;
}): MeasureJobs {
  const { host, dataDirectory } = options;
  const instance = instanceOf(options.db);
  let lastSizes: ReadonlyMap<string, number> = new Map();

  /** On a full disk no container can be made that counts: the last figures serve. */
  const measureVolumes = async (names: readonly string[]): Promise<(name: string) => number> => {
    try {
      const sizes = await options.caches.measure(names);
      lastSizes = sizes;
      return name => sizes.get(name) ?? Number.POSITIVE_INFINITY;
    } catch (error) {
      options.log.warn('volumes could not be measured', { cause: error });
      return name => lastSizes.get(name) ?? 0;
    }
  };

  return async (jobs, { workspaces }) => {
    const containers = await host.engine.listStorage({ layers: workspaces });
    // Output counts without a container too: a job whose container ended on a full disk cannot write down that it has.
    const found = jobs.map(job => {
      const container = containers.find(
        ({ owner }) => owner.kind === job.kind && owner.id === String(job.id),
      );
      const volumes = container?.volumes ?? [];
      const own = workspaces ? volumes.filter(({ name }) => name === ownVolume(instance, job)) : [];
      const cache = volumes.find(({ target }) => target === CACHE_DIRECTORY)?.name;
      return { job, layerBytes: container?.layerBytes ?? 0, own: own.map(({ name }) => name), cache };
    });
    const names = found.flatMap(({ own, cache }) => [...own, ...(cache === undefined ? [] : [cache])]);
    const sizeOf = await measureVolumes([...new Set(names)]);
    const usages = await Promise.all(
      found.map(
        async ({ job, layerBytes, own, cache }): Promise<[string, Usage]> => [
          job.nonce,
          {
            outputBytes: await outputBytes(join(jobDirectory(dataDirectory, job.kind, job.id), 'output')),
            workspaceBytes: own.reduce((sum, name) => sum + sizeOf(name), layerBytes),
            ...(cache !== undefined && { cache: { volume: cache, sizeBytes: sizeOf(cache) } }),
          },
        ],
      ),
    );
    return new Map(usages);
  };
}

/** What a job writes to beside its container: the workspace of a build whose image has no git, the prefix of a compile. */
const ownVolume = (instance: string, { kind, id }: RunningJob) =>
  kind === 'build' ? workspaceVolumeName(instance, id) : prefixVolumeName(instance, id);

/** On disk: an output that was released takes less than its length. */
const outputBytes = (file: string) =>
  stat(file).then(
    ({ blocks }) => blocks * 512,
    () => 0,
  );
