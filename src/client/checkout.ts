// The user's checkout: runs git in it, and finds the project that it belongs to.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { CommandError, UsageError } from '../command/command.ts';
import type { Connection } from './connection.ts';
import { EXIT, refused } from './exit-status.ts';
import type { Project } from './records.ts';

const run = promisify(execFile);
const GIT_MS = 60_000;
const MAX_OUTPUT_BYTES = 64 << 20;

/** Git could not do it. The message is what it printed. */
export class GitError extends CommandError {
  constructor(message: string) {
    super(message, EXIT.usage);
  }
}

type GitOptions = { directory?: string; environment?: Record<string, string>; timeoutMs?: number };

/** Runs git and returns what it prints, without the last line break. */
export async function git(args: readonly string[], options: GitOptions = {}): Promise<string> {
  try {
    const { stdout } = await run('git', [...args], {
      cwd: options.directory ?? '.',
      env: { ...process.env, LC_ALL: 'C', ...options.environment },
      timeout: options.timeoutMs ?? GIT_MS,
      maxBuffer: MAX_OUTPUT_BYTES,
      encoding: 'utf8',
    });
    return stdout.replace(/\n$/, '');
  } catch (error) {
    const { code, stderr = '', message } = error as NodeJS.ErrnoException & { stderr?: string };
    if (code === 'ENOENT') throw new GitError('git is not installed, or this directory no longer exists');
    const printed = stderr.trim().replace(/^fatal: /gm, '');
    throw new GitError(`git ${args[0]}: ${printed === '' ? message : printed}`);
  }
}

/** The same, or undefined if git fails. */
export const tryGit = (args: readonly string[], options: GitOptions = {}): Promise<string | undefined> =>
  git(args, options).catch(error => {
    if (error instanceof GitError) return undefined;
    throw error;
  });

/** The name of the branch. Undefined if HEAD is detached or this is no checkout. */
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

/** The project that --project names, or that this checkout belongs to. */
export async function findProject(connection: Connection, given: string | undefined): Promise<Project> {
  const remote = given === undefined ? await tryGit(['remote', 'get-url', 'origin']) : undefined;
  if (given === undefined && remote === undefined)
    throw new UsageError('this is no checkout with a remote "origin": name the project with --project NAME');
  const projects: Project[] = [];
  for await (const project of connection.list<Project>('/projects', { query: { limit: '100' } }))
    projects.push(project);
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
