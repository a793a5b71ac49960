// The machines of a Docker Swarm on one host, for the demo and for tests: each has its own dockerd and its own network, and is
// set up as the node script sets up a real one. This process reaches the manager through its socket; the machines reach this
// process at `hostAddress`. They reach nothing else.
import { existsSync, globSync } from 'node:fs';
import { rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  CLOSED_NETWORK,
  NODE_LABEL,
  OPEN_NETWORK,
  SLOT_RESOURCE,
  type SwarmNetwork,
  TASK_LABEL,
} from '../domain/swarm.ts';
import type { DockerClient } from '../engine/docker/client.ts';
import { DemoFailure } from './host.ts';
import { type Machine, type Registry, socketIn, startMachine } from './machine.ts';
import { type Namespaces, openNamespaces, run } from './namespace.ts';

export type SwarmMachine = Machine & { nodeId: string };

export type SwarmMachines = {
  /** The first one is the manager. */
  machines: SwarmMachine[];
  managerSocket: string;
  /** Of the host on the network of the machines. */
  hostAddress: string;
  /** Another address on that network, which belongs neither to a machine nor to the host. */
  outsideAddress: string;
  /** A command line that runs a program on the machine with that address. */
  outside(...command: string[]): string[];
  /** Adds a machine to the swarm. */
  add(): Promise<SwarmMachine>;
  /** Ends every process, and removes the networks and the machines' directories. */
  close(): Promise<void>;
};

export type SwarmMachinesOptions = {
  count?: number;
  /** How many containers of jobs each machine runs at once. */
  slots?: number;
  /** For the disks and sockets of the machines. Paths of sockets must be short: about 80 characters here. */
  directory: string;
  /** A registry whose certificate they trust. See also `trust` of a machine. */
  registry?: Registry;
  /** How often machines report to the manager. A silent one counts as down after three times this. */
  heartbeatMs?: number;
};

const BRIDGE = 'bridge';
const OUTSIDE_HOST = 253;
const HOST = 254;
/** Private addresses. The first /24 of them that the host does not use is taken. */
const RANGES = ['10.237', '172.28', '192.168'];
const SWARM_PORT = 2377;
/** Docker's default of 10,000 lets the manager's log of changes grow to hundreds of megabytes. */
const SNAPSHOT_INTERVAL = 500;
const NODE_MS = 30_000;
const POLL_MS = 50;
const LINKS = 'assay-sw';
const CGROUPS = 'assay-machines-';

export async function startSwarmMachines(options: SwarmMachinesOptions): Promise<SwarmMachines> {
  const { count = 3, slots = 2, directory, registry } = options;
  if (process.getuid?.() !== 0)
    throw new DemoFailure(
      'the machines of a swarm need root: each has its own dockerd, network, mounts and firewall',
    );
  await removeOldCgroups();
  const network = await openNetwork();
  const started: Machine[] = [];
  const machines: SwarmMachine[] = [];

  async function start(index: number): Promise<Machine> {
    const name = nameOf(index);
    const machine = await startMachine({
      name,
      address: `${network.prefix}.${index + 1}/24`,
      directory: join(directory, name),
      cgroup: `/${CGROUPS}${network.id}`,
      network: { namespaces: network.namespaces, bridge: BRIDGE },
      settings: {
        labels: [`${NODE_LABEL}=yes`],
        'node-generic-resources': [`${SLOT_RESOURCE}=${slots}`],
        'no-new-privileges': true,
      },
      async onStart(docker) {
        for (const one of [OPEN_NETWORK, CLOSED_NETWORK]) await createNodeNetwork(docker, one);
        // What the swarm gave up while this machine was away.
        const filters = { label: [TASK_LABEL] };
        await docker.call('prune', docker => docker.pruneContainers({ filters }));
      },
    });
    started.push(machine);
    if (registry) await machine.trust(registry);
    return machine;
  }

  const swarm: SwarmMachines = {
    machines,
    managerSocket: socketIn(join(directory, nameOf(0))),
    hostAddress: `${network.prefix}.${HOST}`,
    outsideAddress: `${network.prefix}.${OUTSIDE_HOST}`,
    outside: network.namespaces.enter,
    async add() {
      const machine = await joinSwarm(await start(machines.length), machines[0] as SwarmMachine);
      machines.push(machine);
      return machine;
    },
    async close() {
      await Promise.all(started.map(machine => machine.close()));
      await network.close();
      await removeCgroups(`${CGROUPS}${network.id}`);
    },
  };
  try {
    const results = await Promise.allSettled(Array.from({ length: count }, (_, index) => start(index)));
    const [first, ...others] = results.map(result => {
      if (result.status === 'rejected') throw result.reason;
      return result.value;
    });
    const manager = await initializeSwarm(first as Machine, options.heartbeatMs);
    machines.push(manager, ...(await Promise.all(others.map(one => joinSwarm(one, manager)))));
    return swarm;
  } catch (error) {
    await swarm.close();
    throw error;
  }
}

const nameOf = (index: number) => `machine-${index + 1}`;

/** The config-only network of a node, which swarm-wide networks are made of. The manager cannot create it. */
async function createNodeNetwork({ call }: DockerClient, network: SwarmNetwork): Promise<void> {
  await call('create a network', docker =>
    docker.createNetwork({
      Name: network.config,
      ConfigOnly: true,
      Options: {
        'com.docker.network.bridge.name': network.name,
        'com.docker.network.bridge.enable_icc': 'false',
      },
    } as never),
  );
}

async function initializeSwarm(machine: Machine, heartbeatMs = 5_000): Promise<SwarmMachine> {
  const { call } = machine.docker;
  await call('initialize a swarm', docker =>
    docker.swarmInit({
      ListenAddr: `${machine.address}:${SWARM_PORT}`,
      AdvertiseAddr: machine.address,
      Spec: {
        Raft: { SnapshotInterval: SNAPSHOT_INTERVAL },
        Dispatcher: { HeartbeatPeriod: heartbeatMs * 1_000_000 },
      },
    }),
  );
  return await identify(machine, machine);
}

async function joinSwarm(machine: Machine, manager: Machine): Promise<SwarmMachine> {
  const { JoinTokens } = (await manager.docker.call('inspect a swarm', docker => docker.swarmInspect())) as {
    JoinTokens: { Worker: string };
  };
  await machine.docker.call('join a swarm', docker =>
    docker.swarmJoin({
      ListenAddr: `${machine.address}:${SWARM_PORT}`,
      AdvertiseAddr: machine.address,
      RemoteAddrs: [`${manager.address}:${SWARM_PORT}`],
      JoinToken: JoinTokens.Worker,
    }),
  );
  return await identify(machine, manager);
}

/** Resolves when the manager has the machine as a node that is ready. */
async function identify(machine: Machine, manager: Machine): Promise<SwarmMachine> {
  const { Swarm } = (await machine.docker.call('info', docker => docker.info())) as {
    Swarm: { NodeID: string };
  };
  const until = performance.now() + NODE_MS;
  for (;;) {
    const nodes = (await manager.docker.call('list nodes', docker => docker.listNodes())) as {
      ID: string;
      Status: { State: string };
    }[];
    const isReady = nodes.some(({ ID, Status }) => ID === Swarm.NodeID && Status.State === 'ready');
    if (isReady) return Object.assign(machine, { nodeId: Swarm.NodeID });
    if (performance.now() > until)
      throw new DemoFailure(`${machine.name} did not become a node of the swarm`);
    // There is no event for it.
    await delay(POLL_MS);
  }
}

type MachineNetwork = { id: number; prefix: string; namespaces: Namespaces; close(): Promise<void> };

/** A namespace with the bridge that all cables end at, and a cable from there to the host. */
async function openNetwork(): Promise<MachineNetwork> {
  const namespaces = await openNamespaces(`ip link add ${BRIDGE} type bridge; ip link set ${BRIDGE} up`);
  try {
    const { id, prefix } = await claimNetwork(namespaces);
    const link = `${LINKS}${id}`;
    await run(['ip', 'address', 'add', `${prefix}.${HOST}/24`, 'dev', link]);
    await run(['ip', 'link', 'set', link, 'up']);
    const { enterNetwork } = namespaces;
    await run(enterNetwork('ip', 'address', 'add', `${prefix}.${OUTSIDE_HOST}/24`, 'dev', BRIDGE));
    await run(enterNetwork('ip', 'link', 'set', 'host', 'master', BRIDGE, 'up'));
    const close = async () => {
      // The kernel deletes it with the namespace, but not at once.
      await run(['ip', 'link', 'delete', link]).catch(() => {});
      await namespaces.close();
    };
    return { id, prefix, namespaces, close };
  } catch (error) {
    await namespaces.close();
    throw error;
  }
}

/**
 * Finds addresses that the host does not use, and creates the host's end of the cable, called `host` at the bridge. Of
 * several processes only one can create a link of that name; the kernel deletes it when the process ends.
 */
async function claimNetwork({ pid }: Namespaces): Promise<{ id: number; prefix: string }> {
  const used = usedRanges(await run(['ip', '-4', 'route', 'show', 'table', 'all']));
  for (const [range, base] of RANGES.entries())
    for (let third = 0; third < 256; third++) {
      const prefix = `${base}.${third}`;
      const id = range * 256 + third;
      const [start, end] = boundsOf(`${prefix}.0/24`);
      if (used.some(([from, to]) => from <= end && to >= start)) continue;
      try {
        const peer = ['peer', 'name', 'host', 'netns', String(pid)];
        await run(['ip', 'link', 'add', `${LINKS}${id}`, 'type', 'veth', ...peer]);
        return { id, prefix };
      } catch (error) {
        if (!/File exists/.test((error as Error).message)) throw error;
      }
    }
  throw new DemoFailure('this host uses all private addresses that the machines of a swarm could have');
}

type Bounds = readonly [from: number, to: number];

/** The ranges of all routes but the default route. */
function usedRanges(routes: string): Bounds[] {
  return [...routes.matchAll(/^(?:[a-z]+ )?(\d+\.\d+\.\d+\.\d+(?:\/\d+)?) /gm)]
    .map(([, range]) => boundsOf(range as string))
    .filter(([from, to]) => to - from < 2 ** 32 - 1);
}

function boundsOf(range: string): Bounds {
  const [address = '', length = '32'] = range.split('/');
  const from = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  return [from, from + 2 ** (32 - Number(length)) - 1];
}

/** Cgroups of machines whose process ended without removing them. */
async function removeOldCgroups(): Promise<void> {
  for (const path of globSync(`/sys/fs/cgroup/{,*/}${CGROUPS}*`)) {
    const id = path.slice(path.lastIndexOf('-') + 1);
    if (!existsSync(`/sys/class/net/${LINKS}${id}`)) await removeCgroups(`${CGROUPS}${id}`);
  }
}

/** In each hierarchy of version 1, or in the only one of version 2. */
async function removeCgroups(name: string): Promise<void> {
  const directories = globSync([`/sys/fs/cgroup/{,*/}${name}`, `/sys/fs/cgroup/{,*/}${name}/**/`]);
  for (const directory of directories.toSorted((one, other) => other.length - one.length))
    for (let attempts = 100; ; attempts--) {
      try {
        await rmdir(directory);
        break;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (code === 'ENOENT') break;
        // Processes that were killed count until the kernel has removed them.
        if (code !== 'EBUSY' || attempts === 0) throw error;
        await delay(POLL_MS);
      }
    }
}
