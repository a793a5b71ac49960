// Runs git: the only importer of simple-git. Every call gets the same clean environment, the same protections and a deadline.

import { spawn } from 'node:child_process';
import { dirname, resolve } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isSshUrl } from '../../domain/submodules.ts';
import { explain } from './explain.ts';
import type { SshSession } from './ssh.ts';

export class GitFailure extends Error {
  override name = 'GitFailure';
  readonly reason: string;
  /** The end of what git and ssh printed: for the server's log, not for users. */
  readonly detail: string;

  constructor(reason: string, detail = '') {
    super(reason);
    this.reason = reason;
    this.detail = detail.slice(-DETAIL_MAX_CHARACTERS);
  }
}

type GitCall = {
  /** A bare repository. Optional for calls that only talk to a remote. */
  repository?: string;
  ssh?: SshSession;
  host?: string;
  input?: string | Buffer;
  /** An open file that git reads as its standard input, from the current position. */
  inputFile?: number;
  /** The largest piece of memory that git may allocate. It fails if an object needs more. */
  memoryMaxBytes?: number;
  signal?: AbortSignal | undefined;
  deadlineMs?: number;
  /** Ends a call that prints nothing for this long. */
  stallMs?: number;
  acceptedExitCodes?: readonly number[];
  /** A lower limit of the output than the default, and the error if there is more. */
  outputMax?: { bytes: number; reason: string };
  onOutput?: OnOutput;
  /** `onOutput` alone gets the output: the result has none, so a large output takes no memory. */
  isStreamed?: boolean;
};

export type OnOutput = (chunk: Buffer, from: 'output' | 'messages') => void;

type GitResult = { exitCode: number; output: string; messages: string };

const DETAIL_MAX_CHARACTERS = 4_000;
// The output is held in memory until the call ends.
const OUTPUT_MAX_BYTES = 256 * 1024 * 1024;
const LOCAL_DEADLINE_MS = 120_000;
// How long to wait, after git has exited, for an ssh process that keeps its streams open.
const STREAMS_CLOSE_MS = 500;

const PROTECTIONS = [
  'core.hooksPath=/dev/null',
  'gc.auto=0',
  'maintenance.auto=false',
  'submodule.recurse=false',
  'core.bigFileThreshold=8m',
  'log.showRoot=true',
  'log.showSignature=false',
  'i18n.logOutputEncoding=UTF-8',
];

const CLEAN_ENVIRONMENT = {
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_TERMINAL_PROMPT: '0',
  GIT_ASKPASS: '/bin/false',
  GIT_PROTOCOL_FROM_USER: '0',
  GIT_ALLOW_PROTOCOL: 'ssh',
  GIT_NO_REPLACE_OBJECTS: '1',
};

/** The event loop waits while a process starts. Each one starts in a turn of its own, so that the waits do not add up. */
let lastStart: Promise<void> = Promise.resolve();

export async function runGit(args: readonly string[], call: GitCall): Promise<GitResult> {
  const directory = resolve(call.repository ?? call.ssh?.directory ?? '/');
  const environment = environmentOf(call, directory);
  lastStart = lastStart.then(() => nextTurn());
  await lastStart;
  const watch = watchCall(call);
  const run = call.inputFile === undefined ? runSimpleGit : spawnGit;
  const ended = await run(args, call, directory, environment, watch).finally(watch.end);
  const messages = Buffer.concat(ended.stdErr).toString();
  if (watch.failure) throw new GitFailure(watch.failure, messages);
  if (!(call.acceptedExitCodes ?? [0]).includes(ended.exitCode)) {
    throw new GitFailure(explain(messages, contextOf(call)), messages);
  }
  return { exitCode: ended.exitCode, output: Buffer.concat(ended.stdOut).toString(), messages };
}

type Ended = { exitCode: number; stdOut: Buffer[]; stdErr: Buffer[] };
type RunGit = (
  args: readonly string[],
  call: GitCall,
  directory: string,
  environment: Record<string, string>,
  watch: ReturnType<typeof watchCall>,
) => Promise<Ended>;

const runSimpleGit: RunGit = async (args, call, directory, environment, watch) => {
  let ended: Ended | undefined;
  // Loaded when it is first needed, so that a start of the server does not wait for it.
  const { simpleGit } = await import('simple-git');
  const git = simpleGit({
    baseDir: directory,
    config: PROTECTIONS,
    abort: watch.signal,
    completion: { onClose: true, onExit: call.ssh ? STREAMS_CLOSE_MS : false },
    allowEnvironment: Object.keys(environment),
    // No user input reaches the environment or the configuration.
    unsafe: {
      allowUnsafeSshCommand: true,
      allowUnsafeConfigPaths: true,
      allowUnsafeAskPass: true,
      allowUnsafeHooksPath: true,
      allowUnsafeTemplateDir: true,
    },
    ...(call.input !== undefined && { input: () => call.input }),
    // simple-git treats a failure without output as success, so the exit status is checked below.
    errors(_, result) {
      ended = result;
      return undefined;
    },
  });
  git.env(environment).outputHandler((_, stdout, stderr) => {
    // This listener of simple-git keeps the output.
    if (call.isStreamed) stdout.removeAllListeners('data');
    stdout.on('data', chunk => watch.moved(chunk, 'output'));
    stderr.on('data', chunk => watch.moved(chunk, 'messages'));
    // simple-git waits another 50 ms for a command that prints nothing. The streams are closed by then, so an empty
    // chunk skips the wait.
    setImmediate(() => stderr.emit('data', Buffer.alloc(0)));
  });
  await git.raw([...args]);
  if (!ended) throw new Error(`git ${args[0]} ended without a result`);
  return ended;
};

/** simple-git cannot pass a file as the standard input: it would have to be in memory. */
const spawnGit: RunGit = (args, call, cwd, env, watch) => {
  const { promise, resolve: end, reject } = Promise.withResolvers<Ended>();
  const settings = PROTECTIONS.flatMap(setting => ['-c', setting]);
  const child = spawn('git', [...settings, ...args], {
    cwd,
    env,
    stdio: [call.inputFile as number, 'pipe', 'pipe'],
  });
  const kill = () => child.kill('SIGKILL');
  watch.signal.addEventListener('abort', kill);
  if (watch.signal.aborted) kill();
  const stdOut: Buffer[] = [];
  const stdErr: Buffer[] = [];
  child.stdout?.on('data', chunk => {
    stdOut.push(chunk);
    watch.moved(chunk, 'output');
  });
  child.stderr?.on('data', chunk => {
    stdErr.push(chunk);
    watch.moved(chunk, 'messages');
  });
  child.once('error', reject);
  child.once('close', code => end({ exitCode: code ?? -1, stdOut, stdErr }));
  return promise.finally(() => watch.signal.removeEventListener('abort', kill));
};

function environmentOf(
  { repository, ssh, memoryMaxBytes }: GitCall,
  directory: string,
): Record<string, string> {
  return {
    PATH: process.env.PATH ?? '/usr/bin:/bin',
    HOME: '/nonexistent',
    ...CLEAN_ENVIRONMENT,
    // Never search parent directories: the data directory may be inside another repository.
    ...(repository ? { GIT_DIR: directory } : { GIT_CEILING_DIRECTORIES: dirname(directory) }),
    ...(memoryMaxBytes !== undefined && { GIT_ALLOC_LIMIT: String(memoryMaxBytes) }),
    ...ssh?.environment,
  };
}

function contextOf({ host, ssh }: GitCall) {
  return { ...(host && { host }), ...(ssh && { connectTimeoutMs: ssh.connectTimeoutMs }) };
}

function watchCall({ host, signal, deadlineMs = LOCAL_DEADLINE_MS, stallMs, onOutput, outputMax }: GitCall) {
  const stop = new AbortController();
  const source = host ? ` the host ${host}` : ' git';
  const limit = outputMax ?? { bytes: OUTPUT_MAX_BYTES, reason: `The output of${source} is too large.` };
  let failure: string | undefined;
  let receivedBytes = 0;
  const fail = (reason: string) => {
    failure ??= reason;
    stop.abort();
  };
  const cancel = () => fail('The work was canceled.');
  const late = setTimeout(
    () => fail(`Waiting for${source} was stopped after ${seconds(deadlineMs)}.`),
    deadlineMs,
  );
  const stalled =
    stallMs &&
    setTimeout(() => fail(`Nothing has arrived from${source} for ${seconds(stallMs)}: try again.`), stallMs);
  signal?.addEventListener('abort', cancel);
  if (signal?.aborted) cancel();
  return {
    signal: stop.signal,
    get failure() {
      return failure;
    },
    moved(chunk: Buffer, from: 'output' | 'messages') {
      if (chunk.length === 0) return;
      if (stalled) stalled.refresh();
      receivedBytes += chunk.length;
      if (receivedBytes > limit.bytes) fail(limit.reason);
      onOutput?.(chunk, from);
    },
    end() {
      clearTimeout(late);
      if (stalled) clearTimeout(stalled);
      signal?.removeEventListener('abort', cancel);
    },
  };
}

function seconds(durationMs: number): string {
  return `${Math.ceil(durationMs / 1000)} s`;
}

// The domain has validated these values already. The checks below are a second line of defense: nothing that git could
// take for an option, a refspec or another protocol gets through.
export function hostOf(url: string): string {
  const match = /^(?!-)[\w.-]+@((?!-)[\w.-]+):(?!-)[\w.~/+-]+\.git$/.exec(url);
  if (!match?.[1] || url.includes('..')) {
    throw new GitFailure('The repository URL is not of the form <user>@<host>:<path>.git: correct it.');
  }
  return match[1];
}

/** A submodule may have any SSH URL. */
export function submoduleHostOf(url: string): string {
  const host = isSshUrl(url) ? /@([\w.-]+)/.exec(url)?.[1] : undefined;
  if (!host) throw new GitFailure('The URL of the submodule is not an SSH URL.');
  return host;
}

export function plainName(name: string): string {
  const segments = name.split('/');
  const plain =
    !/[\s\p{Cc}~^:?*[\\]|\.\.|@\{/u.test(name) &&
    !/^[-+]|^@$|\.$/.test(name) &&
    segments.every(segment => segment !== '' && !segment.startsWith('.') && !segment.endsWith('.lock'));
  if (!plain) throw new GitFailure('The name is not a valid branch, tag or commit.');
  return name;
}

export function fullHash(hash: string): string {
  if (!/^[0-9a-f]{40}$/.test(hash)) throw new GitFailure('The commit must be given by its full hash.');
  return hash;
}
