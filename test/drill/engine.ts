// A Docker Engine of a drill's own, which may be killed, stopped and filled: its own directories in memory, its own socket,
// its own bridge, no rules in the host's firewall; or its own network with a firewall of its own, which may be flushed.
// Nothing of it is left.
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { lookUntil } from './look.ts';

export type PrivateEngine = {
  dockerHost: string;
  /** Where its images, containers and volumes are: a file system of its own, of this size. */
  dataRoot: string;
  docker(...args: string[]): Promise<string>;
  /** The command line that runs a program in the network which the engine takes for the host's. */
  inNetwork(...command: string[]): string[];
  /** And with the file systems that the engine sees: its own view of them, where it has a network of its own. */
  inside(...command: string[]): string[];
  start(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** Ends it with that signal and resolves when it is gone. */
  end(signal: NodeJS.Signals): Promise<void>;
  close(): Promise<void>;
};

const START_MS = 60_000;
const CALL_MS = 60_000;
/** For names and addresses that no other engine of this process has. */
let made = 0;

/** What it keeps goes to a file system of its own, of so many bytes, or to a directory that is there. */
export async function createPrivateEngine(
  place: ({ bytes: number } | { root: string }) & {
    /** In a network namespace of its own, where it sets its firewall rules as on any host. */
    ownNetwork?: boolean;
    /** Further arguments of dockerd. */
    flags?: readonly string[];
  },
): Promise<PrivateEngine> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-engine-'));
  const dataRoot = 'root' in place ? place.root : join(directory, 'root');
  const socket = join(directory, 'socket');
  const dockerHost = `unix://${socket}`;
  const number = (process.pid + made) % 250;
  const bridge = `drill${(process.pid + made) % 100_000}`;
  made += 1;
  mkdirSync(dataRoot, { recursive: true });
  if ('bytes' in place)
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${place.bytes}`, 'tmpfs', dataRoot]);
  const { ownNetwork = false, flags = [] } = place;
  const namespace = `assay-${bridge}`;
  const inNetwork = (...command: string[]) =>
    ownNetwork ? ['nsenter', `--net=/run/netns/${namespace}`, ...command] : command;
  if (ownNetwork) {
    execFileSync('ip', ['netns', 'add', namespace]);
    execFileSync('ip', ['-n', namespace, 'link', 'set', 'lo', 'up']);
  } else {
    execFileSync('ip', ['link', 'add', 'name', bridge, 'type', 'bridge']);
    execFileSync('ip', ['addr', 'add', `10.213.${number}.1/24`, 'dev', bridge]);
    execFileSync('ip', ['link', 'set', bridge, 'up']);
  }
  let daemon: ChildProcess | undefined;

  const docker = async (...args: string[]) => {
    const { stdout } = await promisify(execFile)('docker', ['--host', dockerHost, ...args], {
      timeout: CALL_MS,
    });
    return stdout.trim();
  };
  const answers = () =>
    docker('version').then(
      () => true,
      () => false,
    );

  const engine: PrivateEngine = {
    dockerHost,
    dataRoot,
    docker,
    inNetwork,
    inside: (...command) => ['nsenter', '--mount', '--net', `--target=${daemon?.pid}`, ...command],
    async start() {
      const log = openSync(join(directory, 'log'), 'a');
      const [program = '', ...args] = inNetwork(
        ...(ownNetwork ? ['unshare', '--mount'] : []),
        'dockerd',
        ...['--host', dockerHost, '--data-root', dataRoot, '--exec-root', join(directory, 'exec')],
        ...['--pidfile', join(directory, 'pid')],
        ...(ownNetwork
          ? []
          : ['--bridge', bridge, '--iptables=false', '--ip6tables=false', '--ip-masq=false']),
        ...flags,
      );
      daemon = spawn(program, args, { stdio: ['ignore', log, log], detached: true });
      closeSync(log);
      if (!(await lookUntil(START_MS, answers, holds => holds)))
        throw new Error(
          `the engine did not start: ${readFileSync(join(directory, 'log'), 'utf8').slice(-2_000)}`,
        );
    },
    signal: signal => void daemon?.kill(signal),
    async end(signal) {
      if (!daemon || daemon.exitCode !== null || daemon.signalCode !== null) return;
      const ended = once(daemon, 'exit');
      daemon.kill(signal);
      await ended;
      // Its other half goes too, and is waited for: the next engine would take one that is just ending for its own.
      await endContainerd(directory);
      // A killed engine leaves the name of its process behind, which keeps the next one from starting.
      rmSync(join(directory, 'pid'), { force: true });
    },
    async close() {
      engine.signal('SIGCONT');
      if (await answers()) {
        const left = (await docker('ps', '-aq')).split('\n').filter(Boolean);
        if (left.length > 0) await docker('rm', '-f', ...left);
      }
      await engine.end('SIGTERM');
      for (const mounted of [...mountsUnder(directory), ...mountsUnder(dataRoot)])
        execFileSync('umount', ['-l', mounted]);
      execFileSync('ip', ownNetwork ? ['netns', 'delete', namespace] : ['link', 'delete', bridge]);
      rmSync(directory, { recursive: true, force: true });
    },
  };
  try {
    await engine.start();
    return engine;
  } catch (error) {
    await engine.close();
    throw error;
  }
}

/** The part of the engine that may outlive it when it is killed. */
async function endContainerd(directory: string): Promise<void> {
  const commandOf = (pid: string) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    } catch {
      // It is gone.
      return '';
    }
  };
  const pidFile = join(directory, 'exec/containerd/containerd.pid');
  if (!existsSync(pidFile)) return;
  const pid = readFileSync(pidFile, 'utf8').trim();
  try {
    if (commandOf(pid).includes(directory)) process.kill(Number(pid), 'SIGKILL');
  } catch (error) {
    // It ends with its engine, by itself.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
  await lookUntil(
    CALL_MS,
    () => commandOf(pid),
    command => command === '',
    20,
  );
  // Where nobody collects it, its number looks alive for ever.
  rmSync(pidFile);
}

/** The innermost first. */
const mountsUnder = (directory: string) =>
  readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map(line => line.split(' ')[1] ?? '')
    .filter(path => path.startsWith(`${directory}/`))
    .toSorted((one, other) => other.length - one.length);
