// Removes what nobody needs any more: containers, volumes, files of jobs, mirrors, archives, old logs. It touches only Docker
// resources with this instance's label and files in the data directory.

import { lstatSync, renameSync, type Stats, statSync } from 'node:fs';
import { lstat, opendir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { LOST_VOLUME_KIND } from '../engine/engine.ts';
import type { Log } from '../log.ts';
import { deleteUnusedArtifacts, findArtifact } from '../store/artifacts.ts';
import { removeAbandoned } from '../store/backup/work-directory.ts';
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
import {
  archivePath,
  artifactIndexPath,
  artifactPath,
  buildLogPath,
  jobDirectory,
  logFilterPath,
  uploadDirectory,
} from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { deleteUnusedVersions } from '../store/kept-versions.ts';
import type { Artifacts } from './artifacts.ts';
import type { Caches } from './caches.ts';
import type { ContainerHost } from './container-host.ts';
import type { EarlyStarts } from './early-start.ts';
import { IMPORT_PREFIX } from './import-dependency.ts';
import type { LogFilters } from './result/filter-logs.ts';
import type { ArtifactHashes } from './result/hash-artifacts.ts';
import { sweepArtifactFiles, sweepExpiredArtifacts } from './result/sweep-artifacts.ts';
import { sweepSnapshots } from './source/snapshots.ts';

export type SweepOptions = {
  db: Db;
  log: Log;
  host: ContainerHost;
  artifacts: Pick<Artifacts, 'isHeld' | 'isVolumeNeeded'>;
  caches: Pick<Caches, 'listNeeded' | 'review'>;
  filters: Pick<LogFilters, 'repair'>;
  hashes: Pick<ArtifactHashes, 'repair'>;
  early: Pick<EarlyStarts, 'holds'>;
  dataDirectory: string;
  retentionMs: number;
  /** How long artifacts of builds are kept. */
  artifactsMs: number;
};

const ARTIFACT_VOLUMES: ReadonlySet<string> = new Set(['artifact', 'union', 'mountpoints', LOST_VOLUME_KIND]);
const EVERY_MS = 30_000;
const LOGS_EVERY_MS = 3600_000;
/** A younger file may belong to a row that is not written yet. */
const GRACE_MS = 60_000;
const STARTED_AT = Math.ceil(performance.timeOrigin);
const SOURCES_EVERY_MS = 3600_000;
/** Files and directories of mirrors that one sweep checks. */
const SOURCES_PER_SWEEP = 4_000;
/** Nodes keep the images that they have pulled. */
const UNUSED_IMAGE_MS = 7 * 24 * 3600_000;
const LONG_JOB_MS = 12 * 3600_000;
/** Files are renamed before they are removed. A kill of the server leaves names with this suffix. */
const TRASH_SUFFIX = '.gone';

export function startSweep(options: SweepOptions): { stop(): void; sweep(): Promise<void> } {
  let current: Promise<void> | undefined;
  let logsAt = Number.NEGATIVE_INFINITY;
  const sweepSources = createSourceSweep(options);
  const sweep = () => {
    // Logs and artifacts may be very many, so they are listed less often.
    const withLogs = performance.now() - logsAt > LOGS_EVERY_MS;
    if (withLogs) logsAt = performance.now();
    current ??= sweepOnce(options, withLogs, sweepSources).finally(() => {
      current = undefined;
    });
    return current;
  };
  const timer = setInterval(sweep, EVERY_MS);
  return { stop: () => clearInterval(timer), sweep };
}

/** Continues after a step that fails. */
async function sweepOnce(
  options: SweepOptions,
  withLogs: boolean,
  sweepSources: () => Promise<void>,
): Promise<void> {
  const { db, host, log, dataDirectory } = options;
  const attempt = async (what: string, work: () => Promise<unknown>) => {
    try {
      await work();
    } catch (error) {
      log.debug('sweep could not finish', { what, cause: error });
    }
  };
  await attempt('jobs', () => sweepJobs(options));
  await attempt('files', () => sweepFiles(options));
  await attempt('imports', () => sweepImports(options));
  await attempt('unused sources', sweepSources);
  await attempt('snapshots', () => sweepSnapshots(db, dataDirectory));
  await attempt('artifacts', () => sweepArtifacts(options));
  await attempt('old logs', () => sweepLogs(options));
  if (withLogs) {
    await attempt('logs of what was deleted', () => sweepOrphanLogs(options));
    options.filters.repair();
    options.hashes.repair();
    await attempt('expired artifacts', () => sweepExpiredArtifacts(db, dataDirectory, options.artifactsMs));
    await attempt('files of artifacts', () => sweepArtifactFiles(db, dataDirectory));
    await attempt('images for nodes', () => host.engine.sweepImages(UNUSED_IMAGE_MS));
  }
  if (host.unavailable() !== undefined) return;
  await attempt('containers', async () => {
    for (const container of await host.engine.listContainers()) {
      const { kind, id } = container.owner;
      // Containers of other kinds are leftovers of a killed server. A probe of `assay doctor` ends by itself.
      const isNeeded =
        (kind === 'probe' && container.running) ||
        ((kind === 'build' || kind === 'dependency') && isJobRunning(db, kind, id)) ||
        (kind === 'build' && options.early.holds(id));
      if (!isNeeded) await attempt(container.name, () => host.engine.removeContainer(container.containerId));
    }
  });
  await attempt('volumes', async () => {
    const volumes = await host.engine.listVolumes();
    const neededCaches = options.caches.listNeeded();
    for (const volume of volumes) {
      const { kind, id } = volume.owner;
      const isUnneeded =
        kind === 'cache'
          ? !neededCaches.has(volume.name)
          : kind === 'workspace'
            ? !isJobRunning(db, 'build', id)
            : kind === 'prefix'
              ? !isJobRunning(db, 'dependency', id)
              : ARTIFACT_VOLUMES.has(kind) && !options.artifacts.isVolumeNeeded(volume.name, volume.owner);
      if (isUnneeded) await attempt(volume.name, () => host.engine.removeVolume(volume.name));
    }
    await attempt('caches', () => options.caches.review(volumes));
  });
}

/** A directory is created after the job is claimed, or for a container that is started early. */
async function sweepJobs({ db, dataDirectory, early }: SweepOptions): Promise<void> {
  for (const name of await readdir(join(dataDirectory, 'jobs'))) {
    const [, kind, id] = /^(build|dependency)-(\d+)$/.exec(name) ?? [];
    if (kind && id && !isJobUnfinished(db, kind, id) && !early.holds(id))
      await rm(jobDirectory(dataDirectory, kind, BigInt(id)), { recursive: true, force: true });
  }
}

async function sweepFiles({ db, dataDirectory }: SweepOptions): Promise<void> {
  for (const name of await readdir(join(dataDirectory, 'mirrors'))) {
    // A mirror, or an incomplete one that a killed process left.
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
 * Removes Git LFS content and mirrors of submodules that were not used during the retention period, at least a day. A build
 * that needs them fetches them again. There may be very many, so each sweep continues where the last one ended.
 */
function createSourceSweep({ db, dataDirectory, retentionMs }: SweepOptions): () => Promise<void> {
  let unvisited: AsyncGenerator<SourcePaths> | undefined;
  let startedAt = Number.NEGATIVE_INFINITY;
  const isUnused = (path: string, found: Stats | undefined) =>
    found !== undefined && (path.endsWith(TRASH_SUFFIX) || db.now() - found.mtimeMs > retentionMs);
  // A checkout borrows objects from mirrors while its job runs. A job marks what it uses only when it starts.
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
        // It may have been marked meanwhile. This check and the rename in `discard` run without interruption.
        if (isUnused(path, lstatSync(path, { throwIfNoEntry: false }))) await discard(path);
      }
    }
  };
}

type SourcePaths = { projectId: bigint; paths: string[] };

/** Lists what the source sweep checks, one directory at a time. No directory stays open between two sweeps. */
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

/** Git LFS spreads its objects over 65,536 directories, so each is small. */
const listDirectory = (path: string) =>
  readdir(path, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });

/** Removes the directories of imports that were killed. A new one may not be locked yet. */
async function sweepImports({ dataDirectory }: SweepOptions): Promise<void> {
  for (const name of await readdir(uploadDirectory(dataDirectory))) {
    const path = join(uploadDirectory(dataDirectory), name);
    if (name.startsWith(IMPORT_PREFIX) && isOld(path)) await removeAbandoned(path);
  }
}

/** Removes artifacts that neither a dependency nor a kept version uses. */
async function sweepArtifacts({ db, dataDirectory, artifacts }: SweepOptions): Promise<void> {
  deleteUnusedVersions(db);
  const isUnused = (hash: string) => !artifacts.isHeld(hash) && !findArtifact(db, hash);
  for (const hash of deleteUnusedArtifacts(db, artifacts.isHeld))
    if (isUnused(hash))
      for (const pathOf of [artifactPath, artifactIndexPath]) await discard(pathOf(dataDirectory, hash));
  for (const name of await readdir(join(dataDirectory, 'artifacts'))) {
    const hash = name.split('.')[0] as string;
    const path = join(dataDirectory, 'artifacts', name);
    if (isUnused(hash) && isOld(path)) await discard(path);
  }
}

/** Removes logs of deleted builds, deploys and dependencies. */
async function sweepOrphanLogs({ db, dataDirectory }: SweepOptions): Promise<void> {
  for await (const { name } of await opendir(join(dataDirectory, 'logs'))) {
    const [, kind, id] =
      /^(build|deploy|dependency)-(\d+)(?:\.compiled)?\.log(?:\.times|\.grams)?$/.exec(name) ?? [];
    if (kind && id && !recordExists(db, kind as LogKind, BigInt(id)))
      await rm(join(dataDirectory, 'logs', name), { force: true });
  }
}

/** Renames the file at once, right after the check that nobody uses it: a new file may take its name during a slow removal. */
async function discard(path: string): Promise<void> {
  const trash = `${path}.${Date.now()}${TRASH_SUFFIX}`;
  try {
    renameSync(path, trash);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return;
  }
  await rm(trash, { recursive: true, force: true });
}

function isOld(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found !== undefined && Date.now() - Math.max(found.mtimeMs, found.ctimeMs) > GRACE_MS;
}

/** Removes logs of builds past their retention. The rows stay. */
async function sweepLogs({ db, dataDirectory, retentionMs }: SweepOptions): Promise<void> {
  for (const id of listExpiredBuilds(db, db.now() - retentionMs, 100)) {
    const path = buildLogPath(dataDirectory, id);
    await rm(path, { force: true });
    await rm(`${path}.times`, { force: true });
    await rm(logFilterPath(path), { force: true });
    markLogsDeleted(db, id);
  }
}
