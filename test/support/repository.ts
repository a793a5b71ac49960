// Creates real repositories from a list of commits, with one `git fast-import` each.
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';

export type CommitDescription = {
  message?: string | Buffer;
  // null deletes the path.
  files?: Record<string, string | Buffer | null>;
  // Commits of submodules by path. The file .gitmodules is in `files`.
  submodules?: Record<string, string>;
  branch?: string;
  // A hash or a branch; 'none' starts an unrelated history. The default is the head of the branch.
  parent?: string;
  mergeOf?: string;
  author?: string | Buffer;
  // Seconds since 1970 and an offset, in git's format.
  authoredAt?: string;
  committer?: string | Buffer;
  committedAt?: string;
};

const ENVIRONMENT = {
  PATH: process.env.PATH,
  HOME: '/nonexistent',
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'Ada',
  GIT_AUTHOR_EMAIL: 'ada@example.test',
  GIT_COMMITTER_NAME: 'Ada',
  GIT_COMMITTER_EMAIL: 'ada@example.test',
};

export function git(directory: string, ...args: string[]): string {
  return execFileSync('git', args, { cwd: directory, env: ENVIRONMENT, encoding: 'utf8' }).replace(/\n$/, '');
}

// A bare repository, with the hashes of its commits in order.
export function createRepository(directory: string, commits: readonly CommitDescription[] = []): string[] {
  mkdirSync(directory, { recursive: true });
  git(directory, 'init', '--quiet', '--bare', '--initial-branch=main');
  return addCommits(directory, commits);
}

// A parent other than the head of the branch rewrites the branch, like push --force.
export function addCommits(directory: string, commits: readonly CommitDescription[]): string[] {
  if (commits.length === 0) return [];
  const heads = new Map(
    git(directory, 'for-each-ref', '--format=%(refname) %(objectname)', 'refs/heads')
      .split('\n')
      .filter(line => line !== '')
      .map(line => line.split(' ') as [string, string]),
  );
  const stream = Buffer.concat(commits.map((commit, index) => describe(commit, index + 1, heads)));
  const answer = execFileSync('git', ['fast-import', '--quiet', '--force', '--cat-blob-fd=1'], {
    cwd: directory,
    env: ENVIRONMENT,
    input: stream,
    encoding: 'utf8',
  });
  return answer.split('\n').filter(line => line !== '');
}

function describe(commit: CommitDescription, mark: number, heads: Map<string, string>): Buffer {
  const branch = `refs/heads/${commit.branch ?? 'main'}`;
  const parent =
    commit.parent === undefined
      ? heads.get(branch)
      : (heads.get(`refs/heads/${commit.parent}`) ?? commit.parent);
  heads.set(branch, `:${mark}`);
  const who = (role: string, person: string | Buffer, at: string) => [`${role} `, person, ` ${at}\n`];
  const author = commit.author ?? 'Ada <ada@example.test>';
  const authoredAt = commit.authoredAt ?? `${1_700_000_000 + mark} +0000`;
  const pieces = [
    `reset ${branch}\n`,
    ...(parent === undefined || parent === 'none' ? ['\n'] : [`from ${parent}\n\n`]),
    `commit ${branch}\nmark :${mark}\n`,
    ...who('author', author, authoredAt),
    ...who('committer', commit.committer ?? author, commit.committedAt ?? authoredAt),
    ...block(commit.message ?? `Commit ${mark}\n`),
    ...(commit.mergeOf ? [`merge ${heads.get(`refs/heads/${commit.mergeOf}`) ?? commit.mergeOf}\n`] : []),
    ...Object.entries(commit.files ?? {}).flatMap(([path, content]) =>
      content === null ? [`D ${path}\n`] : [`M 100644 inline ${path}\n`, ...block(content)],
    ),
    ...Object.entries(commit.submodules ?? {}).map(([path, hash]) => `M 160000 ${hash} ${path}\n`),
    `\nget-mark :${mark}\n`,
  ];
  return Buffer.concat(pieces.map(part => Buffer.from(part)));
}

function block(content: string | Buffer): (string | Buffer)[] {
  const bytes = Buffer.from(content);
  return [`data ${bytes.length}\n`, bytes, '\n'];
}
