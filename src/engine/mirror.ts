// The kept copy of a project's repository: made, fetched incrementally and tidied here. One fetch at a
// time for each mirror is the caller's promise. Reading what was fetched is in history.ts.
import { access, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { GitFailure, hostOf, type OnOutput, runGit } from './git.ts';
import { type SshAccess, withSsh } from './ssh.ts';

export interface FetchMirror {
  mirror: string;
  url: string;
  ssh: SshAccess;
  signal?: AbortSignal;
  stallMs?: number;
  deadlineMs?: number;
  onOutput?: OnOutput;
}

export interface Fetched {
  // A branch or tag was forced elsewhere or deleted: commits may have become unreachable.
  rewritten: boolean;
}

const STALL_MS = 60_000;
const DEADLINE_MS = 3_600_000;
const PACKS_BEFORE_TIDYING = 40;
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
  // What a process that was killed while it made one anew left behind.
  await rm(draftOf(fetch.mirror), { recursive: true, force: true });
  try {
    return await fetchInto(fetch.mirror, fetch);
  } catch (cause) {
    if (!(cause instanceof GitFailure) || !DAMAGED.test(cause.detail)) throw cause;
    return await makeAnew(fetch);
  }
}

async function fetchInto(mirror: string, fetch: FetchMirror): Promise<Fetched> {
  const host = hostOf(fetch.url);
  await ensureMirror(mirror);
  await clearUnfinished(mirror);
  await writeFile(join(mirror, UNFINISHED), '');
  const { messages } = await withSsh(fetch.ssh, ssh =>
    runGit(fetchArguments(fetch.url), {
      repository: mirror,
      ssh,
      host,
      signal: fetch.signal,
      stallMs: fetch.stallMs ?? STALL_MS,
      deadlineMs: fetch.deadlineMs ?? DEADLINE_MS,
      ...(fetch.onOutput && { onOutput: fetch.onOutput }),
    }),
  );
  if (DAMAGED.test(messages)) throw new GitFailure('The mirror of the repository is damaged.', messages);
  await tidy(mirror);
  await rm(join(mirror, UNFINISHED));
  return { rewritten: /^ [+t-] /m.test(messages) };
}

const draftOf = (mirror: string) => `${mirror}.anew`;

// Nothing that is fetched into a damaged mirror mends it. The old one goes only when the new one is whole: where the
// repository itself is at fault, it stays.
async function makeAnew(fetch: FetchMirror): Promise<Fetched> {
  const draft = draftOf(fetch.mirror);
  try {
    await fetchInto(draft, fetch);
    await rm(fetch.mirror, { recursive: true, force: true });
    await rename(draft, fetch.mirror);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return { rewritten: true };
}

function fetchArguments(url: string): string[] {
  return [
    ...configured('fetch.fsckObjects=true', ...TOLERATED.map(defect => `fetch.fsck.${defect}=ignore`)),
    // Every fetch stays one pack: nothing is unpacked into thousands of files.
    ...configured('fetch.unpackLimit=1'),
    'fetch',
    // Progress shows that something moves; verbose tells of forced updates.
    '--progress',
    '--verbose',
    '--prune',
    '--no-tags',
    '--no-recurse-submodules',
    '--no-auto-maintenance',
    '--no-write-fetch-head',
    '--',
    url,
    '+refs/heads/*:refs/heads/*',
    '+refs/tags/*:refs/tags/*',
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

async function clearUnfinished(mirror: string): Promise<void> {
  if (!(await exists(join(mirror, UNFINISHED)))) return;
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

// Nothing is ever pruned: checkouts borrow objects from here, and commits that a forced push took away
// must stay readable. A geometric repack joins small packs whole, whether or not refs still lead to them.
async function tidy(mirror: string): Promise<void> {
  const packs = (await list(join(mirror, 'objects/pack'))).filter(name => name.endsWith('.pack'));
  if (packs.length < PACKS_BEFORE_TIDYING) return;
  await runGit(['repack', '--geometric=2', '-d', '--no-write-bitmap-index'], { repository: mirror });
  await runGit(['pack-refs', '--all'], { repository: mirror });
  await runGit(['commit-graph', 'write', '--reachable'], { repository: mirror });
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
