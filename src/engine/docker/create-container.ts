// Creates every container, with the restrictions that all of them share, and those that the engine uses for its own work.
import { randomBytes } from 'node:crypto';
import { labelsOf, type Mount, type Ownership, ownershipOf } from '../../domain/container/container-plan.ts';
import { EngineRefused, ImageMissing, LOST_VOLUME_KIND, VolumeLost } from '../engine.ts';
import {
  type DockerClient,
  type DockerContainer,
  type DockerContainerOptions,
  isRefused,
  unlessRefused,
} from './client.ts';

/** What the parts of an engine share. */
export type Scope = DockerClient & {
  instance: string;
  /** The names of containers that the engine is using for its own work. */
  internalContainers: Set<string>;
};

type ContainerSpec = {
  name: string;
  owner: Ownership;
  image: string;
  command: string[];
  mounts?: readonly Mount[];
};

/** Throws ImageMissing, and VolumeLost where the creation copies to a volume that is gone. */
export async function createContainer(
  scope: Scope,
  { name, owner, image, command, mounts = [] }: ContainerSpec,
  { HostConfig, ...options }: DockerContainerOptions = {},
): Promise<DockerContainer> {
  const { docker, call } = scope;
  try {
    return await call('create a container', () =>
      docker.createContainer({
        name,
        Image: image,
        Labels: labelsOf(owner),
        // As entrypoint, so that one of the image is not put before it.
        Entrypoint: command,
        Cmd: [],
        Healthcheck: { Test: ['NONE'] },
        // The entry script ignores other signals: `docker stop`, or a Docker that shuts down, would wait for nothing.
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
    // 409: there is a container of that name, and no volume was touched.
    if (error instanceof EngineRefused && !isRefused(error, 409)) await throwIfVolumeLost(scope, mounts);
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
 * Docker creates a volume that is to be mounted and does not exist, empty: a lost artifact would look like one without
 * files. A volume with these options cannot be mounted, so the start fails instead. They have no effect on a volume that
 * exists.
 */
export const placeholderFor = (instance: string) => ({
  Labels: labelsOf({ instance, kind: LOST_VOLUME_KIND, id: '' }),
  DriverConfig: { Name: 'local', Options: { type: 'none', o: 'bind', device: '/nonexistent/assay-lost' } },
});

/** Undefined also for a placeholder. */
export async function findVolume(scope: Scope, name: string) {
  const found = await inspectVolume(scope, name);
  return found && !isPlaceholder(found) ? found : undefined;
}

export const inspectVolume = ({ docker, call }: Scope, name: string) =>
  unlessRefused([404], () => call('inspect a volume', () => docker.getVolume(name).inspect()));

export const isPlaceholder = ({ Labels }: { Labels?: Record<string, string> | null }) =>
  ownershipOf(Labels)?.kind === LOST_VOLUME_KIND;

/** Says so where Docker could not mount a volume because it is gone, and removes what stands in its place. */
export async function throwIfVolumeLost(scope: Scope, mounts: readonly Mount[]): Promise<void> {
  for (const { type, source, owner } of mounts) {
    if (type !== 'volume' || owner) continue;
    const found = await inspectVolume(scope, source);
    if (!found || !isPlaceholder(found)) continue;
    await unlessRefused([404, 409], () =>
      scope.call('remove a volume', () => scope.docker.getVolume(source).remove()),
    );
    throw new VolumeLost(`Docker has lost the volume ${source}.`);
  }
}

type InternalContainerSpec = Omit<ContainerSpec, 'name' | 'owner'> & { kind: string };

/** Creates a container for the engine's own work, for as long as `work` takes. `work` may start it. */
export async function withInternalContainer<T>(
  scope: Scope,
  spec: InternalContainerSpec,
  options: DockerContainerOptions,
  work: (container: DockerContainer) => Promise<T>,
): Promise<T> {
  const { name, owner } = nameInternalContainer(scope, spec.kind);
  scope.internalContainers.add(name);
  try {
    const container = await createContainer(scope, { ...spec, name, owner }, options);
    try {
      return await work(container);
    } finally {
      await scope.call('remove a container', () => container.remove({ force: true, v: true }));
    }
  } finally {
    scope.internalContainers.delete(name);
  }
}

/** Under a new name each time: the one before it may be about to be removed. */
export const nameInternalContainer = ({ instance }: Scope, kind: string) => ({
  name: `assay-${instance}-${kind}-${randomBytes(4).toString('hex')}`,
  owner: { instance, kind, id: '' },
});
