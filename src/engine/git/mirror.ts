// The mirror of a project's repository: creates it, fetches incrementally and repacks it. The caller runs one fetch at a
// time for each mirror; a repack may run in parallel.

import { existsSync, utimesSync } from 'node:fs';
import { access, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fullHash, GitFailure, hostOf, type OnOutput, plainName, runGit, submoduleHostOf } from './git.ts';
import { type KeptCall, withKeptSsh } from './kept-connection.ts';
import { type SshAccess, type SshSession, withSsh } from './ssh.ts';

export type FetchMirror = {
  mirror: string;
  url: string;
  isSubmodule?: boolean;
  ssh: SshAccess;
  /** Keeps the connection to the host for a while, under this name. */
  connection?: Pick<KeptCall, 'name' | 'watch'>;
  signal?: AbortSignal;
  stallMs?: number;
  deadlineMs?: number;
  onOutput?: OnOutput;
  /** Called before files are removed that a repack of this mirror may be using. */
  stopRepack?: () => Promise<void>;
  /** Called with an error that occurs after the fetch itself has succeeded. */
  onTrouble?: (error: unknown) => void;
};

type Fetched = {
  /** A branch or tag was force-pushed or deleted, so commits may have become unreachable. */
  rewritten: boolean;
};

const EVERYTHING: readonly string[] = ['+refs/heads/*:refs/heads/*', '+refs/tags/*:refs/tags/*'];
const STALL_MS = 60_000;
const DEADLINE_MS = 3_600_000;
const PACKS_BEFORE_REPACK = 40;
const REPACK_DEADLINE_MS = 3_600_000;
// Without a commit-graph, git walks the history once for each branch to find those that contain a commit.
const OBJECTS_BEFORE_COMMIT_GRAPH = 1_000;
const COMMIT_GRAPH_DEADLINE_MS = 60_000;
// This file exists while a fetch runs. If a fetch finds it, the previous one was interrupted.
const UNFINISHED = 'assay-unfinished-fetch';

// Harmless mistakes of old programs. Everything else that fsck finds is refused.
export const TOLERATED = [
  'badDate',
  'badTimezone',
  'missingEmail',
  'missingNameBeforeEmail',
  'missingSpaceBeforeDate',
  'missingSpaceBeforeEmail',
  'missingTaggerEntry',
  'zeroPaddedDate',
  'zeroPaddedFilemode',
];

// What git prints if the mirror itself is damaged by a power failure or a failing disk. It may still succeed.
const DAMAGED = new RegExp(
  `^(?:error|fatal): .*(?:${[
    'did not send all necessary objects',
    'Could not read [0-9a-f]{40}',
    '(?:unexpected|unterminated) line in ',
    "not a git repository: '/",
    'bad config ',
    'packfile \\S+ (?:does not match|cannot be accessed)',
    'is corrupt\\b',
  ].join('|')})`,
  'm',
);

export async function fetchMirror(fetch: FetchMirror): Promise<Fetched> {
  // A process may have been killed while it replaced a damaged mirror.
  await rm(draftOf(fetch.mirror), { recursive: true, force: true });
  try {
    return await fetchInto(fetch.mirror, fetch);
  } catch (error) {
    if (!(error instanceof GitFailure) || !DAMAGED.test(error.detail)) throw error;
    return await rebuildMirror(fetch);
  }
}

/**
 * Sets the modification time of a mirror or an LFS object, by which the sweep decides what to remove. False if it does not
 * exist. It is synchronous, as is the removal, so that a marked file is never removed.
 */
export function markUsed(path: string): boolean {
  const now = Date.now() / 1000;
  try {
    utimesSync(path, now, now);
    return true;
  } catch {
    return existsSync(path);
  }
}

/** Fetches a commit that no branch or tag contains. Does nothing if the host does not provide it. */
export async function fetchCommit(fetch: FetchMirror, hash: string): Promise<void> {
  try {
    await callHost(fetch.mirror, fetch, [fullHash(hash)]);
  } catch (error) {
    if (!(error instanceof GitFailure) || !/not our ref|unadvertised object/.test(error.detail)) throw error;
  }
}

/** Fetches the commits of a pull request. False if the host has no such ref. */
export async function fetchPullRequest(fetch: FetchMirror, ref: string, number: number): Promise<boolean> {
  try {
    await callHost(fetch.mirror, fetch, [`+${plainName(ref)}:${pullRequestRef(number)}`]);
    return true;
  } catch (error) {
    if (!(error instanceof GitFailure) || !/couldn't find remote ref/.test(error.detail)) throw error;
    return false;
  }
}

/** Where the mirror keeps the commits of pull requests. */
export const PULL_REQUESTS = 'refs/assay/pull';
export const pullRequestRef = (number: number) => `${PULL_REQUESTS}/${number}`;

async function callHost(mirror: string, fetch: FetchMirror, refspecs: readonly string[]): Promise<string> {
  const host = fetch.isSubmodule ? submoduleHostOf(fetch.url) : hostOf(fetch.url);
  const stallMs = fetch.stallMs ?? STALL_MS;
  const endsAt = performance.now() + (fetch.deadlineMs ?? DEADLINE_MS);
  await ensureMirror(mirror);
  const call = async (ssh: SshSession, signal?: AbortSignal, onOutput?: OnOutput) => {
    await clearUnfinished(mirror, fetch);
    await writeFile(join(mirror, UNFINISHED), '');
    const { messages } = await runGit(fetchArguments(fetch.url, refspecs), {
      repository: mirror,
      ssh,
      host,
      signal,
      stallMs,
      deadlineMs: endsAt - performance.now(),
      onOutput(chunk, from) {
        onOutput?.(chunk, from);
        fetch.onOutput?.(chunk, from);
      },
    });
    return messages;
  };
  const { connection, signal } = fetch;
  if (!connection || fetch.isSubmodule) return await withSsh(fetch.ssh, ssh => call(ssh, signal));
  const destination = fetch.url.slice(0, fetch.url.indexOf(':'));
  return await withKeptSsh(
    fetch.ssh,
    { ...connection, destination, host, signal, openMs: stallMs },
    (ssh, attempt) => call(ssh, attempt.signal, attempt.onOutput),
  );
}

async function fetchInto(mirror: string, fetch: FetchMirror): Promise<Fetched> {
  const messages = await callHost(mirror, fetch, EVERYTHING);
  if (DAMAGED.test(messages)) throw new GitFailure('The mirror of the repository is damaged.', messages);
  if (receivedObjects(messages) >= OBJECTS_BEFORE_COMMIT_GRAPH)
    await writeCommitGraph(mirror, fetch.signal).catch(error => fetch.onTrouble?.(error));
  await rm(join(mirror, UNFINISHED));
  return { rewritten: /^ [+t-] /m.test(messages) };
}

const draftOf = (mirror: string) => `${mirror}.rebuild`;

// A fetch cannot repair a damaged mirror. The old mirror is replaced only when the new one is complete, so it stays if the
// repository itself is damaged.
async function rebuildMirror(fetch: FetchMirror): Promise<Fetched> {
  const draft = draftOf(fetch.mirror);
  try {
    await fetchInto(draft, fetch);
    await fetch.stopRepack?.();
    await rm(fetch.mirror, { recursive: true, force: true });
    await rename(draft, fetch.mirror);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return { rewritten: true };
}

function fetchArguments(url: string, refspecs: readonly string[]): string[] {
  return [
    ...configured('fetch.fsckObjects=true', ...TOLERATED.map(defect => `fetch.fsck.${defect}=ignore`)),
    // Keep every fetch as one pack instead of thousands of loose files.
    ...configured('fetch.unpackLimit=1'),
    'fetch',
    // Progress output proves that the fetch is not stalled; verbose output reports forced updates.
    '--progress',
    '--verbose',
    ...(refspecs === EVERYTHING ? ['--prune'] : []),
    '--no-tags',
    '--no-recurse-submodules',
    '--no-auto-maintenance',
    '--no-write-fetch-head',
    '--',
    url,
    ...refspecs,
  ];
}

function configured(...settings: string[]): string[] {
  return settings.flatMap(setting => ['-c', setting]);
}

// Created under another name and renamed, so that an existing mirror is always a complete repository.
export async function ensureMirror(mirror: string): Promise<void> {
  if (await exists(join(mirror, 'HEAD'))) return;
  await mkdir(dirname(mirror), { recursive: true, mode: 0o700 });
  const draft = `${mirror}.draft`;
  await rm(draft, { recursive: true, force: true });
  await createRepository(draft);
  await rm(mirror, { recursive: true, force: true });
  await rename(draft, mirror);
}

/** An empty bare repository whose files containers may read. */
export async function createRepository(path: string): Promise<void> {
  await mkdir(path, { mode: 0o700 });
  await runGit(['init', '--bare', '--template=', '--shared=0644'], { repository: path });
}

async function clearUnfinished(mirror: string, { stopRepack }: FetchMirror): Promise<void> {
  if (!(await exists(join(mirror, UNFINISHED)))) return;
  await stopRepack?.();
  const leftovers = [
    ...(await list(mirror)).filter(name => name.endsWith('.lock') || name === 'packed-refs.new'),
    ...(await list(join(mirror, 'refs'), true)).filter(name => name.endsWith('.lock')).map(inside('refs')),
    ...(await list(join(mirror, 'objects')))
      .filter(name => /^(?:tmp_|incoming-)/.test(name))
      .map(inside('objects')),
    ...(await list(join(mirror, 'objects/pack')))
      .filter(name => /^(?:\.tmp-|tmp_)|\.keep$/.test(name))
      .map(inside('objects/pack')),
    ...(await list(join(mirror, 'objects/info'), true))
      .filter(name => name.endsWith('.lock'))
      .map(inside('objects/info')),
  ];
  await Promise.all(leftovers.map(name => rm(join(mirror, name), { recursive: true, force: true })));
}

export async function needsRepack(mirror: string): Promise<boolean> {
  const packs = (await list(join(mirror, 'objects/pack'))).filter(name => name.endsWith('.pack'));
  return packs.length >= PACKS_BEFORE_REPACK;
}

/**
 * Never prunes: checkouts borrow objects from the mirror, and commits that a forced push removed must stay readable. A
 * geometric repack joins small packs completely, including unreachable objects.
 */
export async function repackMirror(mirror: string, signal?: AbortSignal): Promise<void> {
  const call = { repository: mirror, signal, deadlineMs: REPACK_DEADLINE_MS };
  const packing = ['repack', '--quiet', '--geometric=2', '-d', '--no-write-bitmap-index'];
  // One thread: nothing waits for the repack, and builds need the other cores.
  await runGit([...configured('pack.threads=1'), ...packing], call);
  await runGit(['pack-refs', '--all'], call);
}

async function writeCommitGraph(mirror: string, signal?: AbortSignal): Promise<void> {
  await runGit(['commit-graph', 'write', '--reachable', '--split', '--no-progress'], {
    repository: mirror,
    signal,
    deadlineMs: COMMIT_GRAPH_DEADLINE_MS,
  });
}

function receivedObjects(messages: string): number {
  return Number(/Receiving objects: 100% \((\d+)\//.exec(messages)?.[1] ?? 0);
}

function inside(directory: string): (name: string) => string {
  return name => join(directory, name);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function list(directory: string, recursive = false): Promise<string[]> {
  return (await exists(directory)) ? readdir(directory, { recursive }) : [];
}
