// Finds or fetches everything that a checkout needs: the commit in the project's mirror, its submodules in their own mirrors,
// and Git LFS content. Mirrors are not in backups, so a build may have to fetch them again.

import { createHash } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  checkSubmodule,
  namesCollide,
  type PlacedSubmodule,
  resolveSubmoduleUrl,
  SUBMODULE_DEPTH_MAX,
  SUBMODULES_MAX,
  type Submodule,
} from '../../domain/submodules.ts';
import { GitFailure } from '../../engine/git/git.ts';
import { hasCommit, listReachable } from '../../engine/git/history.ts';
import { fetchObjects, listPointers, markObjects, type Pointer } from '../../engine/git/lfs.ts';
import {
  ensureMirror,
  type FetchMirror,
  fetchCommit,
  fetchMirror,
  markUsed,
} from '../../engine/git/mirror.ts';
import { borrowsFromMirror, listBases } from '../../engine/git/snapshot.ts';
import { readRequirements } from '../../engine/git/submodules.ts';
import { mirrorPath, submoduleMirrors } from '../../store/data/paths.ts';
import type { Db } from '../../store/database/db.ts';
import type { Project } from '../../store/projects.ts';
import { type FetchOptions, logFailure, mirrorFetch } from './fetch-mirror.ts';
import { getSnapshot } from './snapshots.ts';

type Source = {
  mirror: string;
  /** The repository of the snapshot that has the commit, if it is a local run. */
  snapshot?: string;
  /** The directory with the mirrors of submodules, if there are any. */
  submoduleMirrors?: string;
  /** Parents before children. */
  submodules: PlacedSubmodule[];
  /** Whether the mirror has Git LFS content for the commit. */
  hasLfs: boolean;
  /** Whether Git LFS content is missing, here or in a submodule. The build still runs. */
  lacksLfs: boolean;
  /** Lines for the log of a build. */
  notes: string[];
};

type Repository = Pick<FetchMirror, 'mirror' | 'url' | 'isSubmodule'>;
/** Finds repositories, or fetches them too. */
type Access = {
  /** Whether the mirror has the commit. May fetch it. */
  ensure(repository: Repository, hash: string): Promise<boolean>;
  /** Tries to fetch Git LFS content. */
  fetchLfs?(repository: Repository, hash: string, missing: readonly Pointer[]): Promise<void>;
};

const CACHED_MAX = 1_000;
const LFS_RETRY_MS = 600_000;
/** Every suite of a request needs the same source. */
const cachedSources = new Map<string, { source: Source; fingerprint: string }>();
/** Sources whose Git LFS content could not be fetched. Builds run without it. */
const incomplete = new Set<string>();

/** A project, or one of its snapshots. */
export type SourceProject = Project & { snapshot?: string };

const keyOf = (dataDirectory: string, project: SourceProject, hash: string) =>
  `${dataDirectory} ${project.id} ${project.submodules} ${project.repositoryUrl} ${project.snapshot} ${hash}`;

/**
 * Where the code of a request is. The code of a fork chooses its submodules, and the project's key may open other
 * repositories: fetch none of them. Throws if the snapshot was deleted.
 */
export function trustedSource(
  options: { db: Db; dataDirectory: string },
  project: Project,
  request: { projectId: bigint; pullRequest: number | null; snapshotId: bigint | null },
): SourceProject {
  if (request.snapshotId !== null) return { ...project, snapshot: getSnapshot(options, request).repository };
  return request.pullRequest === null ? project : { ...project, submodules: 'off' };
}

/** Undefined if something has to be fetched first. Marks what it finds as used. `isFetched`: the mirror has the commit. */
export async function findSource(
  { dataDirectory }: Pick<FetchOptions, 'dataDirectory'>,
  project: SourceProject,
  hash: string,
  { isFetched = false } = {},
): Promise<Source | undefined> {
  const key = keyOf(dataDirectory, project, hash);
  const cached = cachedSources.get(key);
  if (cached && fingerprintOf(cached.source) === cached.fingerprint) {
    for (const mirror of submoduleMirrorsOf(cached.source)) markUsed(mirror);
    return cached.source;
  }
  cachedSources.delete(key);
  const source = await collectSource(dataDirectory, project, hash, {
    ensure: async ({ mirror, isSubmodule }, commit) =>
      (isFetched && !isSubmodule) || (await hasCommit(mirror, commit)),
  });
  if (!source) return undefined;
  if (source.lacksLfs) return incomplete.has(key) ? source : undefined;
  // Not cached, because each Git LFS object has to be marked at each use.
  if (source.hasLfs || source.submodules.some(one => one.hasLfs)) return source;
  if (cachedSources.size >= CACHED_MAX) cachedSources.delete(cachedSources.keys().next().value as string);
  cachedSources.set(key, { source, fingerprint: fingerprintOf(source) });
  return source;
}

/** Changes if a mirror is deleted or created again. */
function fingerprintOf(source: Source): string {
  const mirrors = [source.mirror, source.snapshot ?? source.mirror, ...submoduleMirrorsOf(source)];
  return mirrors.map(path => statSync(join(path, 'HEAD'), { throwIfNoEntry: false })?.ino).join();
}

const submoduleMirrorsOf = ({ submoduleMirrors: directory, submodules }: Source): string[] =>
  submodules.map(one => join(directory ?? '', one.mirror));

/** Fetches what a build of the commit lacks. */
export async function fetchSource(
  options: FetchOptions,
  project: SourceProject,
  hash: string,
  signal: AbortSignal,
): Promise<void> {
  const fetch = mirrorFetch(options, project, signal);
  await createReadableDirectory(submoduleMirrors(options.dataDirectory, project.id));
  const ensure: Access['ensure'] = async (repository, commit) => {
    const { mirror } = repository;
    const isThere = () => hasCommit(mirror, commit);
    if (await isThere()) return true;
    const one = { ...fetch, ...repository, stopRepack: () => options.repacks.stop(mirror) };
    const { rewritten } = await fetchMirror(one);
    if (rewritten && !repository.isSubmodule) options.handledForcePushes.delete(project.id);
    // No branch contains it. Most hosts still serve a commit by its hash.
    if (!(await isThere())) await fetchCommit(one, commit);
    options.repacks.schedule(mirror);
    if (await isThere()) return true;
    throw new GitFailure(
      repository.isSubmodule
        ? `its repository ${repository.url} has no commit ${commit}.`
        : `The repository no longer has the commit ${commit}: build a newer one.`,
    );
  };
  using _lock = await options.mutex(`mirror ${project.id}`, signal);
  const fetchLfs = lfsFetcher(options, fetch);
  if (project.snapshot && !existsSync(join(fetch.mirror, 'HEAD')))
    await (borrowsFromMirror(project.snapshot) ? fetchMirror(fetch) : ensureMirror(fetch.mirror));
  const source = await collectSource(options.dataDirectory, project, hash, { ensure, fetchLfs });
  const key = keyOf(options.dataDirectory, project, hash);
  incomplete.delete(key);
  if (!source?.lacksLfs) return;
  if (incomplete.size >= CACHED_MAX) incomplete.delete(incomplete.keys().next().value as string);
  incomplete.add(key);
}

/** The last failure to fetch Git LFS content, by mirror. */
const lfsFailures = new Map<string, { reason: string; at: number }>();

/** Waits between attempts, because many hosts do not support Git LFS over SSH. */
function lfsFetcher(options: FetchOptions, fetch: FetchMirror): NonNullable<Access['fetchLfs']> {
  return async (repository, hash, missing) => {
    const { mirror } = repository;
    const failure = lfsFailures.get(mirror);
    if (failure && performance.now() - failure.at < LFS_RETRY_MS) return;
    lfsFailures.delete(mirror);
    try {
      await fetchObjects({ ...fetch, ...repository }, hash, missing);
    } catch (error) {
      if (fetch.signal?.aborted || !(error instanceof GitFailure)) throw error;
      logFailure(options.log, 'content of Git LFS could not be fetched', { mirror }, error);
      lfsFailures.set(mirror, { reason: error.reason, at: performance.now() });
    }
  };
}

/** Containers read it as another user. On the server, its parent directory is private. */
async function createReadableDirectory(path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  await chmod(path, 0o755);
}

/** Visits the commit and, depending on the project's setting, its submodules. Undefined if a mirror lacks a commit. */
async function collectSource(
  dataDirectory: string,
  project: SourceProject,
  hash: string,
  access: Access,
): Promise<Source | undefined> {
  const { snapshot } = project;
  const mirror = mirrorPath(dataDirectory, project.id);
  const directory = submoduleMirrors(dataDirectory, project.id);
  const main = { mirror, url: project.repositoryUrl };
  const isThere = snapshot ? existsSync(join(mirror, 'HEAD')) : await access.ensure(main, hash);
  if (!isThere) return undefined;
  const { submodules, hasLfs } = await readRequirements(snapshot ?? mirror, hash).catch(error => {
    // Submodules are off, so broken ones do not matter.
    if (project.submodules === 'off' && error instanceof GitFailure) return { submodules: [], hasLfs: false };
    throw error;
  });
  const source: Source = {
    mirror,
    ...(snapshot && { snapshot }),
    submodules: [],
    hasLfs: false,
    lacksLfs: false,
    notes: [],
  };
  const takeLfs = async (repository: Repository, commit: string, at: string): Promise<boolean> => {
    const isSnapshot = snapshot !== undefined && repository === main;
    const pointers = await listPointers(isSnapshot ? snapshot : repository.mirror, commit);
    let missing = await markObjects(repository.mirror, pointers);
    if (missing.length > 0 && access.fetchLfs && !isSnapshot) {
      await access.fetchLfs(repository, commit, missing);
      missing = await markObjects(repository.mirror, pointers);
    }
    if (missing.length > 0) {
      source.lacksLfs = true;
      source.notes.push(
        `${missing.length} of ${pointers.length} files of Git LFS${at} are pointers, not their content: ${lfsFailures.get(repository.mirror)?.reason ?? 'it was not fetched'}`,
      );
    }
    return missing.length < pointers.length;
  };
  if (hasLfs) source.hasLfs = await takeLfs(main, hash, '');
  if (project.submodules === 'off') {
    if (submodules.length > 0) source.notes.push(notFetched(submodules, 'submodules', 'on'));
    return source;
  }
  // Who sends a working tree chooses its submodules, and the project's key may open other repositories.
  const known = snapshot && submodules.length > 0 ? await listKnown(mirror, snapshot) : undefined;
  const urlOf = (url: string) => resolveSubmoduleUrl(url, project.repositoryUrl) ?? '';
  // A host may have commits of forks too, which name other submodules.
  const isTrusted = async (child: string, hash: string) =>
    !known || known.some(one => one.hash === hash) || (await isOnBranch(child, hash));
  let isComplete = true;
  const enter = async (
    found: readonly Submodule[],
    parent: PlacedSubmodule | undefined,
    parentUrl: string,
    depth: number,
  ): Promise<void> => {
    if (found.length === 0) return;
    if (depth > SUBMODULE_DEPTH_MAX)
      throw new GitFailure(`Submodules are inside one another more than ${SUBMODULE_DEPTH_MAX} deep.`);
    if (namesCollide(found.map(({ name }) => name)))
      throw new GitFailure('Two submodules have the same name, or names inside one another: rename one.');
    for (const submodule of found) {
      const placed = place(submodule, parent, parentUrl);
      if (source.submodules.push(placed) > SUBMODULES_MAX)
        throw new GitFailure(`The commit has more than ${SUBMODULES_MAX} submodules.`);
      const child = join(directory, placed.mirror);
      const repository = { mirror: child, url: placed.url, isSubmodule: true };
      markUsed(child);
      const isThere = await access.ensure(repository, placed.hash).catch(error => {
        if (!(error instanceof GitFailure)) throw error;
        throw new GitFailure(
          `The submodule ${placed.path} could not be fetched: ${error.reason}`,
          error.detail,
        );
      });
      if (!isThere) {
        isComplete = false;
        return;
      }
      const { submodules: inner, hasLfs: innerLfs } = await readRequirements(child, placed.hash);
      if (innerLfs) placed.hasLfs = await takeLfs(repository, placed.hash, ` in ${placed.path}`);
      if (depth === 1 && inner.length > 0 && !(await isTrusted(child, placed.hash)))
        source.notes.push(
          `submodules of ${placed.path} are not fetched, because no branch contains its commit ${placed.hash}: push it first`,
        );
      else if (project.submodules === 'recursive') await enter(inner, placed, placed.url, depth + 1);
      else if (inner.length > 0)
        source.notes.push(notFetched(inner, `submodules of ${placed.path}`, 'recursive'));
      if (!isComplete) return;
    }
  };
  const trusted = submodules.filter(({ url }) => !known || known.some(one => urlOf(one.url) === urlOf(url)));
  if (trusted.length < submodules.length) source.notes.push(notTrusted(submodules, trusted));
  await enter(trusted, undefined, project.repositoryUrl, 1);
  if (!isComplete) return undefined;
  return source.submodules.length > 0 ? { ...source, submoduleMirrors: directory } : source;
}

/** The submodules of the commits that a working tree builds on. */
async function listKnown(mirror: string, snapshot: string): Promise<Submodule[]> {
  const known: Submodule[] = [];
  for (const base of await listBases(snapshot, mirror))
    known.push(...(await readRequirements(mirror, base)).submodules);
  return known;
}

const isOnBranch = async (mirror: string, hash: string) =>
  (await listReachable(mirror, [hash], 'branches and tags')).has(hash);

function notTrusted(submodules: readonly Submodule[], trusted: readonly Submodule[]): string {
  const paths = submodules.filter(one => !trusted.includes(one)).map(({ path }) => path);
  return `submodules are not fetched (${paths.join(', ')}), because the commit that the working tree builds on does not have their URLs: push them first`;
}

function place(
  submodule: Submodule,
  parent: PlacedSubmodule | undefined,
  parentUrl: string,
): PlacedSubmodule {
  const path = parent ? `${parent.path}/${submodule.path}` : submodule.path;
  const problem = checkSubmodule(submodule);
  if (problem)
    throw new GitFailure(`The submodule ${JSON.stringify(path)} cannot be checked out: ${problem}.`);
  const url = resolveSubmoduleUrl(submodule.url, parentUrl);
  if (!url)
    throw new GitFailure(
      `The submodule ${path} is at ${JSON.stringify(submodule.url)}: only addresses over SSH (git@host:path) and relative ones can be fetched.`,
    );
  const mirror = `${createHash('sha256').update(url).digest('hex').slice(0, 32)}.git`;
  return { ...submodule, path, url, parent, mirror, hasLfs: false };
}

function notFetched(submodules: readonly Submodule[], what: string, setting: string): string {
  const [first, ...more] = submodules.map(({ path }) => path);
  const others = more.length > 0 ? ` and ${more.length} more` : '';
  return `the ${what} are not fetched (${first}${others}): to fetch them, set the project's "submodules" to "${setting}"`;
}
