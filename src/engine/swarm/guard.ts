// The two services that every node of the swarm runs: the guard keeps the firewall rules in place (guard-script.ts), and the
// holder keeps the bridge of the network, which Docker would otherwise make and remove with each container.
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { labelsOf, type Mount, ownershipOf, resourceName } from '../../domain/container/container-plan.ts';
import { NODE_VARIABLE, NODES_DIRECTORY } from '../../domain/container/remote-script.ts';
import { NODE_LABEL, type SwarmNetwork } from '../../domain/swarm.ts';
import { type RegistryAuth, unlessRefused } from '../docker/client.ts';
import type { EngineContext } from '../docker/create-container.ts';
import { EngineRefused, GUARD_KIND } from '../engine.ts';
import { errorFile, type FileOwner, guardCommand, markerFile, NOBODY } from './guard-script.ts';
import type { Task } from './tasks.ts';

/** Of what a guard reports. */
const MAX_ERROR = 400;
const HOLDER_KIND = 'holder';
const GUARD_BYTES = 64 * 1024 ** 2;
const HOLDER_BYTES = 32 * 1024 ** 2;
const SECOND_NS = 1_000_000_000;
/** Identifies the specification of a service. Docker completes specifications, so they cannot be compared. */
const SPEC_LABEL = 'assay.spec';

type NodeService = {
  ID: string;
  Version: { Index: number };
  Spec: { Name: string; Labels: Record<string, string> | null };
};

/** An image that every node has or can pull. */
export type NodeImage = {
  /** With a digest, or an ID: for another name, each node would ask a registry at each start. */
  reference: string;
  mounts: readonly Mount[];
  /** For the registry that it is pulled from. */
  credentials?: RegistryAuth | undefined;
};

/** The guard and the holder. True if something had to be created or changed. */
export async function ensureServices(
  context: EngineContext,
  specs: NodeServiceSpec[],
  image: NodeImage,
): Promise<boolean> {
  const { call } = context;
  const found = await listNodeServices(context);
  const authconfig = image.credentials as RegistryAuth;
  let isChanged = false;
  for (const spec of specs) {
    const service = found.find(one => one.Spec.Name === spec.Name);
    if (service?.Spec.Labels?.[SPEC_LABEL] === spec.Labels[SPEC_LABEL]) continue;
    isChanged = true;
    if (service) {
      const update = { authconfig, _query: { version: service.Version.Index }, _body: spec };
      await call('update a service', docker => docker.getService(service.ID).update(update)).catch(
        ignoreOutOfSequence,
      );
    } else {
      // With one argument, dockerode would send the specification as credentials too. 409: another process created it at
      // this moment.
      await unlessRefused([409], () =>
        call('create a service', docker => docker.createService(authconfig, spec as object)),
      );
    }
  }
  return isChanged;
}

/** Docker allows no labels for these networks: the guard says whose they are. */
export async function findOtherInstance(context: EngineContext): Promise<string | undefined> {
  const services = await listNodeServices(context, `assay.kind=${GUARD_KIND}`);
  return services
    .map(({ Spec }) => ownershipOf(Spec.Labels)?.instance)
    .find(instance => instance !== undefined && instance !== context.instance);
}

/** The guard and the holder of the instance. */
export async function listNodeServices(
  { call, instance }: EngineContext,
  label = `assay.instance=${instance}`,
): Promise<NodeService[]> {
  const filters = { label: [label] };
  const found = (await call('list services', docker => docker.listServices({ filters }))) as NodeService[];
  return found.filter(({ Spec }) => isNodeService(Spec.Labels));
}

/** The latest first. */
export async function listNodeTasks({ call, instance }: EngineContext, kind?: string): Promise<Task[]> {
  const filters = { label: [`assay.instance=${instance}`] };
  const found = (await call('list tasks', docker => docker.listTasks({ filters }))) as Task[];
  return found
    .filter(({ Spec }) => isNodeService(Spec.ContainerSpec?.Labels))
    .filter(({ Spec }) => kind === undefined || ownershipOf(Spec.ContainerSpec?.Labels)?.kind === kind)
    .sort((one, other) => other.CreatedAt.localeCompare(one.CreatedAt));
}

export type NodeProtection = {
  /** When the rules of the node were found in place last, by the clock of the file server. */
  checkedAt: Date | undefined;
  /** Why they are not. */
  error: string | undefined;
};

/** What the guards report to the directory, by the ID of the node. */
export async function listProtection(
  context: EngineContext,
  directory: string,
): Promise<Map<string, NodeProtection>> {
  const latest = new Map<string, Task>();
  for (const task of (await listNodeTasks(context, GUARD_KIND)).toReversed())
    if (task.NodeID) latest.set(task.NodeID, task);
  const describe = async ([nodeId, task]: [string, Task]): Promise<[string, NodeProtection]> => {
    const marker = await stat(join(directory, markerFile(nodeId))).catch(() => undefined);
    const reported = await readFile(join(directory, errorFile(nodeId)), 'utf8').catch(() => undefined);
    // A node that cannot run the guard, for example because the image has mounts that the node lacks.
    const error = reported?.trim().slice(0, MAX_ERROR) ?? (task.Status.Err || undefined);
    return [nodeId, { checkedAt: marker?.mtime, error }];
  };
  return new Map(await Promise.all([...latest].map(describe)));
}

function isNodeService(labels: Record<string, string> | null | undefined): boolean {
  return [GUARD_KIND, HOLDER_KIND].includes(ownershipOf(labels)?.kind ?? '');
}

/** Docker refuses an update of a specification that was changed meanwhile. The next check finds out whether it is right. */
function ignoreOutOfSequence(error: unknown): undefined {
  if (!(error instanceof EngineRefused && /out of sequence/.test(error.message))) throw error;
}

type NodeServiceSpec = { Name: string; Labels: Record<string, string>; [key: string]: unknown };

type NodeServiceOptions = {
  kind: string;
  image: NodeImage;
  command: string[];
  user: string;
  network: string;
  memoryBytes: number;
  mounts?: Mount[];
  environment?: string[];
  capabilities?: string[];
};

export function guardSpec(
  instance: string,
  directory: string,
  owner: FileOwner,
  image: NodeImage,
): NodeServiceSpec {
  return nodeServiceSpec(instance, {
    kind: GUARD_KIND,
    image,
    command: guardCommand(owner),
    user: '0:0',
    network: 'host',
    memoryBytes: GUARD_BYTES,
    mounts: [{ type: 'bind', source: directory, target: NODES_DIRECTORY, readOnly: false }],
    environment: [NODE_VARIABLE],
    capabilities: ['NET_ADMIN', 'NET_RAW', 'SETUID', 'SETGID'],
  });
}

export function holderSpec(instance: string, network: SwarmNetwork, image: NodeImage): NodeServiceSpec {
  return nodeServiceSpec(instance, {
    kind: HOLDER_KIND,
    image,
    command: ['/bin/sleep', 'infinity'],
    user: `${NOBODY}:${NOBODY}`,
    network: network.name,
    memoryBytes: HOLDER_BYTES,
  });
}

/** One container on each node. */
function nodeServiceSpec(instance: string, service: NodeServiceOptions): NodeServiceSpec {
  const owner = { instance, kind: service.kind, id: '' };
  const TaskTemplate = {
    ContainerSpec: {
      Image: service.image.reference,
      Labels: labelsOf(owner),
      Command: service.command,
      Env: service.environment ?? [],
      User: service.user,
      CapabilityAdd: service.capabilities ?? [],
      CapabilityDrop: ['ALL'],
      ReadOnly: true,
      StopSignal: 'SIGKILL',
      Healthcheck: { Test: ['NONE'] },
      Mounts: [...service.image.mounts, ...(service.mounts ?? [])].map(mount => ({
        Type: mount.type,
        Source: mount.source,
        Target: mount.target,
        ReadOnly: mount.readOnly,
      })),
    },
    Resources: { Limits: { MemoryBytes: service.memoryBytes, Pids: 32 } },
    RestartPolicy: { Condition: 'any', Delay: SECOND_NS },
    Placement: { Constraints: [`engine.labels.${NODE_LABEL}==yes`] },
    Networks: [{ Target: service.network }],
    LogDriver: { Name: 'none' },
  };
  const digest = createHash('sha256').update(JSON.stringify(TaskTemplate)).digest('hex');
  return {
    Name: resourceName({ ...owner, id: 'nodes' }),
    Labels: { ...labelsOf(owner), [SPEC_LABEL]: digest.slice(0, 16) },
    TaskTemplate,
    Mode: { Global: {} },
    // All nodes at once.
    UpdateConfig: { Parallelism: 0, FailureAction: 'continue', Order: 'stop-first' },
  };
}
