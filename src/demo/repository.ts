// Creates the demo's bare repositories with the host's git, from a list of commits.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';

export type DescribedCommit = {
  branch: string;
  /** The branch that it starts from. `^0` follows the name of a branch that is there already. */
  from?: string;
  tag?: string;
  author: string;
  /** Seconds since 1970. Fixed, so that every demo has the same hashes. */
  at: number;
  message: string;
  files: Record<string, string>;
};

const DEADLINE_MS = 20_000;

/** Ignores the user's own git configuration. */
export const gitEnvironment = (): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH,
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
});

export async function createRepository(
  directory: string,
  commits: readonly DescribedCommit[] = [],
): Promise<void> {
  await mkdir(directory, { recursive: true });
  await git(directory, ['init', '--quiet', '--bare', '--initial-branch=main']);
  if (commits.length > 0) await git(directory, ['fast-import', '--quiet'], commits.map(describe).join(''));
}

/** Adds a commit as a person does: in a clone, from where it is pushed. */
export async function pushCommit(directory: string, clone: string, commit: DescribedCommit): Promise<void> {
  await git(directory, ['clone', '--quiet', '--bare', directory, clone]);
  await git(clone, ['fast-import', '--quiet'], describe(commit));
  await git(clone, ['push', '--quiet', 'origin', commit.branch]);
}

/** Runs the script after each push. */
export const installHook = (directory: string, script: string): Promise<void> =>
  writeFile(join(directory, 'hooks', 'post-receive'), script, { mode: 0o755 });

/** The hash of a branch; undefined if there is no such branch. */
export async function headOf(directory: string, branch: string): Promise<string | undefined> {
  const answer = await git(directory, ['for-each-ref', '--format=%(objectname)', `refs/heads/${branch}`]);
  return answer.trim() || undefined;
}

async function git(directory: string, args: string[], input?: string): Promise<string> {
  const child = spawn('git', args, {
    cwd: directory,
    env: gitEnvironment(),
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  // A git that ends before it has read everything reports the reason itself.
  child.stdin?.on('error', () => {}).end(input);
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout as Readable),
    text(child.stderr as Readable),
    once(child, 'close'),
  ]);
  if (status !== 0) throw new Error(`git ${args[0]} failed: ${stderr.trim()}`);
  return stdout;
}

/** One commit as input of `git fast-import`. */
function describe(commit: DescribedCommit): string {
  const ref = `refs/heads/${commit.branch}`;
  const who = `${commit.author} ${commit.at} +0000\n`;
  const files = Object.entries(commit.files).map(
    ([path, content]) => `M ${path.endsWith('.sh') ? '100755' : '100644'} inline ${path}\n${block(content)}`,
  );
  return [
    `commit ${ref}\nauthor ${who}committer ${who}${block(commit.message)}`,
    commit.from === undefined ? '' : `from refs/heads/${commit.from}\n`,
    ...files,
    '\n',
    commit.tag === undefined ? '' : `reset refs/tags/${commit.tag}\nfrom ${ref}\n\n`,
  ].join('');
}

const block = (content: string) => `data ${Buffer.byteLength(content)}\n${content}\n`;
