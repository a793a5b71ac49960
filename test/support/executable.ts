// The executable as its users run it, dist/assay, in a process of its own: made where it is not what the sources give,
// started on a data directory, listened to until it is told to stop. What is asked of it is left to each test.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { environmentWith } from '../cli/program.ts';
import { programOf } from '../drill/program.ts';

const ROOT = join(import.meta.dirname, '../..');
const EXECUTABLE = join(ROOT, 'dist/assay');
const DEADLINE_MS = 60_000;

let made: Promise<string> | undefined;

/** Where it is, once it is there. To compare every byte that goes into it takes seconds, so times are compared first. */
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

/** Directories too: what is taken away changes theirs alone. */
function newestSourceAt(): number {
  const below = ['src', 'build'].flatMap(directory => [
    directory,
    ...readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' }).map(name =>
      join(directory, name),
    ),
  ]);
  const times = ['package-lock.json', ...below].map(
    // Someone may be writing beside us: what is gone again counts with its directory.
    name => statSync(join(ROOT, name), { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return Math.max(...times);
}

/** A command of the executable, to its end. */
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
  /** Each line that it wrote to its log, with its end. */
  logged: readonly string[];
  /** Resolves when the lines it logged, from now on and before, are as they should be. */
  untilLogged(holds: (lines: readonly string[]) => boolean): Promise<void>;
  /** All that it printed, whereto ever. */
  printed(): string;
  /** Resolves with its exit status, or what ended it. */
  stop(signal?: NodeJS.Signals): Promise<number | NodeJS.Signals>;
};

/** `assay serve` on a free port of loopback; `through` is a program to run it under. */
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
      const late = setTimeout(killed, DEADLINE_MS);
      return closed.finally(() => clearTimeout(late));
    },
  };
}

function listenTo(child: ChildProcess) {
  const logged: string[] = [];
  const looks = new Set<() => void>();
  let printed = '';
  let begun = '';
  child.stdout?.setEncoding('utf8').on('data', text => {
    printed += text;
  });
  child.stderr?.setEncoding('utf8').on('data', text => {
    printed += text;
    const lines = (begun + text).split(/(?<=\n)/);
    begun = lines.at(-1)?.endsWith('\n') ? '' : (lines.pop() ?? '');
    logged.push(...lines);
    for (const look of looks) look();
  });
  const untilLogged = (holds: (lines: readonly string[]) => boolean) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (!holds(logged)) return;
        clearTimeout(late);
        looks.delete(look);
        resolve();
      };
      const late = setTimeout(() => {
        looks.delete(look);
        reject(new Error(`waited in vain for a line of the log: ${logged.slice(-5).join('')}`));
      }, DEADLINE_MS);
      looks.add(look);
      look();
    });
  return { logged, printed: () => printed, untilLogged };
}

function readyLine(child: ChildProcess, closed: Promise<unknown>, printed: () => string): Promise<string> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`not ready in ${DEADLINE_MS} ms: ${printed()}`));
    }, DEADLINE_MS);
    child.on('error', reject);
    child.stdout?.on('data', () => {
      const url = /^assay is serving (https:\S+)$/m.exec(printed())?.[1];
      if (url === undefined) return;
      clearTimeout(late);
      resolve(url);
    });
    closed.then(status => {
      clearTimeout(late);
      reject(new Error(`ended before it was ready (${status}): ${printed()}`));
    });
  });
}
