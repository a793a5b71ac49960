// Fetches the mirror of a project with the project's key, one fetch of a project at a time.

import { GitFailure } from '../../engine/git/git.ts';
import { type FetchMirror, fetchMirror } from '../../engine/git/mirror.ts';
import type { Live } from '../../live.ts';
import type { Log } from '../../log.ts';
import { mirrorPath } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import { findProject, type Project, privateKeyOf } from '../../store/projects.ts';
import type { EarlyStarts } from '../early-start.ts';
import type { KeyedMutex } from '../keyed-mutex.ts';
import type { Repacks } from './repack-mirrors.ts';

export type FetchOptions = {
  db: Db;
  live: Live;
  log: Log;
  dataDirectory: string;
  stopping: AbortSignal;
  mutex: KeyedMutex;
  repacks: Repacks;
  early: Pick<EarlyStarts, 'reserve' | 'start' | 'removeUnused'>;
  /** Projects whose force pushes have all been handled. */
  handledForcePushes: Set<bigint>;
};

/** Brings the project's mirror up to date. */
export async function fetchProject(
  options: FetchOptions,
  project: Project,
  signal: AbortSignal,
): Promise<void> {
  const fetch = mirrorFetch(options, project, signal);
  using _lock = await options.mutex(`mirror ${project.id}`, signal);
  const { rewritten } = await fetchMirror(fetch);
  if (rewritten) options.handledForcePushes.delete(project.id);
}

export function mirrorFetch(options: FetchOptions, project: Project, signal: AbortSignal): FetchMirror {
  const { db, live, log, dataDirectory, repacks } = options;
  const { id, repositoryUrl } = project;
  const mirror = mirrorPath(dataDirectory, id);
  return {
    mirror,
    url: repositoryUrl,
    ssh: { dataDirectory, privateKey: privateKeyOf(db, project) },
    connection: {
      name: id.toString(),
      watch: close =>
        live.watch(`project:${id}`, () => {
          if (findProject(db, id)?.repositoryUrl !== repositoryUrl) close();
        }),
    },
    signal,
    stopRepack: () => repacks.stop(mirror),
    onTrouble: cause => log.warn('commit-graph could not be written', { project: id, cause }),
  };
}

/** The output of git and ssh goes only to the log, because it contains paths of this server. */
export function logFailure(
  log: Log,
  message: string,
  subject: Record<string, unknown>,
  cause: unknown,
): void {
  if (cause instanceof GitFailure)
    log.info(message, { ...subject, cause: cause.reason, printed: cause.detail });
  else log.error(message, { ...subject, cause });
}
