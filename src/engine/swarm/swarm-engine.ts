// Implements the contract of ../engine.ts with a Docker Swarm whose only manager is the engine of this host. Jobs run as
// services on all nodes; images are prepared and volumes are filled by the manager.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RemotePlan, RunAs } from '../../domain/container/container-plan.ts';
import { HOST_IMAGE } from '../../domain/names.ts';
import type { EngineNode } from '../../domain/node.ts';
import { sharedPaths } from '../../domain/swarm.ts';
import { type ClientSettings, type DockerClient, isRefused, openDocker } from '../docker/client.ts';
import { createContainers } from '../docker/container.ts';
import type { EngineContext } from '../docker/create-container.ts';
import { createImages, exportImage, findImageId } from '../docker/image.ts';
import { type Engine, EngineUnavailable } from '../engine.ts';
import { createAsRoot } from './as-root.ts';
import { createAttempts } from './attempts.ts';
import { createSwarmContainers } from './container.ts';
import { listProtection } from './guard.ts';
import { createImageStore } from './image-store.ts';
import { createSwarmNetwork } from './network.ts';
import { watchNodes } from './nodes.ts';
import { probeNode } from './probe.ts';
import { createCluster } from './tasks.ts';
import { createSharedVolumes } from './volumes.ts';

/** How long a job on a node that is down may be silent. */
const LOST_AFTER_MS = 60_000;
/** How long the ID of a prepared image is not asked for again: its tag is derived from its content. */
const IDENTIFIED_MS = 10_000;

export type SwarmEngineOptions = ClientSettings & {
  instance: string;
  /** The setting NETWORK: `bridge` or `none`. */
  network: string;
  runAs: RunAs;
  hostRoot?: string | undefined;
  /** The setting SHARED. */
  shared: string;
  /** Where composed images are stored. */
  imageDirectory: string;
  artifactFile(hash: string): string;
  /** `host:port` of this server, from which nodes pull them. */
  registry(): string;
  registryAuth(registry: string): { username: string; password: string; serveraddress: string };
  onRulesRestored?: ((network: string) => void) | undefined;
  /** Called when the number of slots has changed. */
  onCapacity?: () => void;
  lostAfterMs?: number | undefined;
};

export function createSwarmEngine(options: SwarmEngineOptions): Engine {
  const client = whileManagerStarts(openDocker(options));
  const { call } = client;
  const { shared, runAs } = options;
  const paths = sharedPaths(shared);
  const context: EngineContext = { ...client, instance: options.instance, internalContainers: new Set() };
  const images = createImages(context, options);
  const hostImage = () => images.prepareImage(HOST_IMAGE);
  const asRoot = createAsRoot(context, shared, hostImage);
  const cluster = createCluster(context);
  const plain = createContainers(context);
  const attempts = createAttempts({
    directory: paths.attempts,
    volumePath: name => volumes.pathOf(name),
    removeTree: asRoot.removeTree,
  });
  const volumes = createSharedVolumes(context, {
    directory: paths.volumes,
    runAs,
    hostImage,
    asRoot,
    isUsed: async name =>
      (await containers.listStorage({ layers: false })).some(one =>
        one.volumes.some(volume => volume.name === name),
      ),
  });
  const store = createImageStore({
    directory: options.imageDirectory,
    registry: options.registry,
    identify: remember(reference => findImageId(client, reference)),
    exportImage: reference => exportImage(client, reference),
  });
  const composeImage = (image: string, { layers, writable }: Pick<RemotePlan, 'layers' | 'writable'>) =>
    store.compose(image, [
      ...(writable === undefined ? [] : [{ kind: 'writable' as const, prefix: writable, owner: runAs }]),
      ...layers.map(layer => ({
        kind: 'artifact' as const,
        ...layer,
        file: options.artifactFile(layer.hash),
      })),
    ]);
  const registryAuth = () => options.registryAuth(options.registry());
  const network = createSwarmNetwork(context, {
    network: options.network,
    shared,
    onRulesRestored: options.onRulesRestored,
    async image() {
      const { reference, mounts } = await hostImage();
      return {
        reference: await composeImage(reference, { layers: [] }),
        mounts,
        credentials: registryAuth(),
      };
    },
  });
  const containers = createSwarmContainers(context, {
    attempts,
    cluster,
    plain,
    hostImage,
    nodesDirectory: paths.nodes,
    composeImage,
    registryAuth,
    ensureVolumes: volumes.ensure,
    protect: network.protect,
    async fingerprint() {
      const manager = (await cluster.nodes()).find(({ Spec }) => Spec.Role === 'manager');
      const marker = await readFile(join(paths.nodes, manager?.ID ?? ''), 'utf8').catch(() => '');
      return marker.trim().split(' ')[1] ?? '';
    },
    unusableNodes: () => findUnusable(nodes.nodes() ?? []),
    lostAfterMs: options.lostAfterMs ?? LOST_AFTER_MS,
  });
  const probe = {
    containers,
    hostImage,
    network: network.ensureNetwork,
    instance: options.instance,
    runAs,
    directory: paths.jobs,
  };
  const nodes = watchNodes({
    cluster,
    readProtection: () => listProtection(context, paths.nodes),
    onCapacity: options.onCapacity ?? (() => {}),
  });
  const { pathOf: _, ensure: __, ...contractVolumes } = volumes;
  const { protect: ___, ...contractNetwork } = network;
  return {
    ...containers,
    ...contractVolumes,
    ...images,
    sweepImages: store.sweep,
    ...contractNetwork,
    isRemote: true,
    listNodes: nodes.listNodes,
    nodes: nodes.nodes,
    async probeNodes() {
      const usable = (await nodes.listNodes()).filter(({ unusable }) => unusable === undefined);
      return Promise.all(usable.map(node => probeNode(probe, node)));
    },
    capacity: nodes.capacity,
    // An engine that has just started responds before its swarm does.
    ping: async () => void (await call('ping', docker => docker.listNodes())),
    findDataRoot: async () => shared,
    removePrepared: async () => {},
    close() {
      nodes.stop();
      client.close();
    },
  };
}

/** Swarm itself waits for those that are down or paused. */
const findUnusable = (nodes: readonly EngineNode[]) =>
  nodes
    .filter(({ unusable, state, availability }) => unusable && state === 'ready' && availability === 'active')
    .map(({ id }) => id);

/** Images that are no longer used are forgotten. */
function remember(identify: (reference: string) => Promise<string>): typeof identify {
  const known = new Map<string, { id: string; at: number }>();
  return async reference => {
    for (const [name, { at }] of known) if (performance.now() - at > IDENTIFIED_MS) known.delete(name);
    const found = known.get(reference);
    if (found) return found.id;
    const id = await identify(reference);
    known.set(reference, { id, at: performance.now() });
    return id;
  };
}

/** What a manager responds that has just started, or is about to stop. */
const NOT_READY = /swarm manager|swarm (is|does not)|leader|rpc error(?!.*name conflicts)|deadline exceeded/i;

/** The jobs have to wait for the manager, as for an engine that does not respond. */
function whileManagerStarts(client: DockerClient): DockerClient {
  return {
    ...client,
    async call(action, work, limits) {
      try {
        return await client.call(action, work, limits);
      } catch (error) {
        if (isRefused(error, 503) || (isRefused(error, 500) && NOT_READY.test(error.message)))
          throw new EngineUnavailable(error.message);
        throw error;
      }
    },
  };
}
