// The containers of jobs as services of the swarm, one for each attempt. A service has one replica and is never restarted,
// so a command runs at most once in an attempt. Its result is in the output file alone: Swarm reports exit code 0 for a
// container that ended with the engine of its node.
import { readFile } from 'node:fs/promises';
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
import { CLOSED_NETWORK, NODE_LABEL, SERVICE_LABEL } from '../../domain/swarm.ts';
import { type RegistryAuth, unlessRefused } from '../docker/client.ts';
import { type EngineContext, withInternalContainer } from '../docker/create-container.ts';
import { type Containers, EngineRefused, EngineUnavailable, type PreparedImage } from '../engine.ts';
import type { Attempt, Attempts } from './attempts.ts';
import { createSecrets } from './secrets.ts';
import { NAME_LABEL, serviceSpec } from './service-spec.ts';
import { type Cluster, hasEnded, type Node, rejectionOf, type Task } from './tasks.ts';

/** Swarm accepts names of up to 63 characters. */
const SUFFIX_LENGTH = 6;
const POLL_MS = 1_000;
const OUTPUT_POLL_MS = 250;
/** How long a container may wait for a node: its slot was free a moment ago. */
const PLACEMENT_MS = 30_000;
/** How often a container is created that nodes reject for a reason that passes. */
const MAX_REJECTIONS = 3;
/** The networks of an engine that has just started are not ready yet. */
const PASSING_REJECTION = /network \S+ (exists|not found|does not exist)/i;
/** Another node may have room. */
const FULL_NODE = /no space left on device/i;
/** Also of a container that runs, when its node is drained. */
const LATE_REJECTION = /no longer meets constraints/i;
/** How long a removal waits for the nodes. A node that is down does not respond. */
const REMOVAL_MS = 15_000;
const END_POLL_MS = 150;
/** How long a container may take to end after its last output. */
const END_MS = 2_000;

type ContainerOptions = {
  attempts: Attempts;
  cluster: Cluster;
  /** On the manager. */
  plain: Containers;
  hostImage(): Promise<PreparedImage>;
  /** The directory of the files that the firewall guards write. */
  nodesDirectory: string;
  /** Returns a reference by digest that every node can pull. */
  composeImage(image: string, remote: RemotePlan): Promise<string>;
  registryAuth(): RegistryAuth;
  /** Creates the volumes of a plan that are created on their first use. */
  ensureVolumes(mounts: readonly Mount[]): Promise<void>;
  /** Resolves when the rules of the network are active. */
  protect(network: string): Promise<unknown>;
  /** The fingerprint of the manager's /usr, which the image `host` of every node must have. */
  fingerprint(): Promise<string>;
  /** The IDs of nodes that must get no container. Swarm does not know why, for example that their firewall failed. */
  unusableNodes(): string[];
  /** How long the output of a container may stand still before it counts as lost, if its node is down. */
  lostAfterMs: number;
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

type Service = { ID: string; CreatedAt: string; Spec: { Name: string; Labels: Record<string, string> } };

export function createSwarmContainers(context: EngineContext, options: ContainerOptions): SwarmContainers {
  const { docker, call, instance } = context;
  const { attempts, cluster, plain } = options;
  const secrets = createSecrets(context);
  /** The services that this process created, by their names. Docker need not be asked for their IDs. */
  const created = new Map<string, { id: string; secrets: string[] }>();
  /** When a node was first seen down. */
  const downSince = new Map<string, number>();

  const listServices = async (labels: string[]) =>
    (await call('list services', () =>
      docker.listServices({
        filters: JSON.stringify({ label: [`assay.instance=${instance}`, ...labels] }) as never,
      }),
    )) as unknown as Service[];

  /** By the name of the plan or of the service. There are several if a node that is down kept an earlier attempt. */
  async function findServices(container: string): Promise<Service[]> {
    const byPlan = await listServices([`${NAME_LABEL}=${container}`]);
    const found = byPlan.length > 0 ? byPlan : await listServices([`${SERVICE_LABEL}=${container}`]);
    return found.sort((a, b) => b.CreatedAt.localeCompare(a.CreatedAt));
  }

  /** The IDs of its services, the latest first. */
  async function findServiceIds(container: string): Promise<string[]> {
    const found = (await attempts.find(container)).sort((a, b) => b.createdAt - a.createdAt);
    const ids = found.map(({ service }) => created.get(service)?.id).filter(id => id !== undefined);
    if (ids.length > 0 && ids.length === found.length) return ids;
    return (await findServices(container)).map(({ ID }) => ID);
  }

  /** Returns its ID. */
  async function createService(
    service: string,
    plan: ContainerPlan,
    remote: RemotePlan,
    avoided: readonly string[],
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
      excluded: [...options.unusableNodes(), ...avoided],
    });
    // 409: the same plan was started before.
    const response = (await unlessRefused([409], () =>
      call('create a service', () => docker.createService(options.registryAuth(), spec)),
    )) as { id: string } | undefined;
    // By its name, one that was removed meanwhile is unknown.
    const id = response?.id ?? (await findServices(service))[0]?.ID ?? service;
    created.set(service, { id, secrets: variables ? [variables.SecretID] : [] });
    return id;
  }

  const createVariables = async (service: string, owner: Ownership, file: string) => ({
    ...(await secrets.create(service, owner, await readFile(file, 'utf8'))),
    path: ENVIRONMENT_FILE,
  });

  /** Resolves when the container has started or ended, or with the task that its node rejected. */
  async function waitForStart(service: string, id: string): Promise<Task | undefined> {
    const giveUpAt = performance.now() + PLACEMENT_MS;
    for (;;) {
      if (await waitForOutput(service)) return undefined;
      const [task] = await cluster.tasksOf(id);
      // The job was stopped meanwhile.
      if (!task && !(await isKnown(id))) return undefined;
      const state = task?.Status.State;
      // It may have run before, so it ends the attempt.
      if (task && state === 'rejected' && LATE_REJECTION.test(rejectionOf(task))) return undefined;
      if (task && state === 'rejected') {
        await removeService(id);
        return task;
      }
      if (task && (state === 'running' || hasEnded(task))) return undefined;
      if ((state === 'pending' || state === 'new') && performance.now() > giveUpAt) {
        const reason = task?.Status.Err || task?.Status.Message || 'no node has a free slot';
        await removeService(id);
        throw new NotPlaced(reason);
      }
    }
  }

  /** Waits a second for its first output, which costs no request. False if there was none. */
  async function waitForOutput(service: string): Promise<boolean> {
    const giveUpAt = performance.now() + POLL_MS;
    while (performance.now() < giveUpAt) {
      if (await attempts.hasOutput(service)) return true;
      await delay(OUTPUT_POLL_MS);
    }
    return false;
  }

  const isKnown = async (service: string) =>
    (await unlessRefused([404], () =>
      call('inspect a service', () => docker.getService(service).inspect()),
    )) !== undefined;

  /**
   * Resolves when nothing of it runs, as far as nodes respond. A container that is about to end gets `graceMs`, because
   * Swarm takes seconds to kill one that ends by itself meanwhile.
   */
  async function removeService(id: string, graceMs = 0): Promise<void> {
    const recent = await cluster.tasksOf(id);
    const isPlaced = recent.length > 0 && recent.every(({ NodeID }) => NodeID);
    const tasks = isPlaced ? recent : await cluster.tasksOf(id, 0);
    await waitForEnd(tasks, graceMs);
    await unlessRefused([404], () => call('remove a service', () => docker.getService(id).remove()));
    await waitForEnd(tasks, REMOVAL_MS);
  }

  async function waitForEnd(tasks: readonly Task[], limitMs: number): Promise<void> {
    const giveUpAt = performance.now() + limitMs;
    for (const task of tasks) {
      if (!task.NodeID || hasEnded(task)) continue;
      while (performance.now() < giveUpAt && (await isAlive(task.ID))) await delay(END_POLL_MS);
    }
  }

  async function isAlive(taskId: string): Promise<boolean> {
    const task = (await unlessRefused([404], () =>
      call('inspect a task', () => docker.getTask(taskId).inspect()),
    )) as Task | undefined;
    if (!task || hasEnded(task)) return false;
    const node = (await cluster.nodes()).find(({ ID }) => ID === task.NodeID);
    return node?.Status.State === 'ready';
  }

  /** Undefined if there is no service. */
  async function inspectContainer(container: string) {
    const [service] = await findServices(container);
    return service && inspectService(service);
  }

  async function inspectService(service: Service) {
    const startedAt = new Date(service.CreatedAt);
    const [task] = await cluster.tasksOf(service.ID);
    // It starts by itself as soon as a node has a free slot.
    const running = { running: true, exitCode: undefined, oomKilled: false, startedAt };
    if (!task) return running;
    // Swarm reports exit code 0 for a container that ended with the engine of its node.
    const ended = { running: false, exitCode: undefined, oomKilled: false, startedAt };
    if (task.Status.State === 'rejected') return { ...ended, reason: rejectionOf(task) };
    if (hasEnded(task)) return ended;
    const lost = await findLostNode(task, service.Spec.Name);
    return lost === undefined ? running : { ...ended, reason: `The node ${lost} does not respond.` };
  }

  /** The name of the node, if it is down and the output has not grown for a while. */
  async function findLostNode(task: Task, service: string): Promise<string | undefined> {
    const node = (await cluster.nodes()).find(({ ID }) => ID === task.NodeID);
    if (!task.NodeID || node?.Status.State === 'ready') {
      downSince.delete(task.NodeID ?? '');
      return undefined;
    }
    const since = downSince.get(task.NodeID) ?? Date.now();
    downSince.set(task.NodeID, since);
    const [attempt] = await attempts.find(service);
    const grownAt = attempt ? await attempts.grownAt(attempt) : 0;
    const isLost = Date.now() - Math.max(since, grownAt) > options.lostAfterMs;
    return isLost ? (node?.Description.Hostname ?? task.NodeID) : undefined;
  }

  return {
    inspectContainer,

    async startContainer(plan) {
      const { remote } = plan;
      if (!remote) throw new Error('a plan for a swarm has no remote part');
      const service = `${plan.name}-${remote.nonce.slice(0, SUFFIX_LENGTH)}`;
      const isFirst = !(await attempts.mayHaveService(plan.name));
      const found = isFirst ? [] : await listServices([`${NAME_LABEL}=${plan.name}`]);
      // Earlier attempts that could not be removed, because the manager did not respond.
      for (const { ID, Spec } of found) if (Spec.Name !== service) await removeService(ID);
      let id = found.find(({ Spec }) => Spec.Name === service)?.ID;
      const avoided: string[] = [];
      for (let rejections = 1; ; rejections++) {
        id ??= await createService(service, plan, remote, avoided);
        const rejected = await waitForStart(service, id).catch(error => {
          // The service exists, so the container may run even if nothing responds now.
          throw error instanceof EngineUnavailable && !(error instanceof NotPlaced)
            ? new EngineUnavailable(error.message)
            : error;
        });
        if (!rejected) return service;
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
          [service] = await findServices(container);
        const state = service && (await inspectService(service));
        if (!state?.running) return state;
        await delay(POLL_MS, undefined, { signal });
      }
    },

    async stopContainer(container) {
      for (const id of await findServiceIds(container)) await removeService(id);
    },

    async removeContainer(container) {
      const found = await attempts.find(container);
      for (const id of await findServiceIds(container)) await removeService(id, END_MS);
      for (const attempt of found) {
        await secrets.remove(attempt.service, created.get(attempt.service)?.secrets);
        await attempts.remove(attempt);
        created.delete(attempt.service);
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
      const [found, services, tasks] = await Promise.all([
        attempts.list(),
        listServices([]),
        cluster.tasks(),
      ]);
      const ended = new Set(tasks.filter(hasEnded).map(({ ServiceID }) => ServiceID));
      const running = new Set(services.filter(({ ID }) => !ended.has(ID)).map(({ Spec }) => Spec.Name));
      const own = found.filter(({ owner }) => owner.instance === instance);
      const known = new Map(own.map(({ service, name, owner }) => [service, { name, owner }]));
      const created = new Set(services.map(({ Spec }) => Spec.Name));
      // The service is created a moment after the directory of the attempt.
      for (const { service, createdAt } of own)
        if (!created.has(service) && Date.now() - createdAt < PLACEMENT_MS) running.add(service);
      for (const { Spec } of services) {
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
      const services = new Set((await listServices([])).map(({ Spec }) => Spec.Name));
      return (await attempts.list())
        .filter(({ service }) => services.has(service))
        .map(({ owner, volumes }) => ({ owner, layerBytes: 0, volumes }));
    },

    async findNode(container) {
      try {
        const [id] = await findServiceIds(container);
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

  async function findAttempt(container: string): Promise<Attempt | undefined> {
    const found = await attempts.find(container);
    if (found.length < 2) return found[0];
    const [service] = await findServices(container);
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
