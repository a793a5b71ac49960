// Creates, fills, reads and removes volumes. It accesses their content through a container that mounts the volume and is
// never started, so that the server needs no access to Docker's directories.
import { pipeline } from 'node:stream/promises';
import { isDeepStrictEqual } from 'node:util';
import { labelsOf, type Mount, type Ownership, ownershipOf } from '../../domain/container/container-plan.ts';
import {
  type PreparedImage,
  VOLUME_DIRECTORY,
  type VolumeDirectory,
  VolumeLost,
  type Volumes,
} from '../engine.ts';
import { type DockerContainer, isRefused } from './client.ts';
import {
  type EngineContext,
  findVolume,
  inspectVolume,
  isPlaceholder,
  withInternalContainer,
} from './create-container.ts';
import { measureVolumes } from './disk-usage.ts';
import { failWhenStalled, readArchive, statPath } from './read-archive.ts';

const MAX_TRANSFER_MS = 6 * 3600_000;
/** The kernel accepts one page of mount options. */
const MAX_OPTIONS_LENGTH = 4_000;

/** The user that commands run as owns the directory for volumes in `hostImage`: an empty volume takes its owner. */
export function createVolumes(
  context: EngineContext,
  hostImage: () => Promise<PreparedImage>,
  /** Where the content of a volume is, if not in Docker's own directory. */
  directoryOf?: (name: string) => string,
): Volumes {
  const { call, instance } = context;

  async function withVolume<T>(volume: string, work: (container: DockerContainer) => Promise<T>): Promise<T> {
    const { reference: image } = await hostImage();
    const mount: Mount = { type: 'volume', source: volume, target: VOLUME_DIRECTORY, readOnly: false };
    return withInternalContainer(
      context,
      { kind: 'volume', image, command: ['/bin/sh'], mounts: [mount] },
      {},
      work,
    );
  }

  const removeVolume: Volumes['removeVolume'] = async (name, limits) => {
    try {
      await call('remove a volume', docker => docker.getVolume(name).remove(), limits);
    } catch (error) {
      if (isRefused(error, 409)) return false;
      if (!isRefused(error, 404)) throw error;
    }
    return true;
  };

  /** Docker returns an existing volume of that name, whatever its options are. */
  async function create(name: string, owner: Ownership, options: Record<string, string>): Promise<void> {
    const send = () =>
      call('create a volume', docker =>
        docker.createVolume({ Name: name, Labels: labelsOf(owner), Driver: 'local', DriverOpts: options }),
      );
    await send();
    const found = await inspectVolume(context, name);
    if (!found || (!isPlaceholder(found) && isDeepStrictEqual(found.Options ?? {}, options))) return;
    await removeVolume(name);
    await send();
  }

  async function hostPath({ volume, inside }: VolumeDirectory): Promise<string> {
    const found = await findVolume(context, volume);
    if (!found) throw new VolumeLost(`Docker has lost the volume ${volume}.`);
    const path = inside === '' ? found.Mountpoint : `${found.Mountpoint}/${inside}`;
    // A colon separates layers.
    return path.replace(/[\\:]/g, '\\$&');
  }

  return {
    createVolume: ({ name, owner }) =>
      create(name, owner, directoryOf ? { type: 'none', o: 'bind', device: directoryOf(name) } : {}),

    async createUnion({ name, owner, layers, writable }) {
      const lower = (await Promise.all(layers.map(hostPath))).join(':');
      const upper = writable && (await hostPath({ volume: writable.volume, inside: '' }));
      const o = `lowerdir=${lower}${writable ? `,upperdir=${upper}/${writable.upper},workdir=${upper}/${writable.work}` : ''}`;
      if (o.length > MAX_OPTIONS_LENGTH) return false;
      await create(name, owner, { type: 'overlay', device: 'overlay', o });
      return true;
    },

    hasVolume: async name => (await findVolume(context, name)) !== undefined,

    claimVolume: name => withVolume(name, async () => {}),

    fillVolume: (name, open) =>
      withVolume(name, async container => {
        const failed = new AbortController();
        const moving = failWhenStalled();
        const sent = pipeline(open(), moving).catch(error => {
          failed.abort(error);
          throw error;
        });
        // Unpack at the root: Docker refuses a link that leads out of the directory.
        const filled = call('fill a volume', () => container.putArchive(moving, { path: '/' }), {
          deadlineMs: MAX_TRANSFER_MS,
          signal: failed.signal,
        });
        // Without a reader, the sender must not wait.
        filled.catch(() => moving.destroy());
        for (const result of await Promise.allSettled([filled, sent]))
          if (result.status === 'rejected') throw result.reason;
      }),

    readVolume: ({ volume, inside }, read) =>
      withVolume(volume, container => readArchive(context, container.id, pathOf(inside), read)),

    hasDirectory: ({ volume, inside }) =>
      withVolume(
        volume,
        async container => (await statPath(context, container.id, pathOf(inside)))?.isDirectory ?? false,
      ),

    measureVolumes: async names =>
      names.length === 0 ? new Map() : measureVolumes(context, await hostImage(), names),

    async listVolumes() {
      const filters = JSON.stringify({ label: [`assay.instance=${instance}`] });
      const found = await call('list volumes', docker => docker.listVolumes({ filters: filters as never }));
      return (found.Volumes ?? []).flatMap(volume => {
        const owner = ownershipOf(volume.Labels);
        const createdAt = new Date((volume as { CreatedAt?: string }).CreatedAt ?? 0);
        return owner ? [{ name: volume.Name, owner, createdAt }] : [];
      });
    },

    removeVolume,
  };
}

const pathOf = (inside: string) => (inside === '' ? VOLUME_DIRECTORY : `${VOLUME_DIRECTORY}/${inside}`);
