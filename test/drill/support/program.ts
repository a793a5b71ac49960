// The program under test: the executable, built from the current sources. It is started, killed at a moment or at a
// system call, and restarted.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = join(import.meta.dirname, '../../..');
const EXECUTABLE = join(ROOT, 'dist/assay');
const BUILD = join(ROOT, 'build/main.ts');
const BUILD_MS = 300_000;
const START_MS = 30_000;
const COMMAND_MS = 120_000;

/**
 * The command line of the program: the given one, or the executable, which is built if it is out of date. If two drills
 * start at once, one builds it and the other waits.
 */
export async function programOf(chosen?: string): Promise<readonly string[]> {
  if (chosen !== undefined) return [resolve(chosen)];
  await promisify(execFile)('flock', [BUILD, process.execPath, BUILD], { timeout: BUILD_MS });
  return [EXECUTABLE];
}

export type Running = {
  pid: number;
  readyMs: number;
  /** Resolves when it has ended, for any reason. */
  ended: Promise<void>;
  hasEnded(): boolean;
  kill(signal?: NodeJS.Signals): Promise<void>;
};

export type Program = {
  /** Resolves when it is ready; rejects if it ends before that. */
  start(through?: readonly string[]): Promise<Running>;
  /** Starts it and kills it `afterMs` later, whatever it is doing. */
  killWhileStarting(afterMs: number): Promise<void>;
  /** Runs a command of the program. */
  run(...args: string[]): Promise<string>;
  stderr(): string;
};

export class EndedEarly extends Error {}

/** `logFile` gets the log of all its runs. */
export function createProgram(options: {
  command: readonly string[];
  environment: Record<string, string>;
  logFile: string;
}): Program {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('ASSAY_') && name !== 'NODE_TEST_CONTEXT' && name !== 'STATE_DIRECTORY',
  );
  const env = { ...Object.fromEntries(inherited), ...options.environment };
  let stderr = '';

  const launch = (through: readonly string[]): ChildProcess => {
    const [program = '', ...args] = [...through, ...options.command, 'serve'];
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stderr?.setEncoding('utf8').on('data', text => {
      stderr = (stderr + text).slice(-100_000);
      appendFileSync(options.logFile, text);
    });
    child.on('exit', (status, signal) => {
      const end = `[drill] the program ended: ${signal ?? `status ${status}`}\n`;
      stderr += end;
      appendFileSync(options.logFile, end);
    });
    return child;
  };

  return {
    stderr: () => stderr,
    async start(through = []) {
      const startedAt = performance.now();
      const child = launch(through);
      const closed = once(child, 'close').then(() => {});
      let output = '';
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => {
          child.kill('SIGKILL');
          reject(new Error(`not ready in ${START_MS} ms: ${stderr}`));
        }, START_MS);
        child.stdout?.setEncoding('utf8').on('data', text => {
          output += text;
          if (!output.includes('assay is serving ')) return;
          clearTimeout(timer);
          resolve();
        });
        child.on('error', reject);
        closed.then(() => {
          clearTimeout(timer);
          reject(new EndedEarly(`ended before it was ready: ${stderr.slice(-2_000)}`));
        });
      });
      const readyMs = performance.now() - startedAt;
      const pid = child.pid as number;
      return {
        pid,
        readyMs,
        ended: closed,
        hasEnded: () => child.exitCode !== null || child.signalCode !== null,
        async kill(signal = 'SIGKILL') {
          child.kill(signal);
          await closed;
        },
      };
    },
    async killWhileStarting(afterMs) {
      const child = launch([]);
      const closed = once(child, 'close');
      const timer = setTimeout(() => child.kill('SIGKILL'), afterMs);
      child.stdout?.resume();
      await closed;
      clearTimeout(timer);
    },
    async run(...args) {
      const [program = '', ...before] = options.command;
      const { stdout } = await promisify(execFile)(program, [...before, ...args], {
        env,
        timeout: COMMAND_MS,
        maxBuffer: 1 << 26,
      });
      return stdout;
    },
  };
}

/**
 * Attaches strace to the running program and tampers with some of its system calls. Without `threads`, only those of
 * the main thread, which are the database's. Resolves when it is attached.
 */
export async function inject(
  pid: number,
  rule: string,
  threads = false,
): Promise<{ detach(): Promise<void>; ended: Promise<void> }> {
  const [calls = ''] = rule.split(':');
  const strace = spawn(
    'strace',
    [
      ...(threads ? ['-f'] : []),
      ...['-o', '/dev/null', '-e', `trace=${calls}`, '-e', `inject=${rule}`, '-p', String(pid)],
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  const ended = once(strace, 'close').then(() => {});
  const attached = new Promise<void>(resolve => {
    strace.stderr.setEncoding('utf8').on('data', (text: string) => {
      if (text.includes('attached')) resolve();
    });
  });
  // A program that has ended cannot be attached to.
  await Promise.race([attached, ended]);
  return {
    ended,
    async detach() {
      strace.kill('SIGINT');
      await ended;
    },
  };
}
