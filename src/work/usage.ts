// Measures the disk space of running jobs: their output, the writable layers of their containers, and the volumes that they
// write to. One request to Docker and one short-lived container measure all jobs.

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
import { instanceOf } from '../store/database/stored-values.ts';
import { listCompiling, listRunningBuilds } from '../store/queue.ts';
import type { Caches } from './caches.ts';
import type { ContainerHost } from './container-host.ts';

export type RunningJob = {
  kind: 'build' | 'dependency';
  id: bigint;
  topic: string;
  nonce: string;
  /** The suite whose cache a build uses. */
  suiteId?: bigint;
  startedAt: number;
};

export type Usage = {
  /** On the disk of the data directory. */
  outputBytes: number;
  /** The writable layer and the job's own volumes. Infinity if a volume has too many files to measure in time. */
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
  /** Whether to measure workspaces too, not only caches. */
  what: { workspaces: boolean },
) => Promise<Map<string, Usage>>;

/** Returns the usage by nonce. */
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

  /** On a full disk the container that measures cannot be created, so the last sizes are used. */
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
    // A job without a container still has output: on a full disk its end cannot be recorded.
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

/** The workspace of a build whose image has no git, or the prefix of a compile. */
const ownVolume = (instance: string, { kind, id }: RunningJob) =>
  kind === 'build' ? workspaceVolumeName(instance, id) : prefixVolumeName(instance, id);

/** Blocks on disk, because a released output uses less space than its length. */
const outputBytes = (file: string) =>
  stat(file).then(
    ({ blocks }) => blocks * 512,
    () => 0,
  );
