// The networks of containers on the nodes of a swarm, and what protects them: see guard.ts.
import { chmod, chown, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { RULES_SECONDS } from '../../domain/container/remote-script.ts';
import {
  CLOSED_NETWORK,
  NODE_LABEL,
  OPEN_NETWORK,
  type SwarmNetwork,
  sharedPaths,
} from '../../domain/swarm.ts';
import { isRefused, unlessRefused } from '../docker/client.ts';
import type { EngineContext } from '../docker/create-container.ts';
import { EngineRefused, EngineUnavailable, type Network, OWN_BRIDGE } from '../engine.ts';
import {
  ensureServices,
  findOtherInstance,
  guardSpec,
  holderSpec,
  listNodeServices,
  listNodeTasks,
  type NodeImage,
} from './guard.ts';
import {
  ADDRESSES_FILE,
  type FileOwner,
  markerFile,
  NOBODY,
  REMOVING_FILE,
  removedFile,
} from './guard-script.ts';
import type { Node } from './tasks.ts';

export type SwarmNetworkOptions = {
  /** The setting NETWORK: `bridge` or `none`. */
  network: string;
  /** The setting SHARED. */
  shared: string;
  /** With a shell, iptables and ip. */
  image(): Promise<NodeImage>;
  /** Called when something that protects containers was missing on the manager. */
  onRulesRestored?: ((network: string) => void) | undefined;
};

export type SwarmNetworks = Omit<Network, 'removeNetworks'> & {
  /**
   * Resolves when the nodes have been told to protect the network, and those that are new had time to do so; at once if they
   * were told a moment ago.
   */
  protect(network: string): ReturnType<Network['protectNetwork']>;
  /** Also returns the names of nodes whose rules are still there, because their guard did not respond. */
  removeNetworks(): Promise<{ names: string[]; rules: number; unreached: string[] }>;
  /** Ends every wait. */
  close(): void;
};

/** A check that is younger than this is not repeated. Each container checks the rules of its node itself. */
const CHECK_AGE_MS = 3_000;
/** A container does not wait for a check if the last one is younger than this. The check is repeated meanwhile. */
const RECENT_MS = 30_000;
/** How long the guard of a new node has for its first report. */
const FIRST_REPORT_MS = 20_000;
const REMOVAL_MS = 30_000;
const POLL_MS = 100;

type SwarmNode = Node & { ManagerStatus?: { Addr?: string } };

export function createSwarmNetwork(context: EngineContext, options: SwarmNetworkOptions): SwarmNetworks {
  const { call, instance } = context;
  const directory = sharedPaths(options.shared).nodes;
  const inDirectory = (name: string) => join(directory, name);
  /** Nodes whose guard has reported, or had time to. */
  const awaited = new Set<string>();
  const closed = new AbortController();
  const wait = () =>
    delay(POLL_MS, undefined, { signal: closed.signal }).catch(() => {
      throw new EngineUnavailable('The connection to Docker was closed.');
    });
  let checkedAt = Number.NEGATIVE_INFINITY;
  let checking: Promise<'intact' | 'restored'> | undefined;
  let isFirstCheck = true;

  const listNodes = () => call('list nodes', docker => docker.listNodes()) as Promise<SwarmNode[]>;

  const isFresh = () => performance.now() - checkedAt < CHECK_AGE_MS;

  function check(): Promise<'intact' | 'restored'> {
    if (isFresh()) return Promise.resolve('intact');
    checking ??= checkNow().finally(() => {
      checking = undefined;
    });
    return checking;
  }

  async function protect(): Promise<'intact' | 'restored'> {
    if (performance.now() - checkedAt > RECENT_MS) return check();
    // If it fails, `checkedAt` stays as it is, and a later start waits for the next check.
    check().catch(() => {});
    return 'intact';
  }

  async function checkNow(): Promise<'intact' | 'restored'> {
    const network = networkOf(options.network);
    const isNew = await createIfMissing(context, network);
    const owner = await prepareDirectory(directory);
    const nodes = await listNodes();
    await writeAddresses(nodes);
    const image = await options.image();
    const specs = [guardSpec(instance, directory, owner, image), holderSpec(instance, network, image)];
    const isChanged = await ensureServices(context, specs, image);
    await waitForReports(nodes);
    checkedAt = performance.now();
    const isRestored = (isNew || isChanged) && !isFirstCheck;
    isFirstCheck = false;
    if (isRestored) options.onRulesRestored?.(network.name);
    return isRestored ? 'restored' : 'intact';
  }

  /** Guards of all nodes read this list. Reports of nodes that left are removed, because their addresses count too. */
  async function writeAddresses(nodes: SwarmNode[]): Promise<void> {
    const content = [...new Set([...addressesOf(nodes), ...ownAddresses()])].map(one => `${one}\n`).join('');
    const file = inDirectory(ADDRESSES_FILE);
    const current = await readFile(file, 'utf8').catch(() => undefined);
    if (content !== current) {
      await writeFile(`${file}.new`, content);
      // Root of a node may read only what everybody may read.
      await chmod(`${file}.new`, 0o644);
      await rename(`${file}.new`, file);
    }
    const known = new Set(nodes.map(({ ID }) => ID));
    for (const name of await readdir(directory)) {
      if (name === ADDRESSES_FILE) continue;
      if (name === REMOVING_FILE || !known.has(name.replace(/\..*/, '')))
        await rm(inDirectory(name), { force: true });
    }
  }

  async function waitForReports(nodes: SwarmNode[]): Promise<void> {
    const isAwaited = (node: SwarmNode) => isUsable(node) && !awaited.has(node.ID);
    const deadlineAt = performance.now() + FIRST_REPORT_MS;
    for (const { ID } of nodes.filter(isAwaited)) {
      while (performance.now() < deadlineAt) {
        const marker = await stat(inDirectory(markerFile(ID))).catch(() => undefined);
        if (marker && Date.now() - marker.mtimeMs < RULES_SECONDS * 1_000) break;
        await wait();
      }
      awaited.add(ID);
    }
  }

  const listNetworks = async () => {
    const found: string[] = [];
    if (await findOtherInstance(context)) return found;
    for (const { name } of [OPEN_NETWORK, CLOSED_NETWORK])
      if (await findNetwork(context, name)) found.push(name);
    return found;
  };

  async function removeNetworks() {
    const names = await listNetworks();
    const services = await listNodeServices(context);
    if (names.length + services.length === 0) return { names, rules: 0, unreached: [] };
    const { rules, unreached } = await removeRules();
    for (const { ID } of await listNodeServices(context))
      await unlessRefused([404], () => call('remove a service', docker => docker.getService(ID).remove()));
    const deadlineAt = performance.now() + REMOVAL_MS;
    // Docker responds before the containers have ended, and refuses to remove their network until then.
    const retry = async (isDone: () => Promise<boolean>) => {
      while (!(await isDone()) && performance.now() < deadlineAt) await wait();
    };
    await retry(async () => {
      const reachable = new Set((await listNodes()).filter(isReachable).map(({ ID }) => ID));
      return !(await listNodeTasks(context)).some(({ NodeID }) => reachable.has(NodeID ?? ''));
    });
    for (const name of names) {
      let refusal: unknown;
      await retry(async () => {
        refusal = await call('remove a network', docker => docker.getNetwork(name).remove()).then(
          () => undefined,
          error => {
            if (!(error instanceof EngineRefused)) throw error;
            return isRefused(error, 404) ? undefined : error;
          },
        );
        return refusal === undefined;
      });
      if (refusal) throw refusal;
    }
    for (const name of await readdir(directory).catch(() => [])) await rm(inDirectory(name), { force: true });
    checkedAt = Number.NEGATIVE_INFINITY;
    awaited.clear();
    return { names, rules, unreached };
  }

  /** Asks the guards to delete their rules, and waits for those of nodes that respond. */
  async function removeRules(): Promise<{ rules: number; unreached: string[] }> {
    const owner = await prepareDirectory(directory);
    const nodes = await listNodes();
    for (const { ID } of nodes) await rm(inDirectory(removedFile(ID)), { force: true });
    await writeFile(inDirectory(REMOVING_FILE), '');
    const image = await options.image();
    await ensureServices(context, [guardSpec(instance, directory, owner, image)], image);
    const deadlineAt = performance.now() + FIRST_REPORT_MS;
    let rules = 0;
    const unreached: string[] = [];
    for (const node of nodes) {
      const read = () => readFile(inDirectory(removedFile(node.ID)), 'utf8').catch(() => undefined);
      let count = await read();
      while (count === undefined && isReachable(node) && performance.now() < deadlineAt) {
        await wait();
        count = await read();
      }
      rules += Number(count ?? 0);
      if (count === undefined && isOurs(node)) unreached.push(node.Description.Hostname);
    }
    return { rules, unreached };
  }

  return {
    async ensureNetwork() {
      const network = networkOf(options.network);
      if (!isFresh()) await createIfMissing(context, network);
      return network.name;
    },
    protect,
    protectNetwork: check,
    listNetworks,
    removeNetworks,
    close: () => closed.abort(),
  };
}

function networkOf(setting: string): SwarmNetwork {
  if (setting === OWN_BRIDGE) return OPEN_NETWORK;
  if (setting === 'none') return CLOSED_NETWORK;
  throw new EngineRefused(
    `NETWORK=${setting} is not possible with ENGINE=swarm: set it to bridge or none, which every node has.`,
  );
}

/** True if it was missing. */
async function createIfMissing(context: EngineContext, network: SwarmNetwork): Promise<boolean> {
  const { call } = context;
  const other = await findOtherInstance(context);
  if (other !== undefined)
    throw new EngineRefused(
      `This swarm is used by another Assay server (instance ${other}). If that one no longer exists, remove its services (docker service ls) and this one can use the swarm.`,
    );
  if (await findNetwork(context, network.name)) return false;
  if (!(await findNetwork(context, network.config)))
    throw new EngineRefused(
      `The manager of the swarm has no network ${network.config}: run the script there that assay node script prints.`,
    );
  try {
    await call('create a network', docker =>
      docker.createNetwork({
        Name: network.name,
        Driver: 'bridge',
        Scope: 'swarm',
        ConfigFrom: { Network: network.config },
        Internal: network.isInternal,
        CheckDuplicate: true,
      } as never),
    );
  } catch (error) {
    // Another process created it at this moment. The status is 409 or 500.
    if (!(error instanceof EngineRefused && (await findNetwork(context, network.name)))) throw error;
  }
  return true;
}

async function findNetwork({ call }: EngineContext, name: string) {
  const find = () => call('inspect a network', docker => docker.getNetwork(name).inspect());
  return await unlessRefused([404], find);
}

/** The guard writes to it as its owner. NFS treats root as nobody, so a server that runs as root gives it to nobody. */
async function prepareDirectory(directory: string): Promise<FileOwner> {
  await mkdir(directory, { recursive: true });
  const { uid, gid, mode } = await stat(directory);
  // Guards list it, and containers of jobs read it.
  if ((mode & 0o777) !== 0o755) await chmod(directory, 0o755);
  if (uid !== 0 || process.getuid?.() !== 0) return { uid, gid };
  await chown(directory, NOBODY, NOBODY);
  return { uid: NOBODY, gid: NOBODY };
}

const isOurs = ({ Description }: SwarmNode) => Description.Engine.Labels?.[NODE_LABEL] === 'yes';
const isReachable = (node: SwarmNode) => isOurs(node) && node.Status.State === 'ready';
const isUsable = (node: SwarmNode) => isReachable(node) && node.Spec.Availability === 'active';

const IPV4 = /^\d+\.\d+\.\d+\.\d+$/;

/** Containers have no IPv6. */
function addressesOf(nodes: SwarmNode[]): string[] {
  return nodes
    .flatMap(({ Status, ManagerStatus }) => [
      Status.Addr ?? '',
      (ManagerStatus?.Addr ?? '').replace(/:\d+$/, ''),
    ])
    .filter(address => IPV4.test(address) && address !== '0.0.0.0')
    .toSorted();
}

/** Interfaces that Docker makes. Their addresses lead to no other machine. */
const DOCKER_INTERFACES = /^(docker|br-[0-9a-f]{12}$|veth|assay-(open|closed|[0-9a-f]{8})$)/;

/** This machine is the file server, perhaps at another address than the manager's. */
function ownAddresses(): string[] {
  return Object.entries(networkInterfaces())
    .filter(([name]) => !DOCKER_INTERFACES.test(name))
    .flatMap(([, found]) => found ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address)
    .toSorted();
}
