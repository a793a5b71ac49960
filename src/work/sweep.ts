// Takes away what outlived its job: containers, volumes, files of jobs, mirrors, archives, old logs. Only things with this
// instance's label, and only files in DATA.

import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../log.ts';
import type { Db } from '../store/db.ts';
import { instanceOf } from '../store/facts.ts';
import { archivePath, buildLogPath, jobDirectory } from '../store/paths.ts';
import {
  isArchiveReferred,
  isCacheNeeded,
  isJobRunning,
  isProjectThere,
  listExpiredBuilds,
  markLogGone,
} from '../store/sweep.ts';
import type { ContainerHost } from './container-host.ts';

export type SweepParts = {
  db: Db;
  log: Log;
  host: ContainerHost;
  dataDirectory: string;
  retentionMs: number;
};

const EVERY_MS = 30_000;
/** A file or volume this young may belong to something that has not been written down yet. */
const GRACE_MS = 60_000;

export function startSweep(parts: SweepParts): { stop(): void; sweep(): Promise<void> } {
  let under: Promise<void> | undefined;
  const sweep = () => {
    under ??= sweepOnce(parts)
      .catch(cause => parts.log.debug('sweep could not finish', { cause }))
      .finally(() => {
        under = undefined;
      });
    return under;
  };
  const timer = setInterval(sweep, EVERY_MS);
  return { stop: () => clearInterval(timer), sweep };
}

async function sweepOnce(parts: SweepParts): Promise<void> {
  await sweepFiles(parts);
  await sweepLogs(parts);
  if (parts.host.unavailable() === undefined) await sweepDocker(parts);
}

async function sweepDocker({ db, host }: SweepParts): Promise<void> {
  const instance = instanceOf(db);
  for (const container of await host.engine.listContainers(instance)) {
    const { kind, id } = container.owner;
    const young = Date.now() - container.createdAt.getTime() < GRACE_MS;
    if (kind === 'build' || kind === 'dependency') {
      if (!isJobRunning(db, kind, id)) await host.engine.removeContainer(container.containerId);
    } else if (!young) await host.engine.removeContainer(container.containerId);
  }
  for (const volume of await host.engine.listVolumes(instance)) {
    const { kind, id } = volume.owner;
    const young = Date.now() - volume.createdAt.getTime() < GRACE_MS;
    if (kind === 'cache' && !young && !isCacheNeeded(db, id)) await host.engine.removeVolume(volume.name);
    if (kind === 'workspace' && !isJobRunning(db, 'build', id)) await host.engine.removeVolume(volume.name);
  }
}

async function sweepFiles({ db, dataDirectory }: SweepParts): Promise<void> {
  for (const name of await readdir(join(dataDirectory, 'jobs'))) {
    const [, kind, id] = /^(build|dependency)-(\d+)$/.exec(name) ?? [];
    if (kind && id && !isJobRunning(db, kind, id) && (await isOld(join(dataDirectory, 'jobs', name))))
      await rm(jobDirectory(dataDirectory, kind, BigInt(id)), { recursive: true, force: true });
  }
  for (const name of await readdir(join(dataDirectory, 'mirrors'))) {
    const [, id] = /^(\d+)\.git$/.exec(name) ?? [];
    if (id && !isProjectThere(db, BigInt(id)))
      await rm(join(dataDirectory, 'mirrors', name), { recursive: true, force: true });
  }
  for (const hash of await readdir(join(dataDirectory, 'archives'))) {
    const path = archivePath(dataDirectory, hash);
    if (!isArchiveReferred(db, hash) && (await isOld(path))) await rm(path, { force: true });
  }
}

async function isOld(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found !== undefined && Date.now() - Math.max(found.mtimeMs, found.ctimeMs) > GRACE_MS;
}

/** Logs of builds that ended long ago; the rows stay. */
async function sweepLogs({ db, dataDirectory, retentionMs }: SweepParts): Promise<void> {
  for (const id of listExpiredBuilds(db, db.now() - retentionMs, 100)) {
    const path = buildLogPath(dataDirectory, id);
    await rm(path, { force: true });
    await rm(`${path}.times`, { force: true });
    markLogGone(db, id);
  }
}
