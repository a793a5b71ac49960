// A user at a terminal: a real server, a clone of a project's repository, and the client as its own process, through pipes or
// in a pseudo-terminal.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { findOldestForClient } from '../../build/runtime.ts';
import type { Machine } from '../../build/strip.ts';
import type { Settings } from '../../src/config.ts';
import { environmentWith, programPath } from '../cli/program.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import type { ProjectJourney, Repository } from '../support/journey.ts';
import { git } from '../support/repository.ts';

const DEADLINE_MS = 120_000;

export type RunOptions = {
  /** The current directory. */
  in?: string;
  env?: Record<string, string>;
  /** In a pseudo-terminal of this width. Then `stdout` has what the screen gets, with \r\n at the end of lines. */
  columns?: number;
  /** What standard input contains, unless it is a terminal. */
  input?: string;
  /** Another program than the executable's: `[node, assay.mjs]`. */
  program?: readonly string[];
};

export type Running = {
  child: ChildProcess;
  /** Everything that was printed so far. */
  stdout(): string;
  stderr(): string;
  /** Resolves when the output contains the text or matches. */
  until(pattern: string | RegExp): Promise<void>;
  /** Types text, if it runs in a pseudo-terminal or reads its input. */
  type(text: string): void;
  ended: Promise<{ status: number | null; stdout: string; stderr: string }>;
};

const quote = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;

/** The executable's, or with OLDEST_NODE in the environment assay.mjs on the oldest Node that it supports. */
async function defaultProgram(): Promise<string[]> {
  const path = await programPath();
  return process.env.OLDEST_NODE
    ? [await findOldestForClient(process.arch as Machine), join(dirname(path), 'assay.mjs')]
    : [process.execPath, path];
}

/** Starts the client. */
export async function startClient(args: readonly string[], options: RunOptions = {}): Promise<Running> {
  const words = [...(options.program ?? (await defaultProgram())), ...args];
  const inTerminal = `stty cols ${options.columns} rows 40; exec ${words.map(quote).join(' ')}`;
  const [program, ...rest] =
    options.columns === undefined ? words : ['script', '-qfec', inTerminal, '/dev/null'];
  const child = spawn(program as string, rest, {
    cwd: options.in ?? tmpdir(),
    env: environmentWith({ TERM: 'xterm-256color', ...options.env }),
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: DEADLINE_MS,
  });
  const output = { stdout: '', stderr: '' };
  const watchers = new Set<() => void>();
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', text => {
      output[name] += text;
      for (const watcher of watchers) watcher();
    });
  child.stdin.on('error', () => {});
  if (options.columns === undefined) child.stdin.end(options.input);
  const ended = once(child, 'close').then(([status]) => ({ status: status as number | null, ...output }));
  return {
    child,
    stdout: () => output.stdout,
    stderr: () => output.stderr,
    until: pattern =>
      new Promise((resolve, reject) => {
        const check = () => {
          const all = output.stdout + output.stderr;
          if (typeof pattern === 'string' ? !all.includes(pattern) : !pattern.test(all)) return;
          watchers.delete(check);
          resolve();
        };
        watchers.add(check);
        ended.then(() => reject(new Error(`ended without ${pattern}:\n${output.stdout}\n${output.stderr}`)));
        check();
      }),
    type: text => void child.stdin.write(text),
    ended,
  };
}

export const runClient = async (args: readonly string[], options: RunOptions = {}) =>
  (await startClient(args, options)).ended;

export type ClientWorld = Appliance & {
  /** The environment of a user who is signed in by variables. */
  env: Record<string, string>;
  /** A directory for checkouts and files. */
  directory: string;
  /** A project and a clone of its repository, whose `origin` is the address of the project. */
  checkout(
    repository?: Repository,
    fields?: Record<string, string>,
  ): Promise<{ project: ProjectJourney; path: string }>;
  /** Runs the client as that user. */
  run(
    args: readonly string[],
    options?: RunOptions,
  ): Promise<{ status: number | null; stdout: string; stderr: string }>;
  start(args: readonly string[], options?: RunOptions): Promise<Running>;
};

export async function startClientWorld(overrides: Partial<Settings> = {}): Promise<ClientWorld> {
  const appliance = await startAppliance(overrides);
  const directory = mkdtempSync(join(tmpdir(), 'assay-client-'));
  const config = join(directory, 'config');
  mkdirSync(config);
  const caFile = join(directory, 'ca.pem');
  writeFileSync(caFile, appliance.client.ca);
  const env = {
    ASSAY_URL: appliance.client.origin,
    ASSAY_TOKEN: appliance.token,
    ASSAY_CA_FILE: caFile,
    XDG_CONFIG_HOME: config,
  };
  const withEnv = (options: RunOptions = {}): RunOptions => ({
    ...options,
    env: { ...env, ...options.env },
  });
  let clones = 0;
  return {
    ...appliance,
    env,
    directory,
    async checkout(repository, fields) {
      const project = await appliance.project(repository, fields);
      const path = join(directory, `checkout-${++clones}`);
      git(directory, 'clone', '--quiet', project.repository.directory, path);
      git(path, 'remote', 'set-url', 'origin', project.repository.url);
      return { project, path };
    },
    run: (args, options) => runClient(args, withEnv(options)),
    start: (args, options) => startClient(args, withEnv(options)),
    async close() {
      await appliance.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
