// Chooses the node of each container. Left to Swarm, a slot stays empty until the manager has noticed that its container has
// ended, which takes up to half a second. This server knows when a job is over, and uses the slot at once.
import { NODE_LABEL, SLOT_RESOURCE } from '../../domain/swarm.ts';
import { hasEnded, isOfJob, type Node, type Task } from './tasks.ts';

/** By then, the manager has noticed. */
const NOTICED_MS = 60_000;

export const slotsOf = ({ Description: { Resources } }: Node): number =>
  Resources.GenericResources?.find(({ DiscreteResourceSpec }) => DiscreteResourceSpec?.Kind === SLOT_RESOURCE)
    ?.DiscreteResourceSpec?.Value ?? 0;

export type Placement = {
  /** Returns the ID of the node with the most free slots, and takes one. Undefined if there is none. */
  take(service: string, cluster: { nodes: readonly Node[]; tasks: readonly Task[] }): string | undefined;
  /** Records the ID of a service that has been created: tasks have only IDs. */
  setId(service: string, id: string): void;
  /** Frees the slot: the job is over, even if its container has not ended yet. */
  free(service: string): void;
};

export function createPlacement(now: () => number = () => performance.now()): Placement {
  const taken = new Map<string, { node: string; id?: string; at: number }>();
  /** IDs of services that are over, and since when. */
  const over = new Map<string, number>();

  return {
    take(service, { nodes, tasks }) {
      const isLate = (at: number) => now() - at > NOTICED_MS;
      const alive = tasks.filter(task => isOfJob(task) && !hasEnded(task));
      const aliveIds = new Set(alive.map(({ ServiceID }) => ServiceID));
      for (const [id, at] of over) if (isLate(at)) over.delete(id);
      for (const [name, { id, at }] of taken)
        if (id !== undefined && isLate(at) && !aliveIds.has(id)) taken.delete(name);
      const known = new Set([...taken.values()].map(({ id }) => id));
      // After a restart, and of other servers.
      const others = alive.filter(({ ServiceID }) => !known.has(ServiceID) && !over.has(ServiceID));
      const used = [...taken.values(), ...others.map(({ NodeID }) => ({ node: NodeID }))];
      const free = nodes
        .filter(isUsable)
        .map(node => ({ node, slots: slotsOf(node) - used.filter(one => one.node === node.ID).length }))
        .filter(({ slots }) => slots > 0)
        .sort((a, b) => b.slots - a.slots);
      const node = free[0]?.node.ID;
      if (node !== undefined) taken.set(service, { node, at: now() });
      return node;
    },
    setId(service, id) {
      const place = taken.get(service);
      if (place) taken.set(service, { ...place, id, at: now() });
    },
    free(service) {
      const id = taken.get(service)?.id;
      taken.delete(service);
      if (id !== undefined) over.set(id, now());
    },
  };
}

const isUsable = ({ Spec, Status, Description }: Node) =>
  Status.State === 'ready' &&
  Spec.Availability === 'active' &&
  Description.Engine.Labels?.[NODE_LABEL] === 'yes';
