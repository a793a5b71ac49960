// The containers of jobs: starts them from a plan, reports their state, and removes them.
import { existsSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { type ContainerPlan, ownershipOf } from '../../domain/container/container-plan.ts';
import { type Containers, EngineRefused, type Network, NetworkMissing } from '../engine.ts';
import { isRefused, unlessRefused } from './client.ts';
import { createContainer, type EngineContext, throwIfVolumeLost } from './create-container.ts';
import { readArchive, statPath } from './read-archive.ts';
import { UNCHANGED_AT } from './skeleton.ts';
import { inspectContainer, waitForExit } from './wait-for-exit.ts';

/** Missing if the kernel has no IPv6. Docker would refuse the setting then. */
const LOOPBACK_IPV6 = '/proc/sys/net/ipv6/conf/lo';

export function createContainers(
  context: EngineContext,
  {
    protect,
  }: {
    /** Resolves when the firewall rules of the network are active. */
    protect(network: string): ReturnType<Network['protectNetwork']>;
  },
): Containers {
  const { docker, call, instance, internalContainers } = context;
  const ofInstance = { label: [`assay.instance=${instance}`] };
  let processors: number | undefined;

  return {
    inspectContainer: container => inspectContainer(context, container),
    waitForExit: (container, signal) => waitForExit(context, container, signal),
    removeContainer: container => removeContainer(context, container),

    async startContainer(plan) {
      const isProtected = protect(plan.network);
      // Awaited after the creation of the container, which runs in parallel.
      isProtected.catch(() => {});
      // Docker refuses a limit above the number of processors.
      processors ??= (await call('info', () => docker.info())).NCPU as number;
      const containerId = await createOrFind(context, {
        ...plan,
        limits: { ...plan.limits, cpus: Math.min(plan.limits.cpus, processors) },
      });
      await isProtected;
      try {
        await call('start a container', () => docker.getContainer(containerId).start());
      } catch (error) {
        // 304: it is already running.
        if (isRefused(error, 304)) return containerId;
        if (error instanceof EngineRefused) {
          await removeContainer(context, containerId);
          await throwIfVolumeLost(context, plan.mounts);
        }
        if (isRefused(error, 404)) throw new NetworkMissing(error.message);
        throw error;
      }
      return containerId;
    },

    async stopContainer(container) {
      // 409: it does not run.
      await unlessRefused([404, 409], () =>
        call('stop a container', () => docker.getContainer(container).kill({ signal: 'KILL' })),
      );
    },

    async readContainer({ container, directory, inside }, read, signal) {
      const source = docker.getContainer(container);
      const segments = inside === '' ? [] : inside.split('/');
      const paths = [
        directory,
        ...segments.map((_, at) => `${directory}/${segments.slice(0, at + 1).join('/')}`),
      ];
      for (const path of paths) {
        const found = await statPath(context, source, path);
        // Docker would follow a link, and reads as root.
        if (!found || (!found.isDirectory && path !== paths.at(-1))) return undefined;
        if (path === directory && found.modifiedAt.getTime() === UNCHANGED_AT) return undefined;
      }
      return unlessRefused([404], () => readArchive(context, source, paths.at(-1) as string, read, signal));
    },

    async listContainers() {
      const found = await call('list containers', () =>
        docker.listContainers({ all: true, filters: ofInstance }),
      );
      return found.flatMap(({ Id, Names, Labels, State }) => {
        const owner = ownershipOf(Labels);
        const name = (Names[0] ?? '').replace(/^\//, '');
        return owner && !internalContainers.has(name)
          ? [{ containerId: Id, name, owner, running: State === 'running' }]
          : [];
      });
    },

    async listStorage({ layers }) {
      const filters = { ...ofInstance, status: ['running'] };
      const found = await call('measure containers', () => docker.listContainers({ size: layers, filters }));
      return found.flatMap(container => {
        const owner = ownershipOf(container.Labels);
        const volumes = container.Mounts.flatMap(({ Type, Name, Destination }) =>
          Type === 'volume' && Name ? [{ name: Name, target: Destination }] : [],
        );
        return owner ? [{ owner, layerBytes: (container as { SizeRw?: number }).SizeRw ?? 0, volumes }] : [];
      });
    },
  };
}

/** Returns the id of the plan's container. Reuses one that an earlier call with the same plan created. */
async function createOrFind(context: EngineContext, plan: ContainerPlan, retriesLeft = 3): Promise<string> {
  const { docker, call } = context;
  try {
    return (await createContainer(context, plan, jobOptions(plan))).id;
  } catch (error) {
    if (!isRefused(error, 409) || retriesLeft === 0) throw error;
  }
  const container = docker.getContainer(plan.name);
  const sameId = await unlessRefused([404], async () => {
    const found = await call('inspect a container', () => container.inspect());
    if (!isDeepStrictEqual(ownershipOf(found.Config.Labels), plan.owner))
      throw new EngineRefused(`A container called ${plan.name} exists and does not belong to this server.`);
    const isSame = isDeepStrictEqual(found.Config.Entrypoint, plan.command);
    if (isSame && found.State.Status !== 'removing') return found.Id;
    // It belongs to an earlier attempt.
    await removeContainer(context, plan.name);
    await call('wait for a container', () => container.wait({ condition: 'removed' }));
    return undefined;
  });
  return sameId ?? (await createOrFind(context, plan, retriesLeft - 1));
}

const ENDED_BEFORE_KILL = /is not running/;

async function removeContainer({ docker, call }: EngineContext, container: string): Promise<void> {
  const remove = () =>
    // 409: another call is removing it already.
    unlessRefused([404, 409], () =>
      call('remove a container', () => docker.getContainer(container).remove({ force: true, v: true })),
    );
  await remove().catch(error => {
    // Docker 20.10 refuses if the container ends by itself just before Docker kills it.
    if (isRefused(error, 500) && ENDED_BEFORE_KILL.test(error.message)) return remove();
    throw error;
  });
}

/** The options of a job's container, in addition to those that all containers share. */
const jobOptions = ({ limits, ...plan }: ContainerPlan) => ({
  User: `${limits.runAs.uid}:${limits.runAs.gid}`,
  Env: Object.entries(plan.environment).map(([name, content]) => `${name}=${content}`),
  WorkingDir: plan.workingDirectory,
  HostConfig: {
    NetworkMode: plan.network,
    PidsLimit: limits.pids,
    ShmSize: limits.shmBytes,
    // Docker writes ::1 to /etc/hosts, and switches IPv6 off even on the loopback interface.
    Sysctls: existsSync(LOOPBACK_IPV6) ? { 'net.ipv6.conf.lo.disable_ipv6': '0' } : {},
    Memory: limits.memoryBytes,
    MemorySwap: limits.memoryBytes,
    NanoCpus: Math.round(limits.cpus * 1e9),
  },
});
