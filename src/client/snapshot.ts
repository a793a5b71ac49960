// The working tree of a checkout as a commit, and as a bundle of what the server lacks. Nothing in the repository changes:
// the index is a copy, and new objects are written to a temporary directory.

import {
  closeSync,
  copyFileSync,
  existsSync,
  lstatSync,
  openSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { CommandError } from '../command/command.ts';
import { sizeText } from '../command/progress.ts';
import { type GitOptions, git, gitBytes, tryGit } from './checkout.ts';
import { EXIT, refused } from './exit-status.ts';
import { plain } from './output.ts';

/** What the server accepts. */
export const MAX_BUNDLE_BYTES = 256 << 20;
/** New and changed files that are so much larger will not fit when they are compressed, and would fill the disk. */
const MAX_COMPRESSION = 4;
/** Hashing and packing large files takes long. */
const PACK_MS = 30 * 60_000;
const MAX_REMOTE_BRANCHES = 30;
const LARGEST_FILES = 5;
const BUNDLE_REF = 'refs/assay/snapshot';
/** For users without a name and an e-mail address. */
const FALLBACK_NAME = 'assay';
const FALLBACK_EMAIL = 'assay@localhost';

export type Bundle = { path: string; sizeBytes: number };

export type Snapshot = {
  /** The full hash of the commit. */
  commit: string;
  /** `working tree of main` */
  title: string;
  /** The hash that it was made on. Undefined before the first commit. */
  head: string | undefined;
  /** Undefined if HEAD is detached. */
  branch: string | undefined;
  /** What does not travel, or not as the user may expect. */
  remarks: readonly string[];
  /** Commits that the server may have, the most likely first. The last is undefined: everything travels. */
  bases(): AsyncGenerator<string | undefined, void>;
  /** A bundle of the commit without what `base` has. Undefined if a shallow clone lacks what is between them. */
  bundle(base: string | undefined): Promise<Bundle | undefined>;
};

export type SnapshotOptions = { directory?: string; signal?: AbortSignal; maxBytes?: number };

type Run = (args: readonly string[], options?: GitOptions) => Promise<string>;

/** Takes a snapshot and passes it to `work`. All temporary files are removed at the end, whatever happens. */
export async function withSnapshot<T>(
  work: (snapshot: Snapshot) => Promise<T>,
  options: SnapshotOptions = {},
): Promise<T> {
  const temporary = await mkdtemp(join(tmpdir(), 'assay-snapshot-')).catch(explainFullDisk);
  try {
    return await work(await takeSnapshot(temporary, options).catch(explainFullDisk));
  } finally {
    await rm(temporary, { recursive: true, force: true, maxRetries: 3 });
  }
}

async function takeSnapshot(
  temporary: string,
  { directory = '.', signal, maxBytes = MAX_BUNDLE_BYTES }: SnapshotOptions,
): Promise<Snapshot> {
  const stoppable = signal ? { signal } : {};
  const paths = await git(
    ['rev-parse', '--show-toplevel', '--absolute-git-dir', ...['index', 'objects', 'shallow'].flatMap(inGit)],
    { directory, ...stoppable },
  );
  const [root = '', gitDirectory = '', index = '', objects = '', shallow = ''] = paths
    .split('\n')
    .map(path => resolve(directory, path));

  const temporaryIndex = join(temporary, 'index');
  const temporaryObjects = join(temporary, 'objects');
  await mkdir(temporaryObjects);
  copyIndex(index, temporaryIndex);
  const own = { GIT_DIR: gitDirectory, GIT_WORK_TREE: root, GIT_OPTIONAL_LOCKS: '0' };
  const separate = {
    ...own,
    GIT_INDEX_FILE: temporaryIndex,
    GIT_OBJECT_DIRECTORY: temporaryObjects,
    GIT_ALTERNATE_OBJECT_DIRECTORIES: [
      quoteAlternate(objects),
      process.env.GIT_ALTERNATE_OBJECT_DIRECTORIES ?? '',
    ].join(delimiter),
  };
  // A split index and a file system monitor would write to the user's repository. No hook runs: the directory has none.
  const settings = [
    ...['core.splitIndex=false', 'core.fsmonitor=false', 'core.safecrlf=false'],
    // The objects are compressed when they are packed.
    'core.looseCompression=0',
  ];
  const configured = [...settings, `core.hooksPath=${temporary}`].flatMap(setting => ['-c', setting]);
  const inRoot = { directory: root, timeoutMs: PACK_MS, ...stoppable };
  /** Reads the user's repository. */
  const read: Run = args => git([...configured, ...args], { ...inRoot, environment: own });
  /** Uses the temporary index and objects. */
  const write: Run = (args, options) =>
    git([...configured, ...args], { ...inRoot, environment: separate, ...options });
  const tryRead: (...args: Parameters<Run>) => Promise<string | undefined> = args =>
    tryGit([...configured, ...args], { ...inRoot, environment: own });

  const [head, branch, changes, conflicts, dirtySubmodules] = await Promise.all([
    tryRead(['rev-parse', '--quiet', '--verify', 'HEAD^{commit}']),
    tryRead(['symbolic-ref', '--quiet', '--short', 'HEAD']),
    gitBytes([...configured, ...LIST_CHANGES], { ...inRoot, environment: own }).then(readChanges),
    read(['ls-files', '-z', '--unmerged']).then(readConflicts),
    existsSync(join(root, '.gitmodules')) ? listDirtySubmodules(read, tryRead) : [],
  ]);
  requireSize(root, changes.paths, maxBytes);
  if (changes.paths.length > 0)
    await write(['update-index', '-z', '--add', '--remove', '--replace', '--stdin'], {
      input: Buffer.from(`${changes.paths.join('\0')}\0`, 'latin1'),
    });
  const tree = await write(['write-tree']);
  const title = `working tree of ${branch ?? head?.slice(0, 7)}`;
  const message = title.replace(/^w/, 'W');
  const makeCommit = ['commit-tree', tree, ...(head === undefined ? [] : ['-p', head]), '-m', message];
  const commit =
    (await tryGit([...configured, ...makeCommit], { ...inRoot, environment: separate })) ??
    (await write(makeCommit, {
      environment: {
        ...separate,
        GIT_AUTHOR_NAME: FALLBACK_NAME,
        GIT_AUTHOR_EMAIL: FALLBACK_EMAIL,
        GIT_COMMITTER_NAME: FALLBACK_NAME,
        GIT_COMMITTER_EMAIL: FALLBACK_EMAIL,
      },
    }));

  return {
    commit,
    title,
    head,
    branch,
    remarks: [
      ...conflicts.map(path => `${path} has unresolved conflicts: it travels with its markers`),
      ...changes.repositories.map(
        path => `${path} is a repository of its own and not a submodule: it does not travel`,
      ),
      ...dirtySubmodules.map(path => `the uncommitted changes of the submodule ${path} do not travel`),
    ].map(plain),
    bases: () => listBases(tryRead, head),
    bundle: async base => {
      const range = [commit, ...(base === undefined ? [] : [`^${base}`])];
      const cut = existsSync(shallow) ? (await readFile(shallow, 'utf8')).split('\n') : [];
      if (cut.length > 0) {
        const oldest = (await write(['rev-list', '--max-parents=0', ...range])).split('\n');
        if (oldest.some(hash => hash !== '' && cut.includes(hash))) return undefined;
      }
      const path = join(temporary, 'bundle');
      const file = openSync(path, 'w', 0o600);
      try {
        const prerequisite = base === undefined ? '' : `-${base}\n`;
        writeSync(file, `# v2 git bundle\n${prerequisite}${commit} ${BUNDLE_REF}\n\n`);
        await write(['pack-objects', '--revs', '--thin', '--delta-base-offset', '--stdout', '--quiet'], {
          input: `${range.join('\n')}\n`,
          output: file,
        });
      } catch (error) {
        return explainFullDisk(error);
      } finally {
        closeSync(file);
      }
      const { size: sizeBytes } = statSync(path);
      if (sizeBytes > maxBytes)
        throw tooLarge(
          base === undefined && head !== undefined
            ? `the server has no commit of this repository, and its whole history is too large to send (${sizeText(sizeBytes)}): push a branch first`
            : `what the server lacks is too large (${sizeText(sizeBytes)})`,
          await listLargest(write, range),
          maxBytes,
        );
      return { path, sizeBytes };
    },
  };
}

const inGit = (name: string) => ['--git-path', name];

/** The copy must not be newer: git compares the contents of files that changed after the index was written. */
function copyIndex(from: string, to: string): void {
  if (!existsSync(from)) return;
  copyFileSync(from, to);
  const writtenAt = Math.floor(statSync(from).mtimeMs / 1000);
  utimesSync(to, writtenAt, writtenAt);
}

const quoteAlternate = (path: string) =>
  path.includes(delimiter) || path.startsWith('"')
    ? `"${path.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
    : path;

const LIST_CHANGES = ['ls-files', '-z', '-t', '--deleted', '--modified', '--others', '--exclude-standard'];

type Changes = {
  /** Bytes as latin1. Removed and changed files come before new ones, which may need their place. */
  paths: string[];
  /** Repositories that are no submodules. */
  repositories: string[];
};

function readChanges(listed: Buffer): Changes {
  const known = new Set<string>();
  const added: string[] = [];
  const repositories: string[] = [];
  for (const line of listed.toString('latin1').split('\0')) {
    const [tag, path] = [line.slice(0, 1), line.slice(2)];
    if (tag === '?' && path.endsWith('/')) repositories.push(path.slice(0, -1));
    else if (tag === '?') added.push(path);
    // A file that is deleted or has conflicts is listed more than once.
    else if (tag !== '') known.add(path);
  }
  const decode = (path: string) => Buffer.from(path, 'latin1').toString('utf8');
  return {
    paths: [...known, ...added],
    repositories: repositories.map(decode),
  };
}

/** Each line has mode, hash, stage, and a path after the tab. */
const readConflicts = (listed: string) => [
  ...new Set(listed.split('\0').flatMap(line => line.split('\t').slice(1).join('\t') || [])),
];

/** Git would compress the files and fill the disk before it is known that they are too large. */
function requireSize(root: string, paths: readonly string[], maxBytes: number): void {
  let bytes = 0;
  const sizes = paths.map(path => {
    const sizeBytes = sizeOf(Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, 'latin1')]));
    bytes += sizeBytes;
    return sizeBytes;
  });
  if (bytes <= maxBytes * MAX_COMPRESSION) return;
  throw tooLarge(
    `the new and changed files are too large (${sizeText(bytes)})`,
    paths.map((path, at) => ({
      name: Buffer.from(path, 'latin1').toString('utf8'),
      sizeBytes: sizes[at] as number,
    })),
    maxBytes,
  );
}

function sizeOf(path: Buffer): number {
  try {
    const found = lstatSync(path);
    return found.isFile() ? found.size : 0;
  } catch {
    // It was removed, or git will say why it cannot be read.
    return 0;
  }
}

type NamedFile = { name: string; sizeBytes: number };

function tooLarge(what: string, files: readonly NamedFile[], maxBytes: number): CommandError {
  const largest = files.toSorted((a, b) => b.sizeBytes - a.sizeBytes).slice(0, LARGEST_FILES);
  return refused(
    [
      `${what}. At most ${sizeText(maxBytes)} can be sent. The largest files are:`,
      ...largest.map(({ name, sizeBytes }) => `  ${sizeText(sizeBytes).padStart(10)}  ${plain(name)}`),
      'Files that .gitignore names are left out.',
    ].join('\n'),
  );
}

async function listLargest(run: Run, range: readonly string[]): Promise<NamedFile[]> {
  const objects = await run(['rev-list', '--objects', ...range]);
  const described = await run(['cat-file', '--batch-check=%(objecttype) %(objectsize) %(rest)'], {
    input: `${objects}\n`,
  });
  return described.split('\n').flatMap(line => {
    const [, size = '', name = ''] = /^blob (\d+) (.*)$/.exec(line) ?? [];
    return size === '' ? [] : [{ name, sizeBytes: Number(size) }];
  });
}

async function listDirtySubmodules(
  read: Run,
  tryRead: (args: readonly string[]) => Promise<string | undefined>,
): Promise<string[]> {
  const configured = await tryRead(['config', '-z', '-f', '.gitmodules', '--get-regexp', '\\.path$']);
  const paths = (configured ?? '').split('\0').flatMap(entry => entry.split('\n').slice(1));
  if (paths.length === 0) return [];
  const status = await read([
    ...['--literal-pathspecs', 'status', '--porcelain=v2', '-z', '--ignore-submodules=none', '--'],
    ...paths,
  ]);
  return status.split('\0').flatMap(entry => /^1 .. S.(?:M.|.U) (?:\S+ ){5}(.*)$/s.exec(entry)?.[1] ?? []);
}

async function* listBases(
  run: (args: readonly string[]) => Promise<string | undefined>,
  head: string | undefined,
): AsyncGenerator<string | undefined, void> {
  const seen = new Set<string | undefined>([undefined]);
  const isNew = (hash: string | undefined): hash is string => !seen.has(hash) && seen.add(hash) !== undefined;

  const upstream = await run(['rev-parse', '--quiet', '--verify', '@{upstream}^{commit}']);
  if (isNew(upstream)) yield upstream;
  const listed = await run([
    ...['for-each-ref', '--sort=-committerdate', '--format=%(objectname) %(refname)', 'refs/remotes'],
  ]);
  const branches = (listed ?? '').split('\n').filter(line => line !== '');
  const isDefault = (line: string) => line.endsWith('/HEAD');
  const tips = [...branches.filter(isDefault), ...branches.filter(line => !isDefault(line))];
  for (const tip of [...new Set(tips.map(line => line.split(' ')[0] as string))].slice(
    0,
    MAX_REMOTE_BRANCHES,
  )) {
    const common = head === undefined ? undefined : await run(['merge-base', head, tip]);
    const base = common ?? tip;
    if (isNew(base)) yield base;
  }
  // A clone of a tag has no remote branch.
  if (isNew(head)) yield head;
  yield undefined;
}

/** For `catch`: always throws. */
function explainFullDisk(error: unknown): never {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code !== 'ENOSPC' && !/No space left on device|There is not enough space/.test(message)) throw error;
  throw new CommandError(
    `the disk is full: free space in ${tmpdir()}, or name another directory with ${process.platform === 'win32' ? 'TEMP' : 'TMPDIR'}`,
    EXIT.errored,
  );
}
