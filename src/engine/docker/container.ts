// Owns containers and volumes: carries a plan out, tells what became of it, and cleans up by label.
// What a container is to be is src/domain/container/container-plan.ts's; its output, output.ts's.
import { existsSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import {
  type ContainerPlan,
  labelsOf,
  type Ownership,
  ownershipOf,
} from '../../domain/container/container-plan.ts';
import type { DockerDoor } from './docker.ts';
import {
  type CallLimits,
  type DoorSettings,
  EngineRefused,
  EngineUnavailable,
  ImageMissing,
  isRefused,
  openDocker,
  VolumeLost,
} from './docker.ts';
import { findVolume, isStandIn, standInFor } from './volume.ts';

export interface ContainerState {
  running: boolean;
  /** Undefined while it runs and when it never started. */
  exitCode: number | undefined;
  oomKilled: boolean;
  startedAt: Date | undefined;
}

export interface OwnedContainer {
  containerId: string;
  name: string;
  owner: Ownership;
  running: boolean;
  createdAt: Date;
}

export interface OwnedVolume {
  name: string;
  owner: Ownership;
  createdAt: Date;
}

export interface ContainerStorage {
  owner: Ownership;
  layerBytes: number;
  volumes: { name: string; target: string }[];
}

export interface VolumePlan {
  name: string;
  labels: Ownership;
  /** Options of the local driver, such as an overlay's. */
  options?: Record<string, string>;
}

export type Engine = ReturnType<typeof createEngine>;

/** Missing where the kernel has no IPv6: then Docker would refuse the setting. */
const LOOPBACK_IPV6 = '/proc/sys/net/ipv6/conf/lo';
const WATCH_INTERVAL_MS = 15_000;

export function createEngine(settings: DoorSettings & { watchIntervalMs?: number }) {
  const door = openDocker(settings);
  const { docker, call } = door;
  const watchIntervalMs = settings.watchIntervalMs ?? WATCH_INTERVAL_MS;
  let processors: number | undefined;

  async function version(): Promise<{ engine: string; api: string; platform: string }> {
    const found = await call('version', () => docker.version());
    return { engine: found.Version, api: found.ApiVersion, platform: `${found.Os}/${found.Arch}` };
  }

  async function inspectContainer(containerId: string): Promise<ContainerState | undefined> {
    try {
      const found = await call('inspect a container', abortSignal =>
        docker.getContainer(containerId).inspect({ abortSignal }),
      );
      const state = found.State;
      const startedAt = new Date(state.StartedAt);
      const ended = !state.Running && state.Status !== 'created';
      return {
        running: state.Running,
        exitCode: ended ? state.ExitCode : undefined,
        oomKilled: state.OOMKilled,
        startedAt: startedAt.getTime() > 0 ? startedAt : undefined,
      };
    } catch (error) {
      if (isRefused(error, 404)) return undefined;
      throw error;
    }
  }

  /**
   * Creates and starts. After a crash between the two, or an answer that never came, calling it again with the
   * same plan finds the container by its name and goes on: the command is not run twice. Nothing is started before
   * `ready` has resolved.
   */
  async function startContainer(plan: ContainerPlan, ready?: Promise<unknown>): Promise<string> {
    // Awaited only when the container is there.
    ready?.catch(() => {});
    // Docker refuses a share of more processors than there are, which on a small machine would be every container.
    processors ??= (await call('info', () => docker.info())).NCPU as number;
    const containerId = await createOrFind(door, { ...plan, cpus: Math.min(plan.cpus, processors) });
    await ready;
    try {
      await call('start a container', abortSignal => docker.getContainer(containerId).start({ abortSignal }));
    } catch (error) {
      if (isRefused(error, 304)) return containerId;
      if (error instanceof EngineRefused) {
        await removeContainer(containerId);
        await clearStandIns(plan);
      }
      throw error;
    }
    return containerId;
  }

  /** Where a volume of the plan was lost, that is why it could not be started. */
  async function clearStandIns({ mounts }: ContainerPlan): Promise<void> {
    for (const { type, source, owner } of mounts) {
      if (type !== 'volume' || owner) continue;
      const found = await findVolume(door, source);
      if (!found || !isStandIn(found)) continue;
      await removeVolume(source);
      throw new VolumeLost(`Docker has lost the volume ${source}.`);
    }
  }

  /** Resolves when it no longer runs: undefined when it is gone. Throws EngineUnavailable when Docker died. */
  async function waitForExit(containerId: string, signal?: AbortSignal): Promise<ContainerState | undefined> {
    for (;;) {
      signal?.throwIfAborted();
      // The engine is asked again now and then: a wait may hang without its connection being closed.
      try {
        await call(
          'wait for a container',
          abortSignal => docker.getContainer(containerId).wait({ abortSignal }),
          {
            deadlineMs: watchIntervalMs,
            signal,
          },
        );
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!(error instanceof EngineUnavailable) && !isRefused(error, 404)) throw error;
      }
      const state = await inspectContainer(containerId);
      if (!state?.running) return state;
    }
  }

  /** Ends it at once; it stays there to be inspected. One that does not run or is gone is left as it is. */
  async function stopContainer(containerId: string): Promise<void> {
    await ignoring([404, 409], () =>
      call('stop a container', abortSignal =>
        docker.getContainer(containerId).kill({ signal: 'KILL', abortSignal }),
      ),
    );
  }

  async function removeContainer(containerId: string, { force = true, volumes = true } = {}): Promise<void> {
    // 409: somebody else is removing it already.
    await ignoring([404, 409], () =>
      call('remove a container', abortSignal =>
        docker.getContainer(containerId).remove({ force, v: volumes, abortSignal }),
      ),
    );
  }

  async function listContainers(instance: string): Promise<OwnedContainer[]> {
    const found = await call('list containers', abortSignal =>
      docker.listContainers({ all: true, filters: instanceFilter(instance), abortSignal }),
    );
    return found.flatMap(({ Id, Names, Labels, State, Created }) => {
      const owner = ownershipOf(Labels);
      const name = (Names[0] ?? '').replace(/^\//, '');
      const createdAt = new Date(Created * 1000);
      return owner ? [{ containerId: Id, name, owner, running: State === 'running', createdAt }] : [];
    });
  }

  /**
   * The running containers of the instance with what they can write to, in one call. With `layers` Docker counts the
   * bytes of their writable layers on the spot, which takes longer the more files they hold.
   */
  async function listStorage(instance: string, { layers }: { layers: boolean }): Promise<ContainerStorage[]> {
    const filters = { ...instanceFilter(instance), status: ['running'] };
    const found = await call('measure containers', abortSignal =>
      docker.listContainers({ size: layers, filters, abortSignal }),
    );
    return found.flatMap(container => {
      const owner = ownershipOf(container.Labels);
      const volumes = container.Mounts.flatMap(({ Type, Name, Destination }) =>
        Type === 'volume' && Name ? [{ name: Name, target: Destination }] : [],
      );
      return owner ? [{ owner, layerBytes: (container as { SizeRw?: number }).SizeRw ?? 0, volumes }] : [];
    });
  }

  /** The directory on the engine's host that holds its containers and volumes. */
  async function findDataRoot(): Promise<string> {
    return (await call('info', () => docker.info())).DockerRootDir as string;
  }

  /** The same name twice is the same volume: Docker answers with the one that is there. */
  async function createVolume(plan: VolumePlan): Promise<void> {
    const create = () =>
      call('create a volume', abortSignal =>
        docker.createVolume({
          Name: plan.name,
          Labels: labelsOf(plan.labels),
          ...(plan.options ? { Driver: 'local', DriverOpts: plan.options } : {}),
          abortSignal,
        }),
      );
    await create();
    // Whose it is Docker tells only when it is asked.
    const made = await findVolume(door, plan.name);
    if (!made || !isStandIn(made)) return;
    await removeVolume(plan.name);
    await create();
  }

  async function listVolumes(instance: string): Promise<OwnedVolume[]> {
    const found = await call('list volumes', abortSignal =>
      docker.listVolumes({ filters: JSON.stringify(instanceFilter(instance)) as never, abortSignal }),
    );
    return (found.Volumes ?? []).flatMap(volume => {
      const owner = ownershipOf(volume.Labels);
      const createdAt = new Date((volume as { CreatedAt?: string }).CreatedAt ?? 0);
      return owner ? [{ name: volume.Name, owner, createdAt }] : [];
    });
  }

  /** False when a container still uses it. */
  async function removeVolume(name: string, limits: CallLimits = {}): Promise<boolean> {
    try {
      await call('remove a volume', abortSignal => docker.getVolume(name).remove({ abortSignal }), limits);
    } catch (error) {
      if (isRefused(error, 409)) return false;
      if (!isRefused(error, 404)) throw error;
    }
    return true;
  }

  return {
    door,
    version,
    startContainer,
    inspectContainer,
    waitForExit,
    stopContainer,
    removeContainer,
    listContainers,
    listStorage,
    findDataRoot,
    createVolume,
    listVolumes,
    removeVolume,
  };
}

async function createOrFind(door: DockerDoor, plan: ContainerPlan, triesLeft = 3): Promise<string> {
  const { docker, call } = door;
  try {
    const created = await call('create a container', abortSignal =>
      docker.createContainer({ ...creation(plan), abortSignal }),
    );
    return created.id;
  } catch (error) {
    if (isRefused(error, 404)) throw new ImageMissing(`Docker has no image ${plan.image}: import it first.`);
    if (!isRefused(error, 409) || triesLeft === 0) throw error;
  }
  const container = docker.getContainer(plan.name);
  let same: string | undefined;
  await ignoring([404], async () => {
    const found = await call('inspect a container', abortSignal => container.inspect({ abortSignal }));
    const owner = ownershipOf(found.Config.Labels);
    const { instance, kind, id } = plan.labels;
    if (owner?.instance !== instance || owner.kind !== kind || owner.id !== id) {
      throw new EngineRefused(`A container called ${plan.name} is there already, and is not ours.`, 409);
    }
    const isSame = isDeepStrictEqual(found.Config.Entrypoint, plan.command);
    if (isSame && found.State.Status !== 'removing') {
      same = found.Id;
      return;
    }
    // Left by an earlier attempt, which nobody follows any more; somebody else may be removing it just now.
    await ignoring([409], () =>
      call('remove a container', abortSignal => container.remove({ force: true, v: true, abortSignal })),
    );
    await call('wait for a container', abortSignal => container.wait({ condition: 'removed', abortSignal }));
  });
  return same ?? (await createOrFind(door, plan, triesLeft - 1));
}

/** The profile of every container that runs a job. They are created here and nowhere else. */
function creation(plan: ContainerPlan) {
  return {
    name: plan.name,
    Image: plan.image,
    Labels: labelsOf(plan.labels),
    User: plan.user,
    // As entrypoint, so that one the image has is not put before it.
    Entrypoint: plan.command,
    Cmd: [],
    Env: Object.entries(plan.environment).map(([name, content]) => `${name}=${content}`),
    WorkingDir: plan.workingDirectory,
    Healthcheck: { Test: ['NONE'] },
    // Its first process heeds no other: `docker stop`, and a Docker that goes down, would wait for nothing.
    StopSignal: 'SIGKILL',
    HostConfig: {
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges:true'],
      Privileged: false,
      IpcMode: 'private',
      NetworkMode: plan.network,
      PidsLimit: plan.pids,
      ShmSize: plan.shmBytes,
      // Docker writes ::1 to /etc/hosts and switches IPv6 off, on the loopback interface too.
      Sysctls: existsSync(LOOPBACK_IPV6) ? { 'net.ipv6.conf.lo.disable_ipv6': '0' } : {},
      Memory: plan.memoryBytes,
      MemorySwap: plan.memoryBytes,
      NanoCpus: Math.round(plan.cpus * 1e9),
      LogConfig: { Type: 'none', Config: {} },
      RestartPolicy: { Name: 'no' },
      Mounts: plan.mounts.map(({ type, source, target, readOnly, copy, owner }) => ({
        Type: type,
        Source: source,
        Target: target,
        ReadOnly: readOnly,
        ...(type === 'volume' && {
          VolumeOptions: {
            NoCopy: copy === false,
            ...(owner ? { Labels: labelsOf(owner), DriverConfig: {} as never } : standInFor(plan.labels)),
          },
        }),
      })),
    },
  };
}

function instanceFilter(instance: string) {
  return { label: [`assay.instance=${instance}`] };
}

async function ignoring(statuses: number[], work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!isRefused(error, ...statuses)) throw error;
  }
}
