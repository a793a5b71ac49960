// The containers of jobs as services of the swarm, one for each attempt. A service has one replica and is never restarted,
// so a command runs at most once in an attempt. Its result is in the output file alone: Swarm reports exit code 0 for a
// container that ended with the engine of its node.
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ARTIFACTS_DIRECTORY,
  type ContainerPlan,
  ENVIRONMENT_FILE,
  type Mount,
  type Ownership,
  ownershipOf,
  type RemotePlan,
} from '../../domain/container/container-plan.ts';
import { NODES_DIRECTORY } from '../../domain/container/remote-script.ts';
import { CLOSED_NETWORK, NODE_LABEL } from '../../domain/swarm.ts';
import { type EngineContext, withInternalContainer } from '../docker/create-container.ts';
import { type Containers, EngineRefused, EngineUnavailable, type PreparedImage } from '../engine.ts';
import type { Attempt } from './attempts.ts';
import { markerFile } from './guard-script.ts';
import { createPlacement } from './placement.ts';
import { createSecrets } from './secrets.ts';
import { createServices, type Service, type ServiceOptions } from './service-lifecycle.ts';
import { NAME_LABEL, serviceSpec } from './service-spec.ts';
import { cached, hasEnded, type Node, rejectionOf, type Task } from './tasks.ts';

/** Swarm accepts names of up to 63 characters. */
const SUFFIX_LENGTH = 6;
const POLL_MS = 1_000;
/** How long a container may wait for a node: its slot was free a moment ago. */
const PLACEMENT_MS = 30_000;
/** The same, for a node that responded a moment ago. */
const CHOSEN_MS = 5_000;
/** The rules of a node are checked every few seconds. Containers accept RULES_SECONDS. */
const GUARDED_MS = 10_000;
/** How long the result of this check is reused. */
const GUARDED_CHECK_MS = 1_000;
/** How often a container is created that nodes reject for a reason that passes. */
const MAX_REJECTIONS = 3;
/** The networks of an engine that has just started are not ready yet. */
const PASSING_REJECTION = /network \S+ (exists|not found|does not exist)/i;
/** Another node may have room. */
const FULL_NODE = /no space left on device/i;
/** Also of a container that runs, when its node is drained. */
const LATE_REJECTION = /no longer meets constraints/i;
/** How long a container may take to end after its last output. */
const END_MS = 2_000;

type ContainerOptions = ServiceOptions & {
  /** On the manager. */
  plain: Containers;
  hostImage(): Promise<PreparedImage>;
  /** The directory of the files that the firewall guards write. */
  nodesDirectory: string;
  /** Returns a reference by digest that every node can pull. */
  composeImage(image: string, remote: RemotePlan): Promise<string>;
  /** Creates the volumes of a plan that are created on their first use. */
  ensureVolumes(mounts: readonly Mount[]): Promise<void>;
  /** Resolves when the rules of the network are active. */
  protect(network: string): Promise<unknown>;
  /** The fingerprint of the manager's /usr, which the image `host` of every node must have. */
  fingerprint(): Promise<string>;
  /** The IDs of nodes that must get no container. Swarm does not know why, for example that their firewall failed. */
  unusableNodes(): string[];
};

export type SwarmContainers = Pick<
  Containers,
  | 'startContainer'
  | 'inspectContainer'
  | 'waitForExit'
  | 'stopContainer'
  | 'removeContainer'
  | 'readContainer'
  | 'listContainers'
  | 'listStorage'
> & { findNode(container: string): Promise<string | undefined> };

/** No node had a free slot, and the service was removed. */
class NotPlaced extends EngineUnavailable {
  constructor(reason: string) {
    super(`No node could run the container: ${reason}`, false);
  }
}

export function createSwarmContainers(context: EngineContext, options: ContainerOptions): SwarmContainers {
  const { instance } = context;
  const { attempts, cluster, plain } = options;
  const secrets = createSecrets(context);
  const services = createServices(context, options);
  /** The secrets of the services that this process created. */
  const secretsOf = new Map<string, string[]>();

  const placement = createPlacement();

  /** `node` is where it must run; undefined leaves that to Swarm. Returns its ID. */
  async function createService(
    service: string,
    plan: ContainerPlan,
    remote: RemotePlan,
    { node, excluded }: { node: string | undefined; excluded: readonly string[] },
  ): Promise<string> {
    const network = plan.network === 'none' ? CLOSED_NETWORK.name : plan.network;
    await options.ensureVolumes(plan.mounts);
    const environment = plan.mounts.find(({ target }) => target === ENVIRONMENT_FILE);
    const isOfHost = plan.mounts.some(({ source, target }) => source === '/usr' && target === '/usr');
    // The directory is first, so that a secret without a service is found by it.
    const mounts = await attempts.create(service, {
      ...plan,
      mounts: plan.mounts.filter(mount => mount !== environment),
    });
    const [image, usr, nodes, variables] = await Promise.all([
      options.composeImage(plan.image, remote),
      isOfHost ? options.fingerprint() : '',
      cluster.nodes(),
      environment && createVariables(service, plan.owner, environment.source),
      options.protect(network),
    ]);
    const spec = serviceSpec(service, plan, remote, {
      image,
      usr,
      network,
      mounts: [
        ...mounts,
        { type: 'bind', source: options.nodesDirectory, target: NODES_DIRECTORY, readOnly: true },
      ],
      secrets: variables ? [variables] : [],
      // Docker rejects a limit above the number of processors.
      cpus: Math.min(plan.limits.cpus, smallestNode(nodes)),
      node,
      excluded,
    });
    secretsOf.set(service, variables ? [variables.SecretID] : []);
    const id = await services.create(service, spec);
    placement.setId(service, id);
    return id;
  }

  /** Takes a slot of a node, if one is free. */
  async function chooseNode(service: string, excluded: readonly string[]): Promise<string | undefined> {
    const [nodes, tasks] = await Promise.all([cluster.nodes(), cluster.allTasks()]);
    const guarded = await guardedNodes(GUARDED_CHECK_MS);
    const usable = nodes.filter(({ ID }) => guarded.has(ID) && !excluded.includes(ID));
    return placement.take(service, { nodes: usable, tasks });
  }

  /** A node that has just returned refuses containers until its firewall rules have been checked. */
  const guardedNodes = cached(async () => {
    const found = await Promise.all(
      (await cluster.nodes()).map(async ({ ID }) => {
        const marker = await stat(join(options.nodesDirectory, markerFile(ID))).catch(() => undefined);
        return marker && Date.now() - marker.mtimeMs < GUARDED_MS ? [ID] : [];
      }),
    );
    return new Set(found.flat());
  });

  const createVariables = async (service: string, owner: Ownership, file: string) => ({
    ...(await secrets.create(service, owner, await readFile(file, 'utf8'))),
    path: ENVIRONMENT_FILE,
  });

  /** Resolves when the container has started or ended, or with the task that its node rejected. */
  async function waitForStart(service: string, id: string, placementMs: number): Promise<Task | undefined> {
    const giveUpAt = performance.now() + placementMs;
    for (;;) {
      // Waiting for the output costs no request to Docker.
      if (await attempts.waitForOutput(service)) return undefined;
      const [task] = await cluster.tasksOf(id);
      // The job was stopped meanwhile.
      if (!task && !(await services.isKnown(id))) return undefined;
      const state = task?.Status.State;
      // It may have run before, so it ends the attempt.
      if (task && state === 'rejected' && LATE_REJECTION.test(rejectionOf(task))) return undefined;
      if (task && state === 'rejected') {
        await services.remove(id);
        return task;
      }
      if (task && (state === 'running' || hasEnded(task))) return undefined;
      if ((state === 'pending' || state === 'new') && performance.now() > giveUpAt) {
        const reason = task?.Status.Err || task?.Status.Message || 'no node has a free slot';
        await services.remove(id);
        throw new NotPlaced(reason);
      }
    }
  }

  /** Undefined if there is no service. */
  async function inspectContainer(container: string) {
    const [service] = await services.find(container);
    return service && services.inspect(service);
  }

  return {
    inspectContainer,

    async startContainer(plan) {
      const { remote } = plan;
      if (!remote) throw new Error('a plan for a swarm has no remote part');
      const service = `${plan.name}-${remote.nonce.slice(0, SUFFIX_LENGTH)}`;
      const isFirst = !(await attempts.mayHaveService(plan.name));
      const found = isFirst ? [] : await services.list([`${NAME_LABEL}=${plan.name}`]);
      // Earlier attempts that could not be removed, because the manager did not respond.
      for (const { ID, Spec } of found) if (Spec.Name !== service) await services.remove(ID);
      let id = found.find(({ Spec }) => Spec.Name === service)?.ID;
      const avoided: string[] = [];
      let mayChoose = remote.node === undefined && id === undefined;
      for (let rejections = 1; ; rejections++) {
        const excluded = [...options.unusableNodes(), ...avoided];
        const chosen = mayChoose ? await chooseNode(service, excluded) : undefined;
        let rejected: Task | undefined;
        try {
          id ??= await createService(service, plan, remote, { node: remote.node ?? chosen, excluded });
          rejected = await waitForStart(service, id, chosen === undefined ? PLACEMENT_MS : CHOSEN_MS);
        } catch (error) {
          const isGone = id === undefined || error instanceof NotPlaced;
          if (isGone) placement.free(service);
          // The service exists, so the container may run even if nothing responds now.
          if (!isGone && error instanceof EngineUnavailable) throw new EngineUnavailable(error.message);
          if (!(error instanceof NotPlaced) || chosen === undefined) throw error;
          // The node does not respond any more. Swarm finds another one.
          mayChoose = false;
          rejections--;
          id = undefined;
          continue;
        }
        if (!rejected) return service;
        placement.free(service);
        const reason = rejectionOf(rejected);
        const isFull = FULL_NODE.test(reason);
        if (rejections === MAX_REJECTIONS || !(isFull || PASSING_REJECTION.test(reason)))
          throw new EngineRefused(reason);
        if (isFull && rejected.NodeID) avoided.push(rejected.NodeID);
        id = undefined;
      }
    },

    async waitForExit(container, signal) {
      let service: Service | undefined;
      for (;;) {
        signal?.throwIfAborted();
        // Without a task, it may have been removed.
        if (!service || (await cluster.tasksOf(service.ID)).length === 0)
          [service] = await services.find(container);
        const state = service && (await services.inspect(service));
        if (!state?.running) return state;
        await delay(POLL_MS, undefined, { signal });
      }
    },

    async stopContainer(container) {
      const found = await freeSlots(container);
      for (const id of await services.findIds(container, found)) await services.remove(id);
    },

    async removeContainer(container) {
      const found = await freeSlots(container);
      for (const id of await services.findIds(container, found)) await services.remove(id, END_MS);
      for (const attempt of found) {
        await secrets.remove(attempt.service, secretsOf.get(attempt.service));
        await attempts.remove(attempt);
        secretsOf.delete(attempt.service);
        services.forget(attempt.service);
      }
      if (found.length === 0) await plain.removeContainer(container);
    },

    async readContainer({ container, directory, inside }, read, signal) {
      const attempt = await findAttempt(container);
      if (!attempt) return undefined;
      if (directory === ARTIFACTS_DIRECTORY) return readArtifacts(attempt, inside, read, signal);
      const tar = await attempts.openKept(attempt, { directory, inside });
      if (!tar) return undefined;
      try {
        return await read(tar);
      } finally {
        tar.destroy();
      }
    },

    async listContainers() {
      const [found, present, tasks] = await Promise.all([
        attempts.list(),
        services.list([]),
        cluster.tasks(),
      ]);
      const ended = new Set(tasks.filter(hasEnded).map(({ ServiceID }) => ServiceID));
      const running = new Set(present.filter(({ ID }) => !ended.has(ID)).map(({ Spec }) => Spec.Name));
      const own = found.filter(({ owner }) => owner.instance === instance);
      const known = new Map(own.map(({ service, name, owner }) => [service, { name, owner }]));
      const created = new Set(present.map(({ Spec }) => Spec.Name));
      // The service is created a moment after the directory of the attempt.
      for (const { service, createdAt } of own)
        if (!created.has(service) && Date.now() - createdAt < PLACEMENT_MS) running.add(service);
      for (const { Spec } of present) {
        const owner = ownershipOf(Spec.Labels);
        const name = Spec.Labels[NAME_LABEL];
        // Guards of the firewall and holders of networks have no plan.
        if (owner && name !== undefined) known.set(Spec.Name, { name, owner });
      }
      return [
        ...[...known].map(([service, { name, owner }]) => ({
          containerId: service,
          name,
          owner,
          running: running.has(service),
        })),
        ...(await plain.listContainers()).filter(({ containerId }) => !known.has(containerId)),
      ];
    },

    async listStorage() {
      const present = new Set((await services.list([])).map(({ Spec }) => Spec.Name));
      return (await attempts.list())
        .filter(({ service }) => present.has(service))
        .map(({ owner, volumes }) => ({ owner, layerBytes: 0, volumes }));
    },

    async findNode(container) {
      try {
        const [id] = await services.findIds(container, await attempts.find(container));
        if (id === undefined) return undefined;
        const [task] = await cluster.tasksOf(id);
        const node = (await cluster.nodes()).find(({ ID }) => ID === task?.NodeID);
        return node?.Description.Hostname;
      } catch (error) {
        if (error instanceof EngineUnavailable) return undefined;
        throw error;
      }
    },
  };

  /** The job is over. Returns its attempts. */
  async function freeSlots(container: string): Promise<Attempt[]> {
    const found = await attempts.find(container);
    for (const { service } of found) placement.free(service);
    return found;
  }

  async function findAttempt(container: string): Promise<Attempt | undefined> {
    const found = await attempts.find(container);
    if (found.length < 2) return found[0];
    const [service] = await services.find(container);
    return found.find(one => one.service === service?.Spec.Name) ?? found[0];
  }

  /** Through a container on the manager that is never started: the files belong to another user. */
  async function readArtifacts<T>(
    attempt: Attempt,
    inside: string,
    read: Parameters<Containers['readContainer']>[1],
    signal?: AbortSignal,
  ): Promise<T | undefined> {
    const { reference: image } = await options.hostImage();
    const directory = ARTIFACTS_DIRECTORY;
    const mounts: Mount[] = [
      { type: 'bind', source: attempts.artifactsOf(attempt), target: directory, readOnly: true },
    ];
    return withInternalContainer(
      context,
      { kind: 'read', image, command: ['/bin/sh'], mounts },
      {},
      ({ id }) => plain.readContainer({ container: id, directory, inside }, read, signal),
    ) as Promise<T | undefined>;
  }
}

const smallestNode = (nodes: readonly Node[]) =>
  Math.min(
    ...nodes
      .filter(({ Description }) => Description.Engine.Labels?.[NODE_LABEL] === 'yes')
      .map(({ Description }) => Description.Resources.NanoCPUs / 1e9),
  );
