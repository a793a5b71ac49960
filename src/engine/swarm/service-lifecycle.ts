// The services of this server in the swarm: creates, finds, inspects and removes them. container.ts says what they run.
import { setTimeout as delay } from 'node:timers/promises';
import { SERVICE_LABEL } from '../../domain/swarm.ts';
import { type RegistryAuth, type ServiceSpec, unlessRefused } from '../docker/client.ts';
import type { EngineContext } from '../docker/create-container.ts';
import type { Attempts } from './attempts.ts';
import { NAME_LABEL } from './service-spec.ts';
import { type Cluster, hasEnded, rejectionOf, type Task } from './tasks.ts';

/** How long a removal waits for the nodes. A node that is down does not respond. */
const REMOVAL_MS = 15_000;
const END_POLL_MS = 150;

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
  { docker, call, instance }: EngineContext,
  { attempts, cluster, registryAuth, lostAfterMs }: ServiceOptions,
) {
  /** The IDs of the services that this process created, by their names. Docker need not be asked for them. */
  const created = new Map<string, string>();
  /** When a node was first seen down. */
  const downSince = new Map<string, number>();

  const list = async (labels: string[]) =>
    (await call('list services', () =>
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

  /** The IDs of its services, the latest first. */
  async function findIds(container: string): Promise<string[]> {
    const found = (await attempts.find(container)).sort((a, b) => b.createdAt - a.createdAt);
    const ids = found.map(({ service }) => created.get(service)).filter(id => id !== undefined);
    if (ids.length > 0 && ids.length === found.length) return ids;
    return (await find(container)).map(({ ID }) => ID);
  }

  /** Returns its ID. Creates nothing if the service exists. */
  async function create(name: string, spec: ServiceSpec): Promise<string> {
    // 409: the same plan was started before.
    const response = (await unlessRefused([409], () =>
      call('create a service', () => docker.createService(registryAuth(), spec)),
    )) as { id: string } | undefined;
    // By its name, one that was removed meanwhile is unknown.
    const id = response?.id ?? (await find(name))[0]?.ID ?? name;
    created.set(name, id);
    return id;
  }

  const isKnown = async (service: string) =>
    (await unlessRefused([404], () =>
      call('inspect a service', () => docker.getService(service).inspect()),
    )) !== undefined;

  /**
   * Resolves when nothing of it runs, as far as nodes respond. A container that is about to end gets `graceMs`, because
   * Swarm takes seconds to kill one that ends by itself meanwhile.
   */
  async function remove(id: string, graceMs = 0): Promise<void> {
    // Not those of all services: they are many, and each contains its script.
    const filters = JSON.stringify({ service: [id] }) as never;
    const found = (await unlessRefused([404], () =>
      call('list tasks', () => docker.listTasks({ filters })),
    )) as Task[] | undefined;
    // The containers of a service that was removed may still run.
    const alive = await waitForEnd(found ?? (await cluster.tasksOf(id)), graceMs);
    await unlessRefused([404], () => call('remove a service', () => docker.getService(id).remove()));
    await waitForEnd(alive, REMOVAL_MS);
  }

  /** Returns those that have not ended. */
  async function waitForEnd(tasks: readonly Task[], limitMs: number): Promise<Task[]> {
    const giveUpAt = performance.now() + limitMs;
    const alive = tasks.filter(task => task.NodeID && !hasEnded(task));
    while (alive[0] && performance.now() < giveUpAt) {
      await delay(END_POLL_MS);
      if (!(await isAlive(alive[0].ID))) alive.shift();
    }
    return alive;
  }

  async function isAlive(taskId: string): Promise<boolean> {
    const task = (await unlessRefused([404], () =>
      call('inspect a task', () => docker.getTask(taskId).inspect()),
    )) as Task | undefined;
    if (!task || hasEnded(task)) return false;
    const node = (await cluster.nodes()).find(({ ID }) => ID === task.NodeID);
    return node?.Status.State === 'ready';
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
