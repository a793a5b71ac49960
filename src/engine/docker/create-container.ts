// Creates all containers with the restrictions that they share: those of jobs, and internal ones of the engine itself.
import { randomBytes } from 'node:crypto';
import {
  labelsOf,
  type Mount,
  type Ownership,
  ownershipOf,
  resourceName,
} from '../../domain/container/container-plan.ts';
import { EngineRefused, ImageMissing, LOST_VOLUME_KIND, VolumeLost } from '../engine.ts';
import {
  type DockerClient,
  type DockerContainer,
  type DockerContainerOptions,
  isRefused,
  unlessRefused,
} from './client.ts';

/** What the modules of an engine share. */
export type EngineContext = DockerClient & {
  instance: string;
  /** The names of the internal containers that are in use. */
  internalContainers: Set<string>;
  /** How often a wait for the exit of a container is renewed. */
  watchIntervalMs?: number | undefined;
};

type ContainerSpec = {
  name: string;
  owner: Ownership;
  image: string;
  command: string[];
  mounts?: readonly Mount[];
};

/** Throws ImageMissing, or VolumeLost if Docker should copy files to a volume that is gone. */
export async function createContainer(
  context: EngineContext,
  { name, owner, image, command, mounts = [] }: ContainerSpec,
  { HostConfig, ...options }: DockerContainerOptions = {},
): Promise<DockerContainer> {
  const { call } = context;
  try {
    return await call('create a container', docker =>
      docker.createContainer({
        name,
        Image: image,
        Labels: labelsOf(owner),
        // As the entrypoint, so that it replaces that of the image.
        Entrypoint: command,
        Cmd: [],
        Healthcheck: { Test: ['NONE'] },
        // The entry script ignores other signals: `docker stop` and a shutdown of Docker would wait until their timeout.
        StopSignal: 'SIGKILL',
        ...options,
        HostConfig: {
          NetworkMode: 'none',
          IpcMode: 'private',
          CapDrop: ['ALL'],
          SecurityOpt: ['no-new-privileges:true'],
          LogConfig: { Type: 'none', Config: {} },
          RestartPolicy: { Name: 'no' },
          ...HostConfig,
          Mounts: mounts.map(mount => mountOptions(mount, owner.instance)),
        },
      }),
    );
  } catch (error) {
    if (isRefused(error, 404)) throw new ImageMissing(`Docker has no image ${image}: import it first.`);
    // 409: a container of that name exists. No volume was touched.
    if (error instanceof EngineRefused && !isRefused(error, 409)) await throwIfVolumeLost(context, mounts);
    throw error;
  }
}

function mountOptions({ type, source, target, readOnly, copy, owner }: Mount, instance: string) {
  return {
    Type: type,
    Source: source,
    Target: target,
    ReadOnly: readOnly,
    ...(type === 'volume' && {
      VolumeOptions: {
        NoCopy: copy === false,
        ...(owner ? { Labels: labelsOf(owner), DriverConfig: {} as never } : placeholderFor(instance)),
      },
    }),
  };
}

/**
 * Docker creates a missing volume when it is mounted: a lost artifact would look like an empty one. A volume with these
 * options cannot be mounted, so the start fails instead. They have no effect on an existing volume.
 */
export const placeholderFor = (instance: string) => ({
  Labels: labelsOf({ instance, kind: LOST_VOLUME_KIND, id: '' }),
  DriverConfig: { Name: 'local', Options: { type: 'none', o: 'bind', device: '/nonexistent/assay-lost' } },
});

/** Undefined if it is missing or a placeholder. */
export async function findVolume(context: EngineContext, name: string) {
  const found = await inspectVolume(context, name);
  return found && !isPlaceholder(found) ? found : undefined;
}

export const inspectVolume = ({ call }: EngineContext, name: string) =>
  unlessRefused([404], () => call('inspect a volume', docker => docker.getVolume(name).inspect()));

export const isPlaceholder = ({ Labels }: { Labels?: Record<string, string> | null }) =>
  ownershipOf(Labels)?.kind === LOST_VOLUME_KIND;

/** Throws VolumeLost if Docker replaced a volume by a placeholder, and removes the placeholder. */
export async function throwIfVolumeLost(context: EngineContext, mounts: readonly Mount[]): Promise<void> {
  for (const { type, source, owner } of mounts) {
    if (type !== 'volume' || owner) continue;
    const found = await inspectVolume(context, source);
    if (!found || !isPlaceholder(found)) continue;
    await unlessRefused([404, 409], () =>
      context.call('remove a volume', docker => docker.getVolume(source).remove()),
    );
    throw new VolumeLost(`Docker has lost the volume ${source}.`);
  }
}

type InternalContainerSpec = Omit<ContainerSpec, 'name' | 'owner'> & { kind: string };

/** Creates an internal container for the duration of `work`, which may start it. */
export async function withInternalContainer<T>(
  context: EngineContext,
  spec: InternalContainerSpec,
  options: DockerContainerOptions,
  work: (container: DockerContainer) => Promise<T>,
): Promise<T> {
  const { name, owner } = nameInternalContainer(context, spec.kind);
  context.internalContainers.add(name);
  try {
    const container = await createContainer(context, { ...spec, name, owner }, options);
    try {
      return await work(container);
    } finally {
      await context.call('remove a container', () => container.remove({ force: true, v: true }));
    }
  } finally {
    context.internalContainers.delete(name);
  }
}

/** A new name each time, because the previous container may still be being removed. */
export const nameInternalContainer = ({ instance }: EngineContext, kind: string) => ({
  name: resourceName({ instance, kind, id: randomBytes(4).toString('hex') }),
  owner: { instance, kind, id: '' },
});
