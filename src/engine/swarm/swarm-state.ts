// What the engine of this host says about its swarm, for commands that need no engine of their own: whether it is the only
// manager, how other machines join, and the nodes.

import type { EngineNode } from '../../domain/node.ts';
import { sharedPaths } from '../../domain/swarm.ts';
import { type ClientSettings, openDocker } from '../docker/client.ts';
import { listProtection } from './guard.ts';
import { listNodes } from './nodes.ts';
import { createCluster } from './tasks.ts';

export type SwarmState = {
  /** `active`, or `inactive` if the engine is in no swarm. */
  state: string;
  isManager: boolean;
  nodeId: string;
  /** Host and port at which other machines join. */
  address: string;
  managers: number;
  /** How many changes the manager logs before it shortens the log. */
  snapshotInterval: number;
};

export type SwarmReader = {
  inspect(): Promise<SwarmState>;
  /** The secret with which a machine joins as a worker. */
  readWorkerToken(): Promise<string>;
  /** With what runs there of an instance. */
  listNodes(options: { instance: string; shared: string }): Promise<EngineNode[]>;
  close(): void;
};

type SwarmInfo = {
  LocalNodeState: string;
  ControlAvailable: boolean;
  NodeID: string;
  NodeAddr: string;
  Managers?: number;
  RemoteManagers?: { NodeID: string; Addr: string }[] | null;
  Cluster?: { Spec?: { Raft?: { SnapshotInterval?: number } } } | null;
};

const DEFAULT_PORT = 2377;

export function openSwarm(settings: ClientSettings): SwarmReader {
  const client = openDocker(settings);
  const { call, close } = client;
  return {
    async inspect() {
      const { Swarm } = (await call('info', docker => docker.info())) as { Swarm: SwarmInfo };
      const own = Swarm.RemoteManagers?.find(({ NodeID }) => NodeID === Swarm.NodeID);
      return {
        state: Swarm.LocalNodeState,
        isManager: Swarm.ControlAvailable,
        nodeId: Swarm.NodeID,
        address: own?.Addr ?? `${Swarm.NodeAddr}:${DEFAULT_PORT}`,
        managers: Swarm.Managers ?? 0,
        snapshotInterval: Swarm.Cluster?.Spec?.Raft?.SnapshotInterval ?? 0,
      };
    },
    async readWorkerToken() {
      const { JoinTokens } = (await call('inspect the swarm', docker => docker.swarmInspect())) as {
        JoinTokens: { Worker: string };
      };
      return JoinTokens.Worker;
    },
    listNodes({ instance, shared }) {
      const context = { ...client, instance, internalContainers: new Set<string>() };
      const readProtection = () => listProtection(context, sharedPaths(shared).nodes);
      return listNodes({ cluster: createCluster(context), readProtection });
    },
    close,
  };
}
