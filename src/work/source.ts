// What a checkout is made of: the commit, in the project's mirror. Mirrors are in no backup, and a disk may lose them, so
// what a build does not find there is fetched.

import { GitFailure } from '../engine/git.ts';
import { hasCommit } from '../engine/history.ts';
import { fetchCommit, fetchMirror } from '../engine/mirror.ts';
import { mirrorPath } from '../store/paths.ts';
import type { Project } from '../store/projects.ts';
import { type FetchParts, mirrorFetch } from './fetch-commit.ts';

export type Source = { mirror: string };

/** Undefined where something of it has to be fetched first. */
export async function findSource(
  { dataDirectory }: Pick<FetchParts, 'dataDirectory'>,
  project: Project,
  hash: string,
): Promise<Source | undefined> {
  const mirror = mirrorPath(dataDirectory, project.id);
  return (await hasCommit(mirror, hash)) ? { mirror } : undefined;
}

/** Fetches what a build of the commit lacks. */
export async function fetchSource(
  parts: FetchParts,
  project: Project,
  hash: string,
  signal: AbortSignal,
): Promise<void> {
  const fetch = mirrorFetch(parts, project, signal);
  const isThere = () => hasCommit(fetch.mirror, hash);
  const work = async () => {
    // Another build may have fetched it while this one waited.
    if (await isThere()) return;
    const { rewritten } = await fetchMirror(fetch);
    if (rewritten) parts.followed.delete(project.id);
    // No branch leads to it any more: most hosts hand it out all the same to whoever knows its hash.
    if (!(await isThere())) await fetchCommit(fetch, hash);
    if (!(await isThere()))
      throw new GitFailure(`The repository no longer has the commit ${hash}: build a newer one.`);
  };
  await parts.turns(`mirror ${project.id}`, work, signal);
  parts.housekeeping.schedule(fetch.mirror);
}
