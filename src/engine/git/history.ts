// Reads a mirror: resolves refs, reads commits and finds the replacements of commits after a forced push. Never writes to it.

import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type CommitIdentity, hashesThatNeedPatches, matchReplacements } from '../../domain/replacements.ts';
import type { CommitRange } from '../../domain/result/build-diff.ts';
import { fullHash, GitFailure, plainName, runGit } from './git.ts';
import { PULL_REQUESTS } from './mirror.ts';

/** A hash, and the branch or tag that was requested; empty if it was neither. */
type ResolvedRef = { ref: string; branch: string; tag: string };

export type CommitRead = {
  ref: string;
  message: string;
  authorName: string;
  authorEmail: string;
  authoredDate: string;
  committerName: string;
  committerEmail: string;
  committedDate: string;
  branches: string[];
  tags: string[];
  /** All changed paths: the last one may decide a rule. */
  files: string[];
};

// Enough for more than a million paths. A tree that contains itself several times can have any number.
const COMMIT_MAX = {
  bytes: 64 * 1024 * 1024,
  reason:
    'The message and the changed paths of the commit are more than 64 MiB, which is too much to evaluate rules on: split it into several commits.',
};
const CANDIDATES_MAX = 20_000;
const PATCHES_MAX = 500;
const NO_DATE = '1970-01-01T00:00:00+00:00';

/** A branch takes precedence over a tag, and a tag over a hash. One git process checks all three. */
export async function resolveRef(mirror: string, ref: string): Promise<ResolvedRef> {
  const name = plainName(ref);
  // A branch that was just fetched is a file of its own. Reading it takes less time than starting git.
  const head = await readFile(join(mirror, 'refs/heads', name), 'latin1').catch(() => '');
  if (/^[0-9a-f]{40}\n$/.test(head)) return { ref: head.trimEnd(), branch: name, tag: '' };
  const isHash = /^[0-9a-f]{7,40}$/i.test(name);
  const objects = [`refs/heads/${name}^{commit}`, `refs/tags/${name}^{commit}`];
  // Git reports "ambiguous" only for the bare digits.
  if (isHash) objects.push(`${name}^{commit}`, name);
  const [branch, tag, hash, digits] = await checkObjects(mirror, objects);
  if (branch?.hash) return { ref: branch.hash, branch: name, tag: '' };
  if (tag?.hash) return { ref: tag.hash, branch: '', tag: name };
  if (hash?.hash) return { ref: hash.hash, branch: '', tag: '' };
  if (digits?.ambiguous) {
    throw new GitFailure(`Several commits begin with ${name}: give more digits of the hash.`);
  }
  if (/^[0-9a-f]{1,6}$/i.test(name)) {
    throw new GitFailure(
      `The repository has no branch or tag ${name}, and a commit hash needs at least 7 digits: give more of them.`,
    );
  }
  throw new GitFailure(`The repository has no branch, tag or commit ${name}.`);
}

/** The commit of a pinned hash. Undefined if its ref no longer has it, after a forced push or a deletion. */
export async function resolvePinned(
  mirror: string,
  pinned: string,
  ref: string,
): Promise<string | undefined> {
  const [commit, tip] = await checkObjects(mirror, [`${fullHash(pinned)}^{commit}`, `${ref}^{commit}`]);
  if (!commit?.hash || !tip?.hash) return undefined;
  if (commit.hash === tip.hash) return commit.hash;
  if (ref.startsWith('refs/tags/')) return undefined;
  // Not an error for git if it is no ancestor: then the commit itself is listed.
  const { output } = await runGit(['rev-list', '--max-count=1', commit.hash, `^${tip.hash}`], {
    repository: mirror,
  });
  return output.trim() === '' ? commit.hash : undefined;
}

/** Whether the mirror exists and has the commit. */
export async function hasCommit(mirror: string, hash: string): Promise<boolean> {
  if (!existsSync(join(mirror, 'HEAD'))) return false;
  return (await presentCommits(mirror, [hash])).length > 0;
}

async function checkObjects(mirror: string, objects: readonly string[]) {
  if (objects.length === 0) return [];
  const { output } = await runGit(['cat-file', '--batch-check'], {
    repository: mirror,
    input: `${objects.join('\n')}\n`,
  });
  return output
    .split('\n')
    .slice(0, objects.length)
    .map(line => ({
      hash: /^([0-9a-f]{40}) commit /.exec(line)?.[1],
      ambiguous: line.endsWith(' ambiguous'),
    }));
}

const COMMIT_FORMAT = ['%H', '%an', '%ae', '%aI', '%cn', '%ce', '%cI', '%D', '%B', ''].join('%x00');

export async function readCommit(mirror: string, hash: string): Promise<CommitRead> {
  const [commit, descendants] = await Promise.all([
    runGit(
      [
        'log',
        '-1',
        '-z',
        `--format=${COMMIT_FORMAT}`,
        '--no-mailmap',
        '--decorate=full',
        '--decorate-refs=refs/heads/',
        '--decorate-refs=refs/tags/',
        '--name-only',
        '--no-renames',
        '--no-ext-diff',
        '--no-textconv',
        '--diff-merges=first-parent',
        '--end-of-options',
        fullHash(hash),
      ],
      { repository: mirror, outputMax: COMMIT_MAX },
    ),
    listDescendants(mirror, fullHash(hash)),
  ]);
  const [ref = '', authorName = '', authorEmail = '', authored = '', ...rest] = commit.output.split('\0');
  const [committerName = '', committerEmail = '', committed = '', decoration = '', message = ''] = rest;
  // The format ends with a NUL and a line break. The paths follow, each terminated by NUL.
  const files = rest.slice(6, -1).map((path, index) => (index === 0 ? path.slice(1) : path));
  return {
    ref,
    message: message.replace(/\n$/, ''),
    authorName,
    authorEmail,
    authoredDate: withOffset(authored),
    committerName,
    committerEmail,
    committedDate: withOffset(committed),
    branches: [...namesIn(decoration, BRANCH_NAME), ...descendants].sort(),
    tags: namesIn(decoration, TAG_NAME).sort(),
    files,
  };
}

const BRANCH_NAME = /^(?:HEAD -> )?refs\/heads\//;
const TAG_NAME = /^tag: refs\/tags\//;

/** The names of one kind in a decoration. Ref names may contain commas but no spaces. */
const namesIn = (decoration: string, kind: RegExp): string[] =>
  decoration.split(', ').flatMap(name => (kind.test(name) ? [name.replace(kind, '')] : []));

// Ignores a branch that a power failure left without content.
const ONLY_DESCENDANTS = ['--ignore-missing', '--ancestry-path', '--simplify-by-decoration'];

/**
 * The branches whose head is a descendant of the commit. Walks the history once for all branches. `for-each-ref --contains`
 * walks it once for each, which takes seconds for an old commit in thousands of branches.
 */
async function listDescendants(mirror: string, hash: string): Promise<string[]> {
  const { output } = await runGit(
    [
      'log',
      ...ONLY_DESCENDANTS,
      '--format=%D',
      '--decorate=full',
      '--decorate-refs=refs/heads/',
      '--branches',
      `^${hash}`,
    ],
    { repository: mirror },
  );
  return lines(output).flatMap(decoration => namesIn(decoration, BRANCH_NAME));
}

// Newer versions of git write UTC as Z. Git prints nothing for a date that is out of its range.
function withOffset(date: string): string {
  return /^\d{4}-/.test(date) ? date.replace(/Z$/, '+00:00') : NO_DATE;
}

/** The hashes that are still reachable from a branch, a tag or a pull request; or only from branches and tags. */
export async function listReachable(
  mirror: string,
  hashes: readonly string[],
  from: 'all' | 'branches and tags' = 'all',
): Promise<Set<string>> {
  const present = await presentCommits(mirror, hashes);
  if (present.length === 0) return new Set();
  const pullRequests = from === 'all' ? [`--glob=${PULL_REQUESTS}`] : [];
  const { output } = await runGit(['rev-list', '--stdin', '--not', '--branches', '--tags', ...pullRequests], {
    repository: mirror,
    input: `${present.join('\n')}\n`,
  });
  const gone = new Set(lines(output));
  return new Set(present.filter(hash => !gone.has(hash)));
}

/** Somebody waits for the answer. */
const COMPARE_DEADLINE_MS = 10_000;

/** The commit and its ancestors through first parents, nearest first. Empty if the mirror does not have the commit. */
export async function listFirstParents(mirror: string, hash: string, limit: number): Promise<string[]> {
  if (!(await hasCommit(mirror, hash))) return [];
  const { output } = await runGit(
    ['rev-list', '--first-parent', `--max-count=${limit}`, '--end-of-options', fullHash(hash)],
    { repository: mirror, deadlineMs: COMPARE_DEADLINE_MS },
  );
  return lines(output);
}

/** What changed from one commit to another. Undefined if the mirror does not have both. */
export async function readRange(
  mirror: string,
  from: string,
  to: string,
  max: { commits: number; files: number },
): Promise<CommitRange | undefined> {
  if (!existsSync(join(mirror, 'HEAD')) || (await presentCommits(mirror, [from, to])).length < 2)
    return undefined;
  const call = { repository: mirror, deadlineMs: COMPARE_DEADLINE_MS };
  const [counts, log, changed] = await Promise.all([
    runGit(['rev-list', '--count', '--left-right', `${from}...${to}`], call),
    runGit(
      [
        'log',
        '-z',
        `--max-count=${max.commits}`,
        '--no-mailmap',
        '--format=%H%x00%s%x00%an%x00%aI',
        `${from}..${to}`,
      ],
      call,
    ),
    readChangedFiles(mirror, from, to, max.files),
  ]);
  const [missing = '0', added = '0'] = counts.output.trim().split('\t');
  const fields = log.output.split('\0');
  return {
    commits: Array.from({ length: Math.floor(fields.length / 4) }, (_, index) => {
      const [hash = '', subject = '', authorName = '', date = ''] = fields.slice(index * 4, index * 4 + 4);
      return { hash, subject, authorName, authoredDate: withOffset(date) };
    }),
    commitsTotal: Number(added),
    missingTotal: Number(missing),
    ...changed,
  };
}

const CHANGES = new Map([
  ['A', 'added'],
  ['D', 'deleted'],
] as const);

/** Counts all, and keeps only the first: a commit may change a million paths. */
async function readChangedFiles(
  mirror: string,
  from: string,
  to: string,
  limit: number,
): Promise<Pick<CommitRange, 'files' | 'filesTotal'>> {
  const kept: Buffer[] = [];
  let ends = 0;
  await runGit(['diff-tree', '-r', '-z', '--name-status', '--no-renames', from, to], {
    repository: mirror,
    deadlineMs: COMPARE_DEADLINE_MS,
    isStreamed: true,
    onOutput(chunk, stream) {
      if (stream !== 'output') return;
      if (ends < limit * 2) kept.push(chunk);
      for (let at = chunk.indexOf(0); at !== -1; at = chunk.indexOf(0, at + 1)) ends += 1;
    },
  });
  // Each path is preceded by its change.
  const fields = Buffer.concat(kept).toString().split('\0');
  const filesTotal = Math.floor(ends / 2);
  return {
    files: Array.from({ length: Math.min(limit, filesTotal) }, (_, index) => ({
      path: fields[index * 2 + 1] ?? '',
      change: CHANGES.get(fields[index * 2] as 'A') ?? 'modified',
    })),
    filesTotal,
  };
}

export async function branchContains(mirror: string, branch: string, hash: string): Promise<boolean> {
  const name = `refs/heads/${plainName(branch)}`;
  if ((await presentCommits(mirror, [hash])).length === 0) return false;
  const { output } = await runGit(['for-each-ref', '--format=%(refname)', `--contains=${hash}`, '--', name], {
    repository: mirror,
  });
  return lines(output).includes(name);
}

/** Maps each unreachable commit to the new commit that replaces it, if there is one that is not known yet. */
export async function findReplacements(
  mirror: string,
  removedHashes: readonly string[],
  knownHashes: Iterable<string>,
): Promise<Map<string, string>> {
  const present = await presentCommits(mirror, removedHashes);
  if (present.length === 0) return new Map();
  const [unreachable, added] = await Promise.all([
    readIdentities(mirror, ['--not', '--branches', '--tags'], present),
    readIdentities(
      mirror,
      ['--branches', '--tags', `--max-count=${CANDIDATES_MAX}`],
      present.map(hash => `^${hash}`),
    ),
  ]);
  const wanted = new Set(present);
  const known = new Set(knownHashes);
  const removed = unreachable.filter(commit => wanted.has(commit.hash));
  const candidates = added.filter(commit => !known.has(commit.hash));
  const patches = await readPatches(mirror, hashesThatNeedPatches(removed, candidates).slice(0, PATCHES_MAX));
  return matchReplacements(removed, candidates, patches);
}

async function readIdentities(
  mirror: string,
  range: string[],
  revisions: string[],
): Promise<CommitIdentity[]> {
  const { output } = await runGit(
    [
      'log',
      '-z',
      '--topo-order',
      '--reverse',
      '--no-mailmap',
      '--date=raw',
      '--format=%H%x00%an <%ae>%x00%ad%x00%s',
      '--stdin',
      ...range,
    ],
    { repository: mirror, input: `${revisions.join('\n')}\n` },
  );
  const fields = output.split('\0');
  return Array.from({ length: Math.floor(fields.length / 4) }, (_, index) => {
    const [hash = '', author = '', authoredAt = '', subject = ''] = fields.slice(index * 4, index * 4 + 4);
    return { hash, author, authoredAt, subject };
  });
}

async function readPatches(mirror: string, hashes: string[]): Promise<Map<string, string>> {
  if (hashes.length === 0) return new Map();
  const patches = await runGit(
    [
      'log',
      '--no-walk=unsorted',
      '--patch',
      '--no-ext-diff',
      '--no-textconv',
      '--format=commit %H',
      '--stdin',
    ],
    { repository: mirror, input: `${hashes.join('\n')}\n` },
  );
  if (patches.output === '') return new Map();
  const { output } = await runGit(['patch-id', '--stable'], { repository: mirror, input: patches.output });
  return new Map(
    lines(output).map(line => {
      const [patch = '', hash = ''] = line.split(' ');
      return [hash, patch] as const;
    }),
  );
}

/** The hashes that are commits of the mirror. */
export async function presentCommits(mirror: string, hashes: readonly string[]): Promise<string[]> {
  const objects = await checkObjects(mirror, hashes.map(fullHash));
  return objects.flatMap(({ hash }) => hash ?? []);
}

function lines(output: string): string[] {
  return output.split('\n').filter(line => line !== '');
}
