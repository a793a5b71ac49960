// A private Docker Engine that tests may kill, stop and fill: its own directories in memory, socket and bridge, and no
// rules in the host's firewall, or its own network namespace with its own firewall. It leaves nothing behind.
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pollUntil } from './poll.ts';

export type PrivateEngine = {
  dockerHost: string;
  /** Where it stores images, containers and volumes: its own file system of this size. */
  dataRoot: string;
  docker(...args: string[]): Promise<string>;
  /** A command line that runs a program in the network namespace of the engine. */
  inNetwork(...command: string[]): string[];
  /** The same, also with the file systems that the engine sees, if it has its own network namespace. */
  inside(...command: string[]): string[];
  start(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** Sends the signal and resolves when the engine has ended. */
  end(signal: NodeJS.Signals): Promise<void>;
  close(): Promise<void>;
};

const START_MS = 60_000;
const CALL_MS = 60_000;
/** For names and addresses that are unique within this process. */
let made = 0;

/** Its data goes to its own file system of so many bytes, or to an existing directory. */
export async function createPrivateEngine(
  place: ({ bytes: number } | { root: string }) & {
    /** In its own network namespace, where it sets firewall rules as on any host. */
    ownNetwork?: boolean;
    /** Additional arguments of dockerd. */
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
      if (!(await pollUntil(START_MS, answers, holds => holds)))
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
      // Waits for containerd too: the next engine would use one that is just stopping.
      await endContainerd(directory);
      // A killed engine leaves its PID file behind, which would prevent the next start.
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

/** Stops containerd, which may outlive a killed engine. */
async function endContainerd(directory: string): Promise<void> {
  const commandOf = (pid: string) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    } catch {
      // It has ended.
      return '';
    }
  };
  const pidFile = join(directory, 'exec/containerd/containerd.pid');
  if (!existsSync(pidFile)) return;
  const pid = readFileSync(pidFile, 'utf8').trim();
  try {
    if (commandOf(pid).includes(directory)) process.kill(Number(pid), 'SIGKILL');
  } catch (error) {
    // It ends together with its engine.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
  await pollUntil(
    CALL_MS,
    () => commandOf(pid),
    command => command === '',
    20,
  );
  // Without a parent that reaps it, its PID would look alive for ever.
  rmSync(pidFile);
}

/** The innermost first. */
const mountsUnder = (directory: string) =>
  readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map(line => line.split(' ')[1] ?? '')
    .filter(path => path.startsWith(`${directory}/`))
    .toSorted((one, other) => other.length - one.length);
