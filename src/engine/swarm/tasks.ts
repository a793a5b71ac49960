// The state of services and nodes, as the manager reports it. Swarm has no events for tasks, so they are polled: one
// request a second answers for all jobs.
import type { Ownership } from '../../domain/container/container-plan.ts';
import { TASK_LABEL } from '../../domain/swarm.ts';
import type { EngineContext } from '../docker/create-container.ts';

export type Task = {
  ID: string;
  ServiceID: string;
  NodeID?: string;
  CreatedAt: string;
  DesiredState: string;
  Status: {
    State: string;
    Err?: string;
    Message?: string;
    ContainerStatus?: { ContainerID?: string; ExitCode?: number } | null;
  };
  Labels?: Record<string, string> | null;
  Spec: { ContainerSpec?: { Labels?: Record<string, string> | null } };
};

export type Node = {
  ID: string;
  Spec: { Availability: 'active' | 'pause' | 'drain'; Role: 'manager' | 'worker' };
  Description: {
    Hostname: string;
    Engine: { EngineVersion: string; Labels?: Record<string, string> | null };
    Resources: {
      NanoCPUs: number;
      MemoryBytes: number;
      GenericResources?: { DiscreteResourceSpec?: { Kind: string; Value: number } }[] | null;
    };
  };
  Status: { State: string; Message?: string; Addr: string };
};

export type Cluster = {
  /** Of all jobs of the instance, not older than a second. */
  tasks(): Promise<Task[]>;
  /** Of all services of the swarm, not older than three seconds. */
  allTasks(): Promise<Task[]>;
  /**
   * Of the service with this ID, not older than half a second, nor than `since`. Empty if there is no such service. Those of
   * a service that was removed are there until their containers have ended.
   */
  tasksOf(service: string, since?: number): Promise<Task[]>;
  nodes(): Promise<Node[]>;
};

const FRESH_MS = 900;
const SOON_MS = 450;
const STALE_MS = 3_000;

export function createCluster({ call, instance }: EngineContext): Cluster {
  const tasks = cached(async () => (await call('list tasks', docker => docker.listTasks())) as Task[]);
  const nodes = cached(
    async () => (await call('list nodes', docker => docker.listNodes())) as unknown as Node[],
  );
  return {
    tasks: async () => (await tasks(FRESH_MS)).filter(task => ownerOfTask(task)?.instance === instance),
    allTasks: () => tasks(STALE_MS),
    // Many jobs that start at once are one request.
    tasksOf: async (service, since = 0) => {
      const found = await tasks(Math.min(SOON_MS, performance.now() - since));
      return found.filter(({ ServiceID }) => ServiceID === service);
    },
    nodes: () => nodes(FRESH_MS),
  };
}

/** Shares one request between all that ask for a value of this age. */
export function cached<T>(load: () => Promise<T>): (maxAgeMs: number) => Promise<T> {
  let current: { at: number; value: Promise<T> } | undefined;
  return maxAgeMs => {
    if (current && performance.now() - current.at < maxAgeMs) return current.value;
    const value = load();
    const entry = { at: performance.now(), value };
    current = entry;
    value.catch(() => {
      if (current === entry) current = undefined;
    });
    return value;
  };
}

/** Why a node rejected a container. Docker reports an image that it could not pull as one that does not exist. */
export function rejectionOf({ Status: { Err, Message } }: Pick<Task, 'Status'>): string {
  const reason = Err || Message || 'no reason given';
  return /no such image/i.test(reason)
    ? `The node could not pull the image from this server: check that it reaches the server and trusts its certificate (${reason}).`
    : `The node rejected the container: ${reason}.`;
}

/** Not those of `labelsOf`: the containers of services on the manager must not be taken for containers of the server. */
export const taskLabels = (owner: Ownership) => ({ [TASK_LABEL]: JSON.stringify(owner) });

const labelOf = ({ Spec }: Task) => Spec.ContainerSpec?.Labels?.[TASK_LABEL];

export const isOfJob = (task: Task) => labelOf(task) !== undefined;

export function ownerOfTask(task: Task): Ownership | undefined {
  const label = labelOf(task);
  return label === undefined ? undefined : (JSON.parse(label) as Ownership);
}

const ENDED = new Set(['complete', 'failed', 'shutdown', 'rejected', 'orphaned', 'remove']);
export const hasEnded = (task: Task) => ENDED.has(task.Status.State);
