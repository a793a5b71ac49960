// What a checkout is made of: the commit, in the project's mirror, and its submodules, in mirrors of theirs. Mirrors are in
// no backup, and a disk may lose them, so what a build does not find there is fetched.

import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
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
} from '../domain/submodules.ts';
import { GitFailure } from '../engine/git/git.ts';
import { hasCommit } from '../engine/git/history.ts';
import { fetchObjects, listPointers, markObjects, type Pointer } from '../engine/git/lfs.ts';
import { type FetchMirror, fetchCommit, fetchMirror, markUsed } from '../engine/git/mirror.ts';
import { readRequirements } from '../engine/git/submodules.ts';
import { mirrorPath, submoduleMirrors } from '../store/data/paths.ts';
import type { Project } from '../store/projects.ts';
import { type FetchOptions, logFailure, mirrorFetch } from './fetch-mirror.ts';

export type Source = {
  mirror: string;
  /** The directory that the submodules' mirrors are in; absent where there are none. */
  submoduleMirrors?: string;
  /** Each after the one it is part of. */
  submodules: PlacedSubmodule[];
  /** Whether the mirror has content that pointers of Git LFS stand for. */
  hasLfs: boolean;
  /** Whether some of it is not there, here or in a submodule. It does not keep a build from running. */
  lacksLfs: boolean;
  /** What the log of a build says about it. */
  notes: string[];
};

type Repository = Pick<FetchMirror, 'mirror' | 'url' | 'isSubmodule'>;
/** How the pieces of a source are found or fetched. */
type Means = {
  /** Whether the repository's mirror has the commit; may fetch it. */
  ensure(repository: Repository, hash: string): Promise<boolean>;
  /** May fetch what the pointers stand for. */
  fetchLfs?(repository: Repository, hash: string, missing: readonly Pointer[]): Promise<void>;
};

const KNOWN_MAX = 1_000;
const LFS_RETRY_MS = 600_000;
/** By project, setting and commit: every suite of a request asks for the same. */
const known = new Map<string, { source: Source; stamp: string }>();
/** Those whose content of Git LFS could not be fetched: a build of one runs without. */
const incomplete = new Set<string>();

const keyOf = (dataDirectory: string, project: Project, hash: string) =>
  `${dataDirectory} ${project.id} ${project.submodules} ${project.repositoryUrl} ${hash}`;

/** Undefined where something of it has to be fetched first. What is found is marked as used. */
export async function findSource(
  { dataDirectory }: Pick<FetchOptions, 'dataDirectory'>,
  project: Project,
  hash: string,
): Promise<Source | undefined> {
  const key = keyOf(dataDirectory, project, hash);
  const remembered = known.get(key);
  if (remembered && stampOf(remembered.source) === remembered.stamp) {
    for (const mirror of submoduleMirrorsOf(remembered.source)) markUsed(mirror);
    return remembered.source;
  }
  known.delete(key);
  const source = await explore(dataDirectory, project, hash, {
    ensure: ({ mirror }, commit) => hasCommit(mirror, commit),
  });
  if (!source) return undefined;
  if (source.lacksLfs) return incomplete.has(key) ? source : undefined;
  // Each of its objects has to be marked at each use.
  if (source.hasLfs || source.submodules.some(one => one.hasLfs)) return source;
  if (known.size >= KNOWN_MAX) known.delete(known.keys().next().value as string);
  known.set(key, { source, stamp: stampOf(source) });
  return source;
}

/** Other mirrors in the same place, after a loss or for another address, are noticed. */
function stampOf(source: Source): string {
  const mirrors = [source.mirror, ...submoduleMirrorsOf(source)];
  return mirrors.map(path => statSync(join(path, 'HEAD'), { throwIfNoEntry: false })?.ino).join();
}

const submoduleMirrorsOf = ({ submoduleMirrors: directory, submodules }: Source): string[] =>
  submodules.map(one => join(directory ?? '', one.mirror));

/** Fetches what a build of the commit lacks. */
export async function fetchSource(
  options: FetchOptions,
  project: Project,
  hash: string,
  signal: AbortSignal,
): Promise<void> {
  const fetch = mirrorFetch(options, project, signal);
  await openDirectory(submoduleMirrors(options.dataDirectory, project.id));
  const ensure: Means['ensure'] = async (repository, commit) => {
    const { mirror } = repository;
    const isThere = () => hasCommit(mirror, commit);
    if (await isThere()) return true;
    const one = { ...fetch, ...repository, stopRepack: () => options.housekeeping.stop(mirror) };
    const { rewritten } = await fetchMirror(one);
    if (rewritten && !repository.isSubmodule) options.followed.delete(project.id);
    // No branch leads to it: most hosts hand it out all the same to whoever knows its hash.
    if (!(await isThere())) await fetchCommit(one, commit);
    options.housekeeping.schedule(mirror);
    if (await isThere()) return true;
    throw new GitFailure(
      repository.isSubmodule
        ? `its repository ${repository.url} has no commit ${commit}.`
        : `The repository no longer has the commit ${commit}: build a newer one.`,
    );
  };
  using _lock = await options.mutex(`mirror ${project.id}`, signal);
  const fetchLfs = lfsFetcher(options, fetch);
  const source = await explore(options.dataDirectory, project, hash, { ensure, fetchLfs });
  const key = keyOf(options.dataDirectory, project, hash);
  incomplete.delete(key);
  if (!source?.lacksLfs) return;
  if (incomplete.size >= KNOWN_MAX) incomplete.delete(incomplete.keys().next().value as string);
  incomplete.add(key);
}

/** Why what is kept by Git LFS could not be fetched into a mirror, and when that was. */
const lfsFailures = new Map<string, { reason: string; at: number }>();

/** A host that does not speak Git LFS over SSH is not asked with every request. */
function lfsFetcher(options: FetchOptions, fetch: FetchMirror): NonNullable<Means['fetchLfs']> {
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

/** Containers read it as another user; on the server its parent keeps others out. */
async function openDirectory(path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  await chmod(path, 0o755);
}

/** Goes through the commit and, as the project's setting says, its submodules and theirs. */
async function explore(
  dataDirectory: string,
  project: Project,
  hash: string,
  means: Means,
): Promise<Source | undefined> {
  const mirror = mirrorPath(dataDirectory, project.id);
  const directory = submoduleMirrors(dataDirectory, project.id);
  const whole = { mirror, url: project.repositoryUrl };
  if (!(await means.ensure(whole, hash))) return undefined;
  const { submodules, hasLfs } = await readRequirements(mirror, hash).catch(error => {
    // Nothing of it is wanted: what is wrong with it does not matter.
    if (project.submodules === 'off' && error instanceof GitFailure) return { submodules: [], hasLfs: false };
    throw error;
  });
  const source: Source = { mirror, submodules: [], hasLfs: false, lacksLfs: false, notes: [] };
  const takeLfs = async (repository: Repository, commit: string, at: string): Promise<boolean> => {
    const pointers = await listPointers(repository.mirror, commit);
    let missing = await markObjects(repository.mirror, pointers);
    if (missing.length > 0 && means.fetchLfs) {
      await means.fetchLfs(repository, commit, missing);
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
  if (hasLfs) source.hasLfs = await takeLfs(whole, hash, '');
  if (project.submodules === 'off') {
    if (submodules.length > 0) source.notes.push(notFetched(submodules, 'submodules', 'on'));
    return source;
  }
  let isWhole = true;
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
      const isThere = await means.ensure(repository, placed.hash).catch(error => {
        if (!(error instanceof GitFailure)) throw error;
        throw new GitFailure(
          `The submodule ${placed.path} could not be fetched: ${error.reason}`,
          error.detail,
        );
      });
      if (!isThere) {
        isWhole = false;
        return;
      }
      const { submodules: inner, hasLfs: innerLfs } = await readRequirements(child, placed.hash);
      if (innerLfs) placed.hasLfs = await takeLfs(repository, placed.hash, ` in ${placed.path}`);
      if (project.submodules === 'recursive') await enter(inner, placed, placed.url, depth + 1);
      else if (inner.length > 0)
        source.notes.push(notFetched(inner, `submodules of ${placed.path}`, 'recursive'));
      if (!isWhole) return;
    }
  };
  await enter(submodules, undefined, project.repositoryUrl, 1);
  if (!isWhole) return undefined;
  return source.submodules.length > 0 ? { ...source, submoduleMirrors: directory } : source;
}

function place(
  submodule: Submodule,
  parent: PlacedSubmodule | undefined,
  parentUrl: string,
): PlacedSubmodule {
  const path = parent ? `${parent.path}/${submodule.path}` : submodule.path;
  const wrong = checkSubmodule(submodule);
  if (wrong) throw new GitFailure(`The submodule ${JSON.stringify(path)} cannot be checked out: ${wrong}.`);
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
  return `the ${what} are not fetched (${first}${others}): set the project's "submodules" to "${setting}" to have them`;
}
