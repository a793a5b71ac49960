// Removes what outlived its job: containers, volumes, files of jobs, mirrors, archives, old logs. It touches only resources
// with this instance's label, and only files in DATA.

import { lstatSync, renameSync, type Stats, statSync } from 'node:fs';
import { lstat, opendir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { LOST_VOLUME_KIND } from '../engine/engine.ts';
import type { Log } from '../log.ts';
import { deleteUnusedArtifacts, findArtifact } from '../store/artifacts.ts';
import {
  isArchiveUsed,
  isBuildRunningSince,
  isJobRunning,
  isJobUnfinished,
  type LogKind,
  listExpiredBuilds,
  markLogsDeleted,
  projectExists,
  recordExists,
} from '../store/cleanup/sweep.ts';
import { archivePath, artifactPath, buildLogPath, jobDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import type { Artifacts } from './artifacts.ts';
import type { Caches } from './caches.ts';
import type { ContainerHost } from './container-host.ts';

export type SweepOptions = {
  db: Db;
  log: Log;
  host: ContainerHost;
  artifacts: Pick<Artifacts, 'isHeld' | 'isVolumeNeeded'>;
  caches: Pick<Caches, 'listNeeded' | 'review'>;
  dataDirectory: string;
  retentionMs: number;
};

const ARTIFACT_VOLUMES: ReadonlySet<string> = new Set(['artifact', 'union', 'mountpoints', LOST_VOLUME_KIND]);
const EVERY_MS = 30_000;
const LOGS_EVERY_MS = 3600_000;
/** A file this young may belong to something that has not been written down yet. */
const GRACE_MS = 60_000;
const STARTED_AT = Math.ceil(performance.timeOrigin);
const SOURCES_EVERY_MS = 3600_000;
/** Files and directories of mirrors that one sweep looks at. */
const SOURCES_PER_SWEEP = 4_000;
const LONG_JOB_MS = 12 * 3600_000;
/** How the name ends of what is being removed, or was when the server was killed. */
const ASIDE = '.gone';

export function startSweep(options: SweepOptions): { stop(): void; sweep(): Promise<void> } {
  let under: Promise<void> | undefined;
  let logsAt = Number.NEGATIVE_INFINITY;
  const sweepSources = createSourceSweep(options);
  const sweep = () => {
    // There may be very many logs: they are gone through now and then.
    const withLogs = performance.now() - logsAt > LOGS_EVERY_MS;
    if (withLogs) logsAt = performance.now();
    under ??= sweepOnce(options, withLogs, sweepSources).finally(() => {
      under = undefined;
    });
    return under;
  };
  const timer = setInterval(sweep, EVERY_MS);
  return { stop: () => clearInterval(timer), sweep };
}

/** Each step by itself: what cannot be removed does not keep the rest from being removed. */
async function sweepOnce(
  options: SweepOptions,
  withLogs: boolean,
  sweepSources: () => Promise<void>,
): Promise<void> {
  const { db, host, log } = options;
  const attempt = async (what: string, work: () => Promise<unknown>) => {
    try {
      await work();
    } catch (cause) {
      log.debug('sweep could not finish', { what, cause });
    }
  };
  await attempt('jobs', () => sweepJobs(options));
  await attempt('files', () => sweepFiles(options));
  await attempt('unused sources', sweepSources);
  await attempt('artifacts', () => sweepArtifacts(options));
  await attempt('old logs', () => sweepLogs(options));
  if (withLogs) await attempt('logs of what was deleted', () => sweepOrphanLogs(options));
  if (host.unavailable() !== undefined) return;
  await attempt('containers', async () => {
    for (const container of await host.engine.listContainers()) {
      const { kind, id } = container.owner;
      // Others are left from an engine that was closed or killed.
      const isNeeded = (kind === 'build' || kind === 'dependency') && isJobRunning(db, kind, id);
      if (!isNeeded) await attempt(container.name, () => host.engine.removeContainer(container.containerId));
    }
  });
  await attempt('volumes', async () => {
    const volumes = await host.engine.listVolumes();
    const neededCaches = options.caches.listNeeded();
    for (const volume of volumes) {
      const { kind, id } = volume.owner;
      const isLeft =
        kind === 'cache'
          ? !neededCaches.has(volume.name)
          : kind === 'workspace'
            ? !isJobRunning(db, 'build', id)
            : kind === 'prefix'
              ? !isJobRunning(db, 'dependency', id)
              : ARTIFACT_VOLUMES.has(kind) && !options.artifacts.isVolumeNeeded(volume.name, volume.owner);
      if (isLeft) await attempt(volume.name, () => host.engine.removeVolume(volume.name));
    }
    await attempt('caches', () => options.caches.review(volumes));
  });
}

/** A job's directory is made after the job is claimed, so one without a job is never needed again. */
async function sweepJobs({ db, dataDirectory }: SweepOptions): Promise<void> {
  for (const name of await readdir(join(dataDirectory, 'jobs'))) {
    const [, kind, id] = /^(build|dependency)-(\d+)$/.exec(name) ?? [];
    if (kind && id && !isJobUnfinished(db, kind, id))
      await rm(jobDirectory(dataDirectory, kind, BigInt(id)), { recursive: true, force: true });
  }
}

async function sweepFiles({ db, dataDirectory }: SweepOptions): Promise<void> {
  for (const name of await readdir(join(dataDirectory, 'mirrors'))) {
    // A mirror, or what a process that was killed left while it made one.
    const [, id] = /^(\d+)\.git(?:\.\w+)*$/.exec(name) ?? [];
    if (id && !projectExists(db, BigInt(id)))
      await rm(join(dataDirectory, 'mirrors', name), { recursive: true, force: true });
  }
  for (const hash of await readdir(join(dataDirectory, 'archives'))) {
    const path = archivePath(dataDirectory, hash);
    if (!isArchiveUsed(db, hash) && isOld(path)) await discard(path);
  }
}

/**
 * Removes content of Git LFS and mirrors of submodules that nothing used for the retention, which is a day at least: a
 * build that needs them again fetches them again. There may be very many: each sweep goes on where the last one ended.
 */
function createSourceSweep({ db, dataDirectory, retentionMs }: SweepOptions): () => Promise<void> {
  let unvisited: AsyncGenerator<SourcePaths> | undefined;
  let startedAt = Number.NEGATIVE_INFINITY;
  const isUnused = (path: string, found: Stats | undefined) =>
    found !== undefined && (path.endsWith(ASIDE) || db.now() - found.mtimeMs > retentionMs);
  // A checkout borrows from mirrors for as long as its job runs. A job marked what it uses when it started.
  const isInUse = (projectId: bigint) =>
    isBuildRunningSince(db, projectId, Math.max(STARTED_AT, db.now() - LONG_JOB_MS));
  return async () => {
    if (!unvisited) {
      if (performance.now() - startedAt < SOURCES_EVERY_MS) return;
      startedAt = performance.now();
      unvisited = listSources(join(dataDirectory, 'mirrors'));
    }
    for (let seen = 0; seen < SOURCES_PER_SWEEP; ) {
      const { value, done } = await unvisited.next();
      if (done) {
        unvisited = undefined;
        return;
      }
      seen += 1 + value.paths.length;
      if (isInUse(value.projectId)) continue;
      for (const path of value.paths) {
        const found = await lstat(path).catch(() => undefined);
        if (!isUnused(path, found)) continue;
        // It may have been marked meanwhile. Nothing comes between this check and the removal.
        if (isUnused(path, lstatSync(path, { throwIfNoEntry: false }))) await discard(path);
      }
    }
  };
}

type SourcePaths = { projectId: bigint; paths: string[] };

/** What a source sweep looks at, one directory at a time. No directory stays open between two of them. */
async function* listSources(mirrors: string): AsyncGenerator<SourcePaths> {
  for (const name of await readdir(mirrors)) {
    const [, id, isOfSubmodules] = /^(\d+)\.git(\.modules)?$/.exec(name) ?? [];
    if (!id) continue;
    const projectId = BigInt(id);
    const path = join(mirrors, name);
    if (isOfSubmodules)
      yield { projectId, paths: (await listDirectory(path)).map(one => join(path, one.name)) };
    const directories = isOfSubmodules
      ? (await listDirectory(path)).map(one => join(path, one.name, 'lfs'))
      : [join(path, 'lfs')];
    for (let next = directories.pop(); next !== undefined; next = directories.pop()) {
      const parent = next;
      const entries = await listDirectory(parent);
      const pathOf = (entry: { name: string }) => join(parent, entry.name);
      directories.push(...entries.filter(entry => entry.isDirectory()).map(pathOf));
      yield { projectId, paths: entries.filter(entry => !entry.isDirectory()).map(pathOf) };
    }
  }
}

/** Git LFS spreads its objects over 65,536 directories: each is small enough to be read at once. */
const listDirectory = (path: string) =>
  readdir(path, { withFileTypes: true }).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT' || cause.code === 'ENOTDIR') return [];
    throw cause;
  });

/** What no dependency was compiled to any more. */
async function sweepArtifacts({ db, dataDirectory, artifacts }: SweepOptions): Promise<void> {
  const isFree = (hash: string) => !artifacts.isHeld(hash) && !findArtifact(db, hash);
  for (const hash of deleteUnusedArtifacts(db, artifacts.isHeld))
    if (isFree(hash)) await discard(artifactPath(dataDirectory, hash));
  for (const name of await readdir(join(dataDirectory, 'artifacts'))) {
    const hash = name.split('.')[0] as string;
    const path = join(dataDirectory, 'artifacts', name);
    if (isFree(hash) && isOld(path)) await discard(path);
  }
}

/** Logs whose build or deploy went with its project. */
async function sweepOrphanLogs({ db, dataDirectory }: SweepOptions): Promise<void> {
  for await (const { name } of await opendir(join(dataDirectory, 'logs'))) {
    const [, kind, id] = /^(build|deploy|dependency)-(\d+)\.log(?:\.times)?$/.exec(name) ?? [];
    if (kind && id && !recordExists(db, kind as LogKind, BigInt(id)))
      await rm(join(dataDirectory, 'logs', name), { force: true });
  }
}

/**
 * The name is free in the very moment in which it was found to be needed by nobody: the same bytes may be on their way to
 * it again. What was there takes its time to go.
 */
async function discard(path: string): Promise<void> {
  const aside = `${path}.${Date.now()}${ASIDE}`;
  try {
    renameSync(path, aside);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause;
    return;
  }
  await rm(aside, { recursive: true, force: true });
}

function isOld(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found !== undefined && Date.now() - Math.max(found.mtimeMs, found.ctimeMs) > GRACE_MS;
}

/** Logs of builds that ended long ago; the rows stay. */
async function sweepLogs({ db, dataDirectory, retentionMs }: SweepOptions): Promise<void> {
  for (const id of listExpiredBuilds(db, db.now() - retentionMs, 100)) {
    const path = buildLogPath(dataDirectory, id);
    await rm(path, { force: true });
    await rm(`${path}.times`, { force: true });
    markLogsDeleted(db, id);
  }
}
