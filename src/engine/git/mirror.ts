// The kept copy of a project's repository: made, fetched incrementally and repacked here. The caller runs one fetch at a
// time for each mirror; a repack may run beside it. Reading what was fetched is in history.ts.
import { existsSync, utimesSync } from 'node:fs';
import { access, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fullHash, GitFailure, hostOf, type OnOutput, runGit, submoduleHostOf } from './git.ts';
import { type SshAccess, withSsh } from './ssh.ts';

export interface FetchMirror {
  mirror: string;
  url: string;
  isSubmodule?: boolean;
  ssh: SshAccess;
  signal?: AbortSignal;
  stallMs?: number;
  deadlineMs?: number;
  onOutput?: OnOutput;
  // Called before anything that a repack of this mirror could be using is removed.
  stopRepack?: () => Promise<void>;
  // Told of what went wrong after the fetch itself had succeeded.
  onTrouble?: (error: unknown) => void;
}

export interface Fetched {
  // A branch or tag was forced elsewhere or deleted: commits may have become unreachable.
  rewritten: boolean;
}

const EVERYTHING: readonly string[] = ['+refs/heads/*:refs/heads/*', '+refs/tags/*:refs/tags/*'];
const STALL_MS = 60_000;
const DEADLINE_MS = 3_600_000;
const PACKS_BEFORE_REPACK = 40;
const REPACK_DEADLINE_MS = 3_600_000;
// Without a commit-graph git walks the history once for each branch to say which of them contain a commit.
const OBJECTS_BEFORE_COMMIT_GRAPH = 1_000;
const COMMIT_GRAPH_DEADLINE_MS = 60_000;
// Present while a fetch runs: found at the start of another, the one before was cut off.
const UNFINISHED = 'assay-unfinished-fetch';

// Old mistakes of other programs that harm nobody; whatever else fsck finds is refused.
const TOLERATED = [
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

// What git says when the mirror itself is damaged, as a power cut or a failing disk leaves it. It may say so and go on.
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
  // Left by a process that was killed while it replaced a damaged mirror.
  await rm(draftOf(fetch.mirror), { recursive: true, force: true });
  try {
    return await fetchInto(fetch.mirror, fetch);
  } catch (cause) {
    if (!(cause instanceof GitFailure) || !DAMAGED.test(cause.detail)) throw cause;
    return await rebuildMirror(fetch);
  }
}

// The time of a mirror, or of an object of Git LFS, says when it was last used: the sweep goes by it. False where there is
// none. Synchronous, as the removal is: what is marked is not removed.
export function markUsed(path: string): boolean {
  const now = Date.now() / 1000;
  try {
    utimesSync(path, now, now);
    return true;
  } catch {
    return existsSync(path);
  }
}

// One commit that no branch or tag leads to, where the host hands it out. Where it does not, nothing changes.
export async function fetchCommit(fetch: FetchMirror, hash: string): Promise<void> {
  try {
    await callHost(fetch.mirror, fetch, [fullHash(hash)]);
  } catch (cause) {
    if (!(cause instanceof GitFailure) || !/not our ref|unadvertised object/.test(cause.detail)) throw cause;
  }
}

async function callHost(mirror: string, fetch: FetchMirror, refspecs: readonly string[]): Promise<string> {
  const host = fetch.isSubmodule ? submoduleHostOf(fetch.url) : hostOf(fetch.url);
  await ensureMirror(mirror);
  await clearUnfinished(mirror, fetch);
  await writeFile(join(mirror, UNFINISHED), '');
  const { messages } = await withSsh(fetch.ssh, ssh =>
    runGit(fetchArguments(fetch.url, refspecs), {
      repository: mirror,
      ssh,
      host,
      signal: fetch.signal,
      stallMs: fetch.stallMs ?? STALL_MS,
      deadlineMs: fetch.deadlineMs ?? DEADLINE_MS,
      ...(fetch.onOutput && { onOutput: fetch.onOutput }),
    }),
  );
  return messages;
}

async function fetchInto(mirror: string, fetch: FetchMirror): Promise<Fetched> {
  const messages = await callHost(mirror, fetch, EVERYTHING);
  if (DAMAGED.test(messages)) throw new GitFailure('The mirror of the repository is damaged.', messages);
  if (receivedObjects(messages) >= OBJECTS_BEFORE_COMMIT_GRAPH)
    await writeCommitGraph(mirror, fetch.signal).catch(error => fetch.onTrouble?.(error));
  await rm(join(mirror, UNFINISHED));
  return { rewritten: /^ [+t-] /m.test(messages) };
}

const draftOf = (mirror: string) => `${mirror}.anew`;

// Nothing that is fetched into a damaged mirror mends it. The old one goes only when the new one is whole: where the
// repository itself is at fault, it stays.
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
    // Every fetch stays one pack: nothing is unpacked into thousands of files.
    ...configured('fetch.unpackLimit=1'),
    'fetch',
    // Progress shows that something moves; verbose tells of forced updates.
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

// Made beside its place and moved there whole, so that a mirror that exists is a repository.
async function ensureMirror(mirror: string): Promise<void> {
  if (await exists(join(mirror, 'HEAD'))) return;
  await mkdir(dirname(mirror), { recursive: true, mode: 0o700 });
  const draft = `${mirror}.draft`;
  await rm(draft, { recursive: true, force: true });
  await mkdir(draft, { mode: 0o700 });
  await runGit(['init', '--bare', '--template=', '--shared=0644'], { repository: draft });
  await rm(mirror, { recursive: true, force: true });
  await rename(draft, mirror);
}

async function clearUnfinished(mirror: string, { stopRepack }: FetchMirror): Promise<void> {
  if (!(await exists(join(mirror, UNFINISHED)))) return;
  await stopRepack?.();
  const remains = [
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
  await Promise.all(remains.map(name => rm(join(mirror, name), { recursive: true, force: true })));
}

export async function needsRepack(mirror: string): Promise<boolean> {
  const packs = (await list(join(mirror, 'objects/pack'))).filter(name => name.endsWith('.pack'));
  return packs.length >= PACKS_BEFORE_REPACK;
}

// Nothing is ever pruned: checkouts borrow objects from here, and commits that a forced push took away
// must stay readable. A geometric repack joins small packs whole, whether or not refs still lead to them.
export async function repackMirror(mirror: string, signal?: AbortSignal): Promise<void> {
  const call = { repository: mirror, signal, deadlineMs: REPACK_DEADLINE_MS };
  const packing = ['repack', '--quiet', '--geometric=2', '-d', '--no-write-bitmap-index'];
  // One thread: nobody waits for it, and builds need the others.
  await runGit([...configured('pack.threads=1'), ...packing], call);
  await runGit(['pack-refs', '--all'], call);
}

async function writeCommitGraph(mirror: string, signal?: AbortSignal): Promise<void> {
  await runGit(['commit-graph', 'write', '--listReachable', '--split', '--no-progress'], {
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
