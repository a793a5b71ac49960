// The containers of jobs: starts them from a plan, reports their state, and removes them.
import { existsSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { type ContainerPlan, ownershipOf } from '../../domain/container/container-plan.ts';
import { type Containers, EngineRefused, NetworkMissing } from '../engine.ts';
import { isRefused, unlessRefused } from './client.ts';
import { createContainer, type EngineContext, throwIfVolumeLost } from './create-container.ts';
import type { DockerNetwork } from './network.ts';
import { readArchive, statPath } from './read-archive.ts';
import { joinedIn, modeOf, noSandboxes, SANDBOX_KIND, type Sandbox, type Sandboxes } from './sandbox.ts';
import { UNCHANGED_AT } from './skeleton.ts';
import { inspectContainer, waitForExit } from './wait-for-exit.ts';

/** Missing if the kernel has no IPv6. Docker would refuse the setting then. */
const LOOPBACK_IPV6 = '/proc/sys/net/ipv6/conf/lo';

export function createContainers(
  context: EngineContext,
  {
    startProtected = (_network, start) => start(Promise.resolve()),
    sandboxes = noSandboxes,
  }: {
    startProtected?: DockerNetwork['startProtected'];
    sandboxes?: Sandboxes;
  } = {},
): Containers {
  const { call, instance, internalContainers } = context;
  const ofInstance = { label: [`assay.instance=${instance}`] };
  let processors: number | undefined;
  /** The containers that this process started, by name. */
  const started = new Map<string, { containerId?: string; sandbox: Sandbox | undefined }>();

  /** Removes the sandbox that it has joined, too. */
  const remove = async (container: string) => {
    await removeContainer(context, container);
    const [name, found] =
      started.entries().find(([name, one]) => name === container || one.containerId === container) ?? [];
    if (name === undefined) return;
    started.delete(name);
    if (found?.sandbox) await sandboxes.remove(found.sandbox);
    if (started.size === 0) sandboxes.prepareSoon(() => started.size > 0);
  };
  /** Uses a sandbox if one is ready, unless the container exists already. */
  const createJoined = async (plan: ContainerPlan): Promise<string> => {
    const before = started.get(plan.name);
    const sandbox = sandboxes.take(plan.network);
    // Set before the answer: Docker may create the container even if no answer arrives.
    started.set(plan.name, { sandbox: sandbox ?? before?.sandbox });
    const settle = async (entry: typeof before, unused: Sandbox | undefined) => {
      if (entry) started.set(plan.name, entry);
      else started.delete(plan.name);
      if (unused) await sandboxes.remove(unused);
    };
    try {
      const { containerId, isNew } = await createOrFind(context, plan, sandbox);
      // A new one replaces that of an earlier attempt.
      if (isNew) await settle({ containerId, sandbox }, before?.sandbox);
      else await settle({ containerId, sandbox: before?.sandbox }, sandbox);
      return containerId;
    } catch (error) {
      if (error instanceof EngineRefused) await settle(before, sandbox);
      throw error;
    }
  };

  const startContainer: Containers['startContainer'] = plan =>
    startProtected(plan.network, isProtected => start(plan, isProtected));
  /** Creates the container while the rules are checked. */
  const start = async (plan: ContainerPlan, isProtected: Promise<unknown>): Promise<string> => {
    // Docker refuses a limit above the number of processors.
    processors ??= (await call('info', docker => docker.info())).NCPU as number;
    const containerId = await createJoined({
      ...plan,
      limits: { ...plan.limits, cpus: Math.min(plan.limits.cpus, processors) },
    });
    await isProtected;
    try {
      await call('start a container', docker => docker.getContainer(containerId).start());
    } catch (error) {
      // 304: it is already running.
      if (isRefused(error, 304)) return containerId;
      if (error instanceof EngineRefused) {
        const isJoined = started.get(plan.name)?.sandbox !== undefined;
        await remove(containerId);
        // Its sandbox may have ended, for example with Docker.
        if (isJoined) return startContainer(plan);
        await throwIfVolumeLost(context, plan.mounts);
      }
      if (isRefused(error, 404)) throw new NetworkMissing(error.message);
      throw error;
    }
    return containerId;
  };

  return {
    inspectContainer: container => inspectContainer(context, container),
    waitForExit: (container, signal) => waitForExit(context, container, signal),
    removeContainer: remove,
    startContainer,

    async stopContainer(container) {
      // 409: it does not run.
      await unlessRefused([404, 409], () =>
        call('stop a container', docker => docker.getContainer(container).kill({ signal: 'KILL' })),
      );
    },

    async readContainer({ container, directory, inside }, read, signal) {
      const segments = inside === '' ? [] : inside.split('/');
      const paths = [
        directory,
        ...segments.map((_, at) => `${directory}/${segments.slice(0, at + 1).join('/')}`),
      ];
      for (const path of paths) {
        const found = await statPath(context, container, path);
        // Docker would follow a link, and reads as root.
        if (!found || (!found.isDirectory && path !== paths.at(-1))) return undefined;
        if (path === directory && found.modifiedAt.getTime() === UNCHANGED_AT) return undefined;
      }
      return unlessRefused([404], () =>
        readArchive(context, container, paths.at(-1) as string, read, signal),
      );
    },

    async listContainers() {
      const found = await call('list containers', docker =>
        docker.listContainers({ all: true, filters: ofInstance }),
      );
      const joined = joinedIn(found);
      return found.flatMap(({ Id, Names, Labels, State }) => {
        const owner = ownershipOf(Labels);
        const name = (Names[0] ?? '').replace(/^\//, '');
        const isUsed = internalContainers.has(name) || (owner?.kind === SANDBOX_KIND && joined.has(Id));
        return owner && !isUsed ? [{ containerId: Id, name, owner, running: State === 'running' }] : [];
      });
    },

    async listStorage({ layers }) {
      const filters = { ...ofInstance, status: ['running'] };
      const found = await call('measure containers', docker =>
        docker.listContainers({ size: layers, filters }),
      );
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

/** Creates the plan's container, or finds one that an earlier call with the same plan created. */
async function createOrFind(
  context: EngineContext,
  plan: ContainerPlan,
  sandbox: Sandbox | undefined,
  retriesLeft = 3,
): Promise<{ containerId: string; isNew: boolean }> {
  const { call } = context;
  try {
    const { id } = await createContainer(context, plan, jobOptions(plan, sandbox));
    return { containerId: id, isNew: true };
  } catch (error) {
    if (!isRefused(error, 409) || retriesLeft === 0) throw error;
  }
  const sameId = await unlessRefused([404], async () => {
    const found = await call('inspect a container', docker => docker.getContainer(plan.name).inspect());
    if (!isDeepStrictEqual(ownershipOf(found.Config.Labels), plan.owner))
      throw new EngineRefused(`A container called ${plan.name} exists and does not belong to this server.`);
    const isSame = isDeepStrictEqual(found.Config.Entrypoint, plan.command);
    if (isSame && found.State.Status !== 'removing') return found.Id;
    // It belongs to an earlier attempt.
    await removeContainer(context, plan.name);
    await call('wait for a container', docker =>
      docker.getContainer(plan.name).wait({ condition: 'removed' }),
    );
    return undefined;
  });
  if (sameId !== undefined) return { containerId: sameId, isNew: false };
  return await createOrFind(context, plan, sandbox, retriesLeft - 1);
}

const ENDED_BEFORE_KILL = /is not running/;

/** Docker writes ::1 to /etc/hosts, and switches IPv6 off even on the loopback interface. */
export const networkSysctls = (): Record<string, string> =>
  existsSync(LOOPBACK_IPV6) ? { 'net.ipv6.conf.lo.disable_ipv6': '0' } : {};

export async function removeContainer({ call }: EngineContext, container: string): Promise<void> {
  const remove = () =>
    // 409: another call is removing it already.
    unlessRefused([404, 409], () =>
      call('remove a container', docker => docker.getContainer(container).remove({ force: true, v: true })),
    );
  await remove().catch(error => {
    // Docker 20.10 refuses if the container ends by itself just before Docker kills it.
    if (isRefused(error, 500) && ENDED_BEFORE_KILL.test(error.message)) return remove();
    throw error;
  });
}

/** The options of a job's container, in addition to those that all containers share. */
const jobOptions = ({ limits, ...plan }: ContainerPlan, sandbox: Sandbox | undefined) => ({
  User: `${limits.runAs.uid}:${limits.runAs.gid}`,
  Env: Object.entries(plan.environment).map(([name, content]) => `${name}=${content}`),
  WorkingDir: plan.workingDirectory,
  HostConfig: {
    NetworkMode: sandbox ? modeOf(sandbox) : plan.network,
    PidsLimit: limits.pids,
    ShmSize: limits.shmBytes,
    // Those of its network are set for the sandbox.
    Sysctls: sandbox ? {} : networkSysctls(),
    Memory: limits.memoryBytes,
    MemorySwap: limits.memoryBytes,
    NanoCpus: Math.round(limits.cpus * 1e9),
  },
});
