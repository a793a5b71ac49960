// The checks of `assay doctor` with ENGINE=swarm: the swarm, the shared directory, each node as the manager knows it, and what
// a job finds on each.

import { access, constants, stat } from 'node:fs/promises';
import { sizeText } from '../command/progress.ts';
import type { Settings } from '../config.ts';
import { HOST_IMAGE } from '../domain/names.ts';
import type { EngineNode } from '../domain/node.ts';
import type { NodeProbe } from '../engine/engine.ts';
import { fileSystemOf } from '../engine/host.ts';
import { SWAP_CHECK } from '../engine/swarm/probe.ts';
import { openSwarm, type SwarmState } from '../engine/swarm/swarm-state.ts';
import { type Check, type Finding, fail, isOlder, ok, warn } from './check.ts';
import { SNAPSHOT_INTERVAL } from './node-script.ts';

/** Beyond this the manager needs hundreds of megabytes. */
const MAX_SNAPSHOT_INTERVAL = 1_000;
const SHARED_MODE = 0o711;
/** The first one whose API has the limit: 1.44 and 1.52. */
const HAS_NO_NEW_PRIVILEGES = '25';
const HAS_SWAP_LIMIT = '29';
const NO_SWAP = 'switch it off there (swapoff -a, /etc/fstab), or install Docker 29 or newer';
const RUN_SCRIPT = 'run the output of "assay node script" there';

export async function checkSwarm(options: {
  settings: Settings;
  shared: string;
  environment: NodeJS.ProcessEnv;
  /** Empty if there is none yet. */
  instance: string;
  image: string;
  /** Runs a job on each node; undefined if the server has not been started yet. */
  probe: (() => Promise<NodeProbe[]>) | undefined;
}): Promise<Check[]> {
  const { settings, shared, environment, image } = options;
  const swarm = openSwarm({ ...settings, environment });
  try {
    const state = await swarm.inspect();
    const checks: Check[] = [
      { name: 'swarm', ...checkManager(state) },
      ...(state.isManager ? [{ name: 'swarm log', ...checkSnapshots(state) }] : []),
      { name: 'shared directory', ...(await checkShared(shared, settings.minFreeDiskBytes)) },
      ...(image === HOST_IMAGE ? [{ name: 'image on nodes', ...hostOnNodes }] : []),
    ];
    if (!state.isManager) return checks;
    const nodes = await swarm.listNodes({ instance: options.instance, shared });
    checks.push({ name: 'nodes', ...checkNodes(nodes) });
    for (const node of nodes) checks.push(...checkNode(node));
    if (options.probe && nodes.some(({ unusable }) => unusable === undefined))
      checks.push(...(await checkProbes(options.probe, nodes)));
    return checks;
  } catch (error) {
    return [{ name: 'swarm', ...fail((error as Error).message, 'start Docker on this server') }];
  } finally {
    swarm.close();
  }
}

const hostOnNodes = warn(
  'host: each node has its own /usr, so that results depend on where a build runs unless all nodes are alike',
  'import an image: assay image import FILE, then assay image use NAME',
);

export function checkManager({ state, isManager, managers, address }: SwarmState): Finding {
  if (state !== 'active')
    return fail(
      `Docker is in no swarm (${state})`,
      `docker swarm init --snapshot-interval ${SNAPSHOT_INTERVAL} --advertise-addr ADDRESS`,
    );
  if (!isManager)
    return fail(
      'Docker on this server is a worker of a swarm',
      'docker swarm leave, then make this server the manager: docker swarm init',
    );
  return managers === 1
    ? ok(`this server is the only manager, at ${address}`)
    : fail(`the swarm has ${managers} managers`, 'keep only this server: docker node demote NODE');
}

export const checkSnapshots = ({ snapshotInterval }: SwarmState): Finding =>
  snapshotInterval > 0 && snapshotInterval <= MAX_SNAPSHOT_INTERVAL
    ? ok(`shortened after ${snapshotInterval} changes`)
    : warn(
        `shortened only after ${snapshotInterval} changes: with many builds the manager needs hundreds of megabytes`,
        `docker swarm update --snapshot-interval ${SNAPSHOT_INTERVAL}`,
      );

export async function checkShared(shared: string, minFreeBytes: number): Promise<Finding> {
  const found = await stat(shared).catch(() => undefined);
  if (!found)
    return warn(
      `${shared} does not exist yet`,
      'create it for the user of the server; see: assay help swarm',
    );
  const isWritable = await access(shared, constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!isWritable)
    return fail(`${shared} is not writable for this user`, 'let it belong to the user of the server');
  const mode = found.mode & 0o777;
  if (mode !== SHARED_MODE)
    return warn(
      `${shared} has mode ${mode.toString(8)}`,
      `chmod ${SHARED_MODE.toString(8)} ${shared}: nodes must be able to enter it, and nobody else should list it`,
    );
  const { isNfs, freeBytes } = await fileSystemOf(shared);
  const free = `${sizeText(freeBytes)} free in ${shared}`;
  if (isNfs)
    return warn(`${shared} is on NFS here: logs arrive late`, 'let this server export the directory itself');
  return freeBytes < minFreeBytes
    ? fail(free, `below ${sizeText(minFreeBytes)} (MIN_FREE_DISK) no work starts: free some space`)
    : ok(free);
}

function checkNodes(nodes: readonly EngineNode[]): Finding {
  const usable = nodes.filter(({ unusable }) => unusable === undefined);
  const slots = usable.reduce((sum, node) => sum + node.slots, 0);
  const found = `${usable.length} of ${nodes.length} take work, ${slots} slots`;
  return usable.length === 0 ? fail(found, `on each machine: ${RUN_SCRIPT}`) : ok(found);
}

/** One line for its state, and one for each thing that its Docker lacks. */
export function checkNode(node: EngineNode): Check[] {
  const name = `node ${node.name}`;
  const found = `${node.role} at ${node.address}, ${node.slots} slots, ${node.cpus} cores, ${sizeText(node.memoryBytes)}, Docker ${node.engineVersion}`;
  const checks: Check[] = [
    { name, ...(node.unusable === undefined ? ok(found) : warn(node.unusable, adviceFor(node))) },
  ];
  if (node.state !== 'ready') return checks;
  if (isOlder(node.engineVersion, HAS_NO_NEW_PRIVILEGES))
    checks.push({
      name,
      ...ok(
        `Docker before ${HAS_NO_NEW_PRIVILEGES}: no-new-privileges comes from daemon.json, which the node script sets; every job checks it`,
      ),
    });
  if (isOlder(node.engineVersion, HAS_SWAP_LIMIT))
    checks.push({
      name,
      ...ok(
        `Docker before ${HAS_SWAP_LIMIT}: a container may use as much swap as MEMORY, so the node should have none`,
      ),
    });
  return checks;
}

function adviceFor({ state, availability, name, id }: EngineNode): string {
  if (state !== 'ready')
    return `start the machine, or restart its Docker; if it is gone for good: docker node rm ${id}`;
  return availability === 'active' ? RUN_SCRIPT : `docker node update --availability active ${name}`;
}

/** A line for each thing that a job found on each node. */
async function checkProbes(
  probe: () => Promise<NodeProbe[]>,
  nodes: readonly EngineNode[],
): Promise<Check[]> {
  try {
    return (await probe()).flatMap(({ node, checks }) => {
      const version = nodes.find(({ name }) => name === node)?.engineVersion ?? '';
      return checks.map(({ name, ok: isOk, detail }) => {
        const found = `${name}: ${detail}`;
        if (isOk) return { name: `job on ${node}`, ...ok(found) };
        if (name !== SWAP_CHECK) return { name: `job on ${node}`, ...fail(found, RUN_SCRIPT) };
        return {
          name: `job on ${node}`,
          ...(isOlder(version, HAS_SWAP_LIMIT) ? warn(found, NO_SWAP) : ok(found)),
        };
      });
    });
  } catch (error) {
    return [
      {
        name: 'jobs on nodes',
        ...fail((error as Error).message, 'see the log of the server: journalctl -u assay'),
      },
    ];
  }
}
