// The nodes of the swarm: which of them run containers, what runs where, and how many slots there are.
import { isDeepStrictEqual } from 'node:util';
import type { EngineNode } from '../../domain/node.ts';
import { NODE_LABEL } from '../../domain/swarm.ts';
import type { Capacity, Nodes } from '../engine.ts';
import type { listProtection } from './guard.ts';
import { slotsOf } from './placement.ts';
import { type Cluster, hasEnded, type Node, ownerOfTask, type Task } from './tasks.ts';

const CHECK_MS = 2_000;
const NO_NODE: Capacity = {
  slots: 0,
  reason: 'No node of the swarm runs containers: see "assay node list".',
};

type NodeSources = {
  cluster: Cluster;
  /** What the guards of the firewall report. */
  readProtection(): ReturnType<typeof listProtection>;
};

/** In order of their names. */
export async function listNodes({ cluster, readProtection }: NodeSources): Promise<EngineNode[]> {
  const [nodes, tasks, protection] = await Promise.all([cluster.nodes(), cluster.tasks(), readProtection()]);
  return nodes
    .map(node => describe(node, tasks, protection.get(node.ID)?.error))
    .sort((a, b) => a.name.localeCompare(b.name));
}

export function watchNodes(
  options: NodeSources & {
    /** Called when a node has changed, except for what runs there. */
    onCapacity(): void;
  },
): Pick<Nodes, 'listNodes' | 'nodes' | 'capacity'> & { stop(): void } {
  let current: Capacity = { slots: 0, reason: 'The nodes of the swarm are not known yet.' };
  let last: EngineNode[] = [];
  let isChecking = false;
  const check = async () => {
    if (isChecking) return;
    isChecking = true;
    try {
      const before = last;
      last = await listNodes(options);
      const slots = last
        .filter(({ unusable }) => unusable === undefined)
        .reduce((sum, node) => sum + node.slots, 0);
      current = slots === 0 ? NO_NODE : { slots, reason: undefined };
      if (!isDeepStrictEqual(last.map(withoutJobs), before.map(withoutJobs))) options.onCapacity();
    } catch {
      // The engine is unavailable, which others report.
    } finally {
      isChecking = false;
    }
  };
  const timer = setInterval(check, CHECK_MS).unref();
  check();
  return {
    listNodes: () => listNodes(options),
    nodes: () => last,
    capacity: () => current,
    stop: () => clearInterval(timer),
  };
}

const withoutJobs = ({ running: _, ...node }: EngineNode) => node;

function describe(node: Node, tasks: readonly Task[], unprotected: string | undefined): EngineNode {
  const { ID, Spec, Description, Status } = node;
  const { Hostname, Engine, Resources } = Description;
  const slots = slotsOf(node);
  const state =
    Status.State === 'ready' ? 'ready' : [Status.State, Status.Message].filter(Boolean).join(': ');
  return {
    id: ID,
    name: Hostname,
    role: Spec.Role,
    address: Status.Addr,
    state,
    availability: Spec.Availability,
    engineVersion: Engine.EngineVersion,
    cpus: Resources.NanoCPUs / 1e9,
    memoryBytes: Resources.MemoryBytes,
    slots,
    running: tasks
      .filter(task => task.NodeID === ID && !hasEnded(task))
      .map(ownerOfTask)
      .filter(owner => owner !== undefined),
    unusable: reasonAgainst(node, { state, slots, unprotected }),
  };
}

/** Why the node gets no new containers. */
function reasonAgainst(
  { Spec: { Availability }, Description: { Engine } }: Node,
  { state, slots, unprotected }: { state: string; slots: number; unprotected: string | undefined },
): string | undefined {
  if (state !== 'ready') return `It does not respond (${state}).`;
  if (Availability !== 'active') return `Its availability is ${Availability}.`;
  if (Engine.Labels?.[NODE_LABEL] !== 'yes') return 'It was not set up with the node script.';
  if (slots === 0) return 'It has no slots, so it runs no builds.';
  if (unprotected === undefined) return undefined;
  return `Its firewall rules are not in place: ${unprotected.replace(/\.$/, '')}.`;
}
