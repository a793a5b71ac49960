// The service of an attempt, as Swarm gets it.
import { existsSync } from 'node:fs';
import {
  type ContainerPlan,
  labelsOf,
  type Mount,
  type RemotePlan,
} from '../../domain/container/container-plan.ts';
import { guardedCommand, NODE_VARIABLE } from '../../domain/container/remote-script.ts';
import { NODE_LABEL, SERVICE_LABEL, SLOT_RESOURCE } from '../../domain/swarm.ts';
import type { ServiceSpec } from '../docker/client.ts';
import type { SecretReference } from './secrets.ts';
import { taskLabels } from './tasks.ts';

/** The name of the plan. */
export const NAME_LABEL = 'assay.name';
const LOOPBACK_IPV6 = '/proc/sys/net/ipv6/conf/lo';

type Prepared = {
  /** By digest. */
  image: string;
  /** The fingerprint that /usr of the node must have, or empty. */
  usr: string;
  network: string;
  /** Binds only. */
  mounts: readonly Mount[];
  secrets: readonly (SecretReference & { path: string })[];
  cpus: number;
  /** The ID of the node that must run it. Undefined: Swarm finds one with a free slot. */
  node: string | undefined;
  /** The IDs of nodes that must not run it. */
  excluded: readonly string[];
};

export function serviceSpec(
  service: string,
  plan: ContainerPlan,
  remote: RemotePlan,
  prepared: Prepared,
): ServiceSpec {
  const { uid, gid } = plan.limits.runAs;
  const { nonce } = remote;
  const { node } = prepared;
  const seconds = (remote.deadlineAt - Date.now()) / 1000;
  const spec = {
    Name: service,
    Labels: { ...labelsOf(plan.owner), [NAME_LABEL]: plan.name, [SERVICE_LABEL]: service },
    TaskTemplate: {
      ContainerSpec: {
        Image: prepared.image,
        Labels: taskLabels(plan.owner),
        Command: guardedCommand({ nonce, seconds, usr: prepared.usr }),
        // Docker replaces templates here, so nothing that users write may be in it.
        Env: [NODE_VARIABLE],
        User: `${uid}:${gid}`,
        Dir: plan.workingDirectory,
        CapabilityDrop: ['ALL'],
        // From Docker 25. Before that, the guard script sets it.
        Privileges: { NoNewPrivileges: true },
        HealthCheck: { Test: ['NONE'] },
        StopSignal: 'SIGKILL',
        StopGracePeriod: 0,
        Sysctls: existsSync(LOOPBACK_IPV6) ? { 'net.ipv6.conf.lo.disable_ipv6': '0' } : {},
        Mounts: [
          ...prepared.mounts.map(({ source, target, readOnly }) => ({
            Type: 'bind',
            Source: source,
            Target: target,
            ReadOnly: readOnly,
          })),
          {
            Type: 'tmpfs',
            Target: '/dev/shm',
            TmpfsOptions: { SizeBytes: plan.limits.shmBytes, Mode: 0o777 },
          },
        ],
        Secrets: prepared.secrets.map(({ path, ...secret }) => ({
          ...secret,
          File: { Name: path, UID: String(uid), GID: String(gid), Mode: 0o400 },
        })),
      },
      Resources: {
        Limits: {
          NanoCPUs: Math.round(prepared.cpus * 1e9),
          MemoryBytes: plan.limits.memoryBytes,
          Pids: plan.limits.pids,
        },
        // On a chosen node, it does not wait for a slot.
        Reservations:
          node === undefined
            ? { GenericResources: [{ DiscreteResourceSpec: { Kind: SLOT_RESOURCE, Value: 1 } }] }
            : {},
      },
      RestartPolicy: { Condition: 'none' },
      LogDriver: { Name: 'none' },
      Networks: [{ Target: prepared.network }],
      Placement: {
        Constraints: [
          `engine.labels.${NODE_LABEL}==yes`,
          ...(node === undefined ? prepared.excluded.map(id => `node.id!=${id}`) : [`node.id==${node}`]),
        ],
      },
    },
    Mode: { Replicated: { Replicas: 1 } },
  };
  return spec as ServiceSpec;
}
