// Builds the executable dist/assay if it is out of date, runs its commands, and starts it as a server on a data
// directory.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { environmentWith } from '../cli/program.ts';
import { programOf } from '../drill/support/program.ts';

const ROOT = join(import.meta.dirname, '../..');
const EXECUTABLE = join(ROOT, 'dist/assay');
const DEADLINE_MS = 60_000;

let made: Promise<string> | undefined;

/**
 * The path of the executable, after it is built if necessary. Comparing all inputs takes seconds, so times are compared
 * first.
 */
export function executable(): Promise<string> {
  made ??= (async () => {
    const builtAt = statSync(EXECUTABLE, { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (builtAt > newestSourceAt()) return EXECUTABLE;
    const beganAt = new Date();
    await programOf();
    utimesSync(EXECUTABLE, beganAt, beganAt);
    return EXECUTABLE;
  })();
  return made;
}

/** Includes directories: deleting a file changes only the time of its directory. */
function newestSourceAt(): number {
  const below = ['src', 'build'].flatMap(directory => [
    directory,
    ...readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' }).map(name =>
      join(directory, name),
    ),
  ]);
  const times = ['package-lock.json', ...below].map(
    // Another process may delete files meanwhile; then the time of the directory counts.
    name => statSync(join(ROOT, name), { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return Math.max(...times);
}

/** Runs a command of the executable. */
export async function runExecutable(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(await executable(), args, {
    env: environmentWith(),
    timeout: DEADLINE_MS,
    maxBuffer: 1 << 26,
  });
  return stdout;
}

export type Served = {
  url: string;
  pid: number;
  /** The lines of its log, with line ends. */
  logged: readonly string[];
  /** Resolves when the lines logged so far satisfy the condition. */
  untilLogged(holds: (lines: readonly string[]) => boolean): Promise<void>;
  /** Everything that it printed, on both streams. */
  printed(): string;
  /** Resolves with its exit status or signal. */
  stop(signal?: NodeJS.Signals): Promise<number | NodeJS.Signals>;
};

/** Starts `assay serve` on a free loopback port. `through` is a program to run it under. */
export async function serveExecutable(
  data: string,
  options: { environment?: Record<string, string>; through?: readonly string[] } = {},
): Promise<Served> {
  const serve = [await executable(), 'serve', '--data', data, '--listen', '127.0.0.1:0'];
  const [program = '', ...args] = [...(options.through ?? []), ...serve];
  const child = spawn(program, args, {
    env: environmentWith(options.environment),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const killed = () => child.kill('SIGKILL');
  process.on('exit', killed);
  const closed = once(child, 'close').then(([status, signal]) => {
    process.off('exit', killed);
    return (status ?? signal) as number | NodeJS.Signals;
  });
  const { logged, printed, untilLogged } = listenTo(child);
  const url = await readyLine(child, closed, printed);
  return {
    url,
    pid: child.pid as number,
    logged,
    untilLogged,
    printed,
    stop: (signal = 'SIGTERM') => {
      child.kill(signal);
      const timer = setTimeout(killed, DEADLINE_MS);
      return closed.finally(() => clearTimeout(timer));
    },
  };
}

function listenTo(child: ChildProcess) {
  const logged: string[] = [];
  const checks = new Set<() => void>();
  let printed = '';
  let partial = '';
  child.stdout?.setEncoding('utf8').on('data', text => {
    printed += text;
  });
  child.stderr?.setEncoding('utf8').on('data', text => {
    printed += text;
    const lines = (partial + text).split(/(?<=\n)/);
    partial = lines.at(-1)?.endsWith('\n') ? '' : (lines.pop() ?? '');
    logged.push(...lines);
    for (const check of checks) check();
  });
  const untilLogged = (holds: (lines: readonly string[]) => boolean) =>
    new Promise<void>((resolve, reject) => {
      const check = () => {
        if (!holds(logged)) return;
        clearTimeout(timer);
        checks.delete(check);
        resolve();
      };
      const timer = setTimeout(() => {
        checks.delete(check);
        reject(new Error(`timed out waiting for a log line: ${logged.slice(-5).join('')}`));
      }, DEADLINE_MS);
      checks.add(check);
      check();
    });
  return { logged, printed: () => printed, untilLogged };
}

function readyLine(child: ChildProcess, closed: Promise<unknown>, printed: () => string): Promise<string> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`not ready in ${DEADLINE_MS} ms: ${printed()}`));
    }, DEADLINE_MS);
    child.on('error', reject);
    child.stdout?.on('data', () => {
      const url = /^assay is serving (https:\S+)$/m.exec(printed())?.[1];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    });
    closed.then(status => {
      clearTimeout(timer);
      reject(new Error(`ended before it was ready (${status}): ${printed()}`));
    });
  });
}
