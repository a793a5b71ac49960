// One machine of the demo's swarm: a dockerd of its own, in its own network, mount, UTS and PID namespaces, so that it has its
// own address, host name, firewall and settings. It can lose its engine, its power or its cable.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type DockerClient, openDocker } from '../engine/docker/client.ts';
import { DemoFailure } from './host.ts';
import { ENVIRONMENT, endOf, kill, type Namespaces, openNamespaces, run } from './namespace.ts';

export type Machine = {
  name: string;
  /** The path of its Docker socket. */
  socket: string;
  address: string;
  docker: DockerClient;
  /** The process ID of dockerd; undefined while it does not run. */
  pid(): number | undefined;
  /** A command line that runs a program on this machine. */
  inside(...command: string[]): string[];
  /** Ends dockerd with SIGKILL. Its containers keep running. */
  kill(): Promise<void>;
  /** Stops dockerd in an orderly way, which ends its containers. */
  stop(): Promise<void>;
  /** Ends every process at once, as when the power fails. The disk stays. */
  powerOff(): Promise<void>;
  /** Starts dockerd, after stopping it if it runs, and the machine itself if it is off. */
  restart(): Promise<void>;
  /** Unplugs its network cable. */
  cut(): Promise<void>;
  restoreLink(): Promise<void>;
  /** Trusts the certificates of a registry at `host:port` that this authority signed. */
  trust(registry: Registry): Promise<void>;
  close(): Promise<void>;
};

export type Registry = { host: string; caFile: string };

export type MachineOptions = {
  name: string;
  /** With the length of the prefix: `10.0.0.1/24`. */
  address: string;
  /** For its disk, its socket and its log. Emptied first. */
  directory: string;
  /** Parent of the cgroups of its containers. */
  cgroup: string;
  /** Where its cable ends: a namespace with a bridge. */
  network: { namespaces: Namespaces; bridge: string };
  /** Further settings of daemon.json. */
  settings: Record<string, unknown>;
  /** Runs each time that dockerd has started, as the node script sets it up. */
  onStart?(docker: DockerClient): Promise<void>;
};

const START_MS = 60_000;
const STOP_MS = 60_000;
const POLL_MS = 20;

// Directories that dockerd and containerd use besides those they are given. With the socket of another containerd in
// /run/containerd, dockerd would use that one.
const PREPARE = `
for directory in /etc/docker /run/containerd /run/docker; do
  mkdir -p $directory
  mount -t tmpfs -o mode=755 tmpfs $directory
done
echo "$2" >/proc/sys/kernel/hostname
`;

/** The Docker socket of a machine with this directory. */
export const socketIn = (directory: string) => join(directory, 'docker.sock');

export async function startMachine(options: MachineOptions): Promise<Machine> {
  const { name, directory, network } = options;
  const socket = socketIn(directory);
  const executionRoot = join(directory, 'run');
  const log = join(directory, 'log');
  const address = options.address.replace(/\/.*/, '');
  const cable = `to-${name}`;
  const docker = openDocker({ dockerHost: `unix://${socket}`, environment: {} });
  const registries = new Map<string, string>();
  let namespaces: Namespaces | undefined;
  let engine: { child: ChildProcess; pid: number } | undefined;
  let isCut = false;

  const on = () => {
    if (!namespaces?.isOpen()) throw new Error(`${name} is off`);
    return namespaces;
  };
  /** A path as the machine sees it. */
  const pathInside = (path: string) => `/proc/${on().pid}/root${path}`;
  const isRunning = () =>
    engine !== undefined && engine.child.exitCode === null && engine.child.signalCode === null;
  const plug = () => run(network.namespaces.enterNetwork('ip', 'link', 'set', cable, isCut ? 'down' : 'up'));

  async function powerOn(): Promise<void> {
    // It is in the memory of a real machine.
    await rm(executionRoot, { recursive: true, force: true });
    namespaces = await openNamespaces(PREPARE, name);
    const { pid } = namespaces;
    await run(
      network.namespaces.enterNetwork(
        ...['ip', 'link', 'add', cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', String(pid)],
      ),
    );
    await run(network.namespaces.enterNetwork('ip', 'link', 'set', cable, 'master', network.bridge));
    await run(namespaces.enterNetwork('ip', 'address', 'add', options.address, 'dev', 'eth0'));
    // Others remember it: it must be the same when the machine is on again.
    const hardware = [
      '02',
      '00',
      ...address.split('.').map(part => Number(part).toString(16).padStart(2, '0')),
    ];
    await run(namespaces.enterNetwork('ip', 'link', 'set', 'eth0', 'address', hardware.join(':'), 'up'));
    await plug();
    await writeFile(
      pathInside('/etc/docker/daemon.json'),
      JSON.stringify({
        hosts: [`unix://${socket}`],
        'data-root': join(directory, 'data'),
        'exec-root': executionRoot,
        pidfile: join(directory, 'pid'),
        'cgroup-parent': `${options.cgroup}/${name}`,
        // systemd does not know processes by their ID in this namespace.
        'exec-opts': ['native.cgroupdriver=cgroupfs'],
        ...options.settings,
      }),
    );
    for (const [host, certificate] of registries) await installCertificate(host, certificate);
  }

  async function startEngine(): Promise<void> {
    // A killed engine leaves them behind, and they would prevent the next start: their process IDs may be used again.
    for (const file of [join(directory, 'pid'), join(executionRoot, 'containerd/containerd.pid'), socket])
      await rm(file, { force: true });
    // As on a real node: see RESTARTS in ../cli/node-script.ts.
    await rm(join(directory, 'data/network/files/local-kv.db'), { force: true });
    const [program = '', ...args] = on().enter('dockerd');
    const output = openSync(log, 'a');
    const child = spawn(program, args, {
      // dockerd ends a containerd that does not respond, and lets it write its stacks to a temporary file before.
      env: { ...ENVIRONMENT, TMPDIR: directory },
      stdio: ['ignore', output, output],
      detached: true,
    });
    closeSync(output);
    const state = { ended: false };
    const ended = endOf(child).then(() => {
      state.ended = true;
    });
    const until = performance.now() + START_MS;
    const responds = () =>
      docker
        .call('ping', docker => docker.ping(), { deadlineMs: 1_000 })
        .then(
          () => true,
          () => false,
        );
    while (!(await responds())) {
      if (state.ended || performance.now() > until) {
        const last = readFileSync(log, 'utf8').trim().split('\n').slice(-5).join('\n');
        throw new DemoFailure(`dockerd of ${name} did not start:\n${last}`);
      }
      await Promise.race([delay(POLL_MS), ended]);
    }
    engine = { child, pid: await childOf(child.pid as number) };
    await options.onStart?.(docker);
  }

  /** Resolves when dockerd and its containerd are gone. */
  async function end(signal: NodeJS.Signals): Promise<void> {
    if (!engine || !isRunning()) return;
    const { child, pid } = engine;
    const containerd = await readFile(join(executionRoot, 'containerd/containerd.pid'), 'utf8').catch(
      () => '',
    );
    kill(pid, signal);
    const timer = setTimeout(() => kill(pid, 'SIGKILL'), STOP_MS);
    await endOf(child);
    clearTimeout(timer);
    engine = undefined;
    const until = performance.now() + STOP_MS;
    while (containerd !== '' && existsSync(pathInside(`/proc/${containerd.trim()}`))) {
      if (performance.now() > until) throw new Error(`containerd of ${name} does not end`);
      await delay(POLL_MS);
    }
  }

  async function installCertificate(host: string, certificate: string): Promise<void> {
    const file = pathInside(join('/etc/docker/certs.d', host, 'ca.crt'));
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, certificate);
  }

  const machine: Machine = {
    name,
    socket,
    address,
    docker,
    pid: () => (isRunning() ? engine?.pid : undefined),
    inside: (...command) => on().enter(...command),
    kill: () => end('SIGKILL'),
    stop: () => end('SIGTERM'),
    async powerOff() {
      const child = engine?.child;
      engine = undefined;
      if (!namespaces) return;
      await namespaces.close();
      // The kernel deletes it with the namespace, but not at once.
      await run(network.namespaces.enterNetwork('ip', 'link', 'delete', cable)).catch(() => {});
      if (child) await endOf(child);
    },
    async restart() {
      await end('SIGTERM');
      if (!namespaces?.isOpen()) await powerOn();
      await startEngine();
    },
    async cut() {
      isCut = true;
      await plug();
    },
    async restoreLink() {
      isCut = false;
      await plug();
    },
    async trust({ host, caFile }) {
      const certificate = await readFile(caFile, 'utf8');
      registries.set(host, certificate);
      await installCertificate(host, certificate);
    },
    async close() {
      docker.close();
      await machine.powerOff();
      await rm(directory, { recursive: true, force: true });
    },
  };
  try {
    await mkdir(directory, { recursive: true });
    // Not the directory itself: it may be a disk.
    for (const name of await readdir(directory)) await rm(join(directory, name), { recursive: true });
    await powerOn();
    await startEngine();
    return machine;
  } catch (error) {
    await machine.close();
    throw error;
  }
}

/** nsenter runs its command as a child, because a process cannot change its own PID namespace. */
async function childOf(pid: number): Promise<number> {
  return Number((await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).trim());
}
