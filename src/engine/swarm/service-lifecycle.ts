// The services of this server in the swarm: creates, finds, inspects and removes them. container.ts says what they run.
import { setTimeout as delay } from 'node:timers/promises';
import { SERVICE_LABEL } from '../../domain/swarm.ts';
import { type RegistryAuth, type ServiceSpec, unlessRefused } from '../docker/client.ts';
import type { EngineContext } from '../docker/create-container.ts';
import type { Attempt, Attempts } from './attempts.ts';
import { NAME_LABEL } from './service-spec.ts';
import { type Cluster, hasEnded, rejectionOf, type Task } from './tasks.ts';

/** How long a removal waits for the nodes. A node that is down does not respond. */
const REMOVAL_MS = 15_000;
/** Swarm reports that it has stopped a container after about as long. */
const STOP_POLL_MS = 250;
/**
 * Containers that end by themselves are removed together, once in this time. With each change for a node, the manager waits
 * another 100 ms before it tells the node of new containers.
 */
const END_POLL_MS = 1_000;
/** Those that look at the same moment share a list of tasks of this age. */
const SHARED_LIST_MS = 50;

export type ServiceOptions = {
  attempts: Attempts;
  cluster: Cluster;
  registryAuth(): RegistryAuth;
  /** How long the output of a container may stand still before it counts as lost, if its node is down. */
  lostAfterMs: number;
};

export type Service = {
  ID: string;
  CreatedAt: string;
  Spec: { Name: string; Labels: Record<string, string> };
};

export function createServices(
  { call, instance }: EngineContext,
  { attempts, cluster, registryAuth, lostAfterMs }: ServiceOptions,
) {
  /** The IDs of the services that this process created, by their names. Docker need not be asked for them. */
  const created = new Map<string, string>();
  /** When a node was first seen down. */
  const downSince = new Map<string, number>();

  const list = async (labels: string[]) =>
    (await call('list services', docker =>
      docker.listServices({
        filters: JSON.stringify({ label: [`assay.instance=${instance}`, ...labels] }) as never,
      }),
    )) as unknown as Service[];

  /** By the name of the plan or of the service. There are several if a node that is down kept an earlier attempt. */
  async function find(container: string): Promise<Service[]> {
    const byPlan = await list([`${NAME_LABEL}=${container}`]);
    const found = byPlan.length > 0 ? byPlan : await list([`${SERVICE_LABEL}=${container}`]);
    return found.sort((a, b) => b.CreatedAt.localeCompare(a.CreatedAt));
  }

  /** The IDs of its services, the latest first. `found` are its attempts. */
  async function findIds(container: string, found: readonly Attempt[]): Promise<string[]> {
    const latest = found.toSorted((a, b) => b.createdAt - a.createdAt);
    const ids = latest.map(({ service }) => created.get(service)).filter(id => id !== undefined);
    if (ids.length > 0 && ids.length === found.length) return ids;
    return (await find(container)).map(({ ID }) => ID);
  }

  /** Returns its ID. Creates nothing if the service exists. */
  async function create(name: string, spec: ServiceSpec): Promise<string> {
    // 409: the same plan was started before.
    const response = (await unlessRefused([409], () =>
      call('create a service', docker => docker.createService(registryAuth(), spec)),
    )) as { id: string } | undefined;
    // By its name, one that was removed meanwhile is unknown.
    const id = response?.id ?? (await find(name))[0]?.ID ?? name;
    created.set(name, id);
    return id;
  }

  const isKnown = async (service: string) =>
    (await unlessRefused([404], () =>
      call('inspect a service', docker => docker.getService(service).inspect()),
    )) !== undefined;

  /**
   * Resolves when nothing of it runs, as far as nodes respond. A container that is about to end gets `graceMs`, because
   * Swarm takes seconds to kill one that ends by itself meanwhile.
   */
  async function remove(id: string, graceMs = 0): Promise<void> {
    const state = graceMs > 0 ? await waitForEnd(id, graceMs, END_POLL_MS) : 'alive';
    await unlessRefused([404], () => call('remove a service', docker => docker.getService(id).remove()));
    // Until then, a container may have started. Those of a service that was removed before may still run.
    if (state !== 'ended') await waitForEnd(id, REMOVAL_MS, STOP_POLL_MS);
  }

  /** Looks only at lists of tasks that were requested after this call. All that wait look at the same moments. */
  async function waitForEnd(id: string, limitMs: number, pollMs: number) {
    const since = performance.now();
    const giveUpAt = since + limitMs;
    for (;;) {
      await delay(pollMs - (performance.now() % pollMs));
      const state = await stateOf(id, Math.max(since, performance.now() - SHARED_LIST_MS));
      if (state !== 'alive' || performance.now() > giveUpAt) return state;
    }
  }

  /** `none`: no task is known. A task on a node that does not respond has ended. */
  async function stateOf(id: string, since: number): Promise<'alive' | 'ended' | 'none'> {
    const tasks = await cluster.tasksOf(id, since);
    if (tasks.length === 0) return 'none';
    const alive = tasks.filter(task => task.NodeID && !hasEnded(task));
    const nodes = alive.length > 0 ? await cluster.nodes() : [];
    const ready = new Set(nodes.filter(({ Status }) => Status.State === 'ready').map(({ ID }) => ID));
    return alive.some(({ NodeID }) => ready.has(NodeID ?? '')) ? 'alive' : 'ended';
  }

  async function inspect(service: Service) {
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
    const isLost = Date.now() - Math.max(since, grownAt) > lostAfterMs;
    return isLost ? (node?.Description.Hostname ?? task.NodeID) : undefined;
  }

  return {
    list,
    find,
    findIds,
    create,
    isKnown,
    remove,
    inspect,
    forget: (name: string) => created.delete(name),
  };
}
