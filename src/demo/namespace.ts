// Linux namespaces for the demo's machines. They live as long as this process: when it ends, for whatever reason, the kernel
// ends every process in them and removes their mounts and network interfaces.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { DemoFailure } from './host.ts';

export type Namespaces = {
  /** The process that holds them. It is the first one of their PID namespace. */
  pid: number;
  /** A command line that runs a program in all of them. */
  enter(...command: string[]): string[];
  /** The same in the network namespace alone. */
  enterNetwork(...command: string[]): string[];
  isOpen(): boolean;
  /** Ends every process in them. */
  close(): Promise<void>;
};

const START_MS = 30_000;
const COMMAND_MS = 20_000;

/** dockerd, ip and iptables are there, which a PATH of another user may lack. */
export const ENVIRONMENT = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

// The first line: the ID of this process outside of the namespaces, as the outer /proc has it. `cat` ends when this process
// loses its parent. Meanwhile the shell reaps processes that lost theirs.
const HOLD = `
set -e
read -r pid rest </proc/self/stat
mount -t proc proc /proc
ip link set lo up
[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
eval "$1"
echo "$pid"
exec 3<&0
cat <&3 >/dev/null &
wait $!
`;

/** Network, mount, UTS and PID namespaces. `script` prepares them, with its arguments as $2 and so on. */
export async function openNamespaces(script: string, ...args: string[]): Promise<Namespaces> {
  const holder = spawn(
    'unshare',
    [
      ...['--net', '--mount', '--uts', '--pid', '--fork', '--kill-child'],
      ...['sh', '-c', HOLD, 'sh', script, ...args],
    ],
    { env: ENVIRONMENT, stdio: 'pipe', detached: true },
  );
  const ended = endOf(holder);
  let messages = '';
  holder.stderr.on('data', chunk => {
    messages += chunk;
  });
  holder.stdin.on('error', () => {});
  const timer = setTimeout(() => holder.kill('SIGKILL'), START_MS);
  const lines = createInterface({ input: holder.stdout });
  const [line] = (await Promise.race([once(lines, 'line'), ended.then(() => [])])) as string[];
  clearTimeout(timer);
  const pid = Number(line);
  if (!pid) throw new DemoFailure(`a network of its own could not be made: ${messages.trim()}`);
  return {
    pid,
    enter: (...command) => ['nsenter', `--target=${pid}`, '--net', '--mount', '--uts', '--pid', ...command],
    enterNetwork: (...command) => ['nsenter', `--target=${pid}`, '--net', ...command],
    isOpen: () => holder.exitCode === null && holder.signalCode === null,
    async close() {
      kill(pid, 'SIGKILL');
      await ended;
    },
  };
}

/** Runs a command line to its end and returns its output. */
export async function run([program = '', ...args]: string[]): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(program, args, { timeout: COMMAND_MS, env: ENVIRONMENT });
    return stdout.trim();
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    throw new Error(`${program} failed: ${stderr?.trim() || message}`);
  }
}

/** Resolves when it has exited or could not be started. */
export async function endOf(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await Promise.race([once(child, 'exit'), new Promise(resolve => child.once('error', resolve))]);
}

export function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    // It has ended.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
