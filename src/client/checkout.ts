// The user's checkout: runs git in it, and finds the project that it belongs to.

import { spawn } from 'node:child_process';
import { CommandError, UsageError } from '../command/command.ts';
import type { Connection } from './connection.ts';
import { EXIT, refused } from './exit-status.ts';
import type { Project } from './records.ts';

const GIT_MS = 60_000;
const MAX_OUTPUT_BYTES = 64 << 20;
const MAX_PROBLEM_LENGTH = 4000;

/** Git could not do it. The message is what it printed. */
export class GitError extends CommandError {
  constructor(message: string) {
    super(message, EXIT.usage);
  }
}

export type GitOptions = {
  directory?: string;
  environment?: Record<string, string>;
  timeoutMs?: number;
  /** What git reads. */
  input?: string | Buffer;
  /** A file descriptor for what git prints. */
  output?: number;
  signal?: AbortSignal;
};

/** Runs git and returns what it prints. It has ended in any case, also after an error. */
export function gitBytes(args: readonly string[], options: GitOptions = {}): Promise<Buffer> {
  const { directory, environment, timeoutMs, input, output, signal } = options;
  return new Promise((resolve, reject) => {
    const child = spawn('git', [...args], {
      cwd: directory ?? '.',
      env: { ...process.env, LC_ALL: 'C', ...environment },
      timeout: timeoutMs ?? GIT_MS,
      stdio: [input === undefined ? 'ignore' : 'pipe', output ?? 'pipe', 'pipe'],
      windowsHide: true,
      ...(signal && { signal }),
    });
    const printed: Buffer[] = [];
    let printedBytes = 0;
    let problem = '';
    let failure: NodeJS.ErrnoException | undefined;
    child.stdout?.on('data', (chunk: Buffer) => {
      printed.push(chunk);
      printedBytes += chunk.length;
      if (printedBytes > MAX_OUTPUT_BYTES) child.kill();
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      problem = (problem + text).slice(0, MAX_PROBLEM_LENGTH);
    });
    // Git may end before it has read everything.
    child.stdin?.on('error', () => {}).end(input);
    child.on('error', error => {
      failure = error;
    });
    // A program that git started may go on and keep the streams open.
    child.on('exit', (_, killedBy) => {
      if (killedBy !== null) for (const stream of [child.stdout, child.stderr]) stream?.destroy();
    });
    child.on('close', (status, killedBy) => {
      if (status === 0) resolve(Buffer.concat(printed));
      else if (signal?.aborted) reject(signal.reason);
      else if (failure?.code === 'ENOENT')
        reject(new GitError('git is not installed, or this directory no longer exists'));
      else {
        const command = args.find((arg, at) => !arg.startsWith('-') && args[at - 1] !== '-c');
        const cause = problem.trim().replace(/^(fatal|error): /gm, '') || failure?.message || '';
        reject(new GitError(`git ${command}: ${cause || (killedBy ?? `status ${status}`)}`));
      }
    });
  });
}

/** Runs git and returns what it prints, without the last line break. */
export const git = async (args: readonly string[], options: GitOptions = {}): Promise<string> =>
  (await gitBytes(args, options)).toString('utf8').replace(/\n$/, '');

/** The same, or undefined if git fails. */
export const tryGit = (args: readonly string[], options: GitOptions = {}): Promise<string | undefined> =>
  git(args, options).catch(error => {
    if (error instanceof GitError) return undefined;
    throw error;
  });

/** The name of the branch. Undefined if HEAD is detached or this is not a checkout. */
export const currentBranch = (): Promise<string | undefined> =>
  tryGit(['symbolic-ref', '--quiet', '--short', 'HEAD']);

/** Host and path of a repository, from any form of address that git accepts. */
export function parseRepositoryUrl(url: string): { host: string; path: string } {
  const withProtocol = /^[a-z+]+:\/\/(?:[^@/]*@)?([^:/]*)(?::\d+)?\/(.*)$/i.exec(url);
  const scpLike = /^(?:[^@/]*@)?([^:/]+):(.*)$/.exec(url);
  const [, host = '', path = url] = withProtocol ?? scpLike ?? [];
  return {
    host: host.toLowerCase(),
    path: path
      .replace(/^\/+/, '')
      .replace(/\/+$/, '')
      .replace(/\.git$/, ''),
  };
}

/** The projects for this remote: same path, and preferably same host. A host may have several names. */
export function matchProjects<P extends { repository_url: string }>(
  projects: readonly P[],
  remote: string,
): P[] {
  const wanted = parseRepositoryUrl(remote);
  const samePath = projects.filter(({ repository_url: url }) => parseRepositoryUrl(url).path === wanted.path);
  const sameHost = samePath.filter(({ repository_url: url }) => parseRepositoryUrl(url).host === wanted.host);
  return sameHost.length > 0 ? sameHost : samePath;
}

async function listProjects(connection: Connection): Promise<Project[]> {
  const projects: Project[] = [];
  for await (const project of connection.list<Project>('/projects', { query: { limit: '100' } }))
    projects.push(project);
  return projects;
}

/** The project that --project names, or that this checkout belongs to. */
export async function findProject(connection: Connection, given: string | undefined): Promise<Project> {
  const listed = listProjects(connection);
  // Meanwhile git runs. If it finds nothing, the list does not matter.
  listed.catch(() => {});
  const remote = given === undefined ? await tryGit(['remote', 'get-url', 'origin']) : undefined;
  if (given === undefined && remote === undefined)
    throw new UsageError(
      'this is not a checkout with a remote "origin": name the project with --project NAME',
    );
  const projects = await listed;
  const found =
    given === undefined
      ? matchProjects(projects, remote as string)
      : projects.filter(
          ({ name, id_str: id }) => id === given || name.toLowerCase() === given.trim().toLowerCase(),
        );
  const [first, ...others] = found;
  if (!first)
    throw refused(
      given === undefined
        ? `no project of ${connection.url} has the repository ${remote}: name the project with --project NAME`
        : `there is no project ${JSON.stringify(given)} on ${connection.url}, or you cannot see it`,
    );
  if (others.length > 0)
    throw new UsageError(
      `several projects match: choose one with --project ID\n${found.map(({ name, id_str: id }) => `  ${id}  ${name}`).join('\n')}`,
    );
  return first;
}
