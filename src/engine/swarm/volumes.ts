// Volumes of a swarm are directories on the shared file system, because volumes of other machines cannot be listed or
// removed through the manager. On the manager each has a Docker volume of the same name, so that it can be filled, read and
// measured like any other; services mount the directory.
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Mount, RunAs } from '../../domain/container/container-plan.ts';
import { type EngineContext, findVolume } from '../docker/create-container.ts';
import { createVolumes } from '../docker/volume.ts';
import { type PreparedImage, VolumeLost, type Volumes } from '../engine.ts';
import type { AsRoot } from './as-root.ts';

type SharedVolumes = Volumes & {
  pathOf(name: string): string;
  /** Creates those that are created on their first use. Throws VolumeLost if another is missing. */
  ensure(mounts: readonly Mount[]): Promise<void>;
};

export function createSharedVolumes(
  context: EngineContext,
  options: {
    directory: string;
    runAs: RunAs;
    hostImage(): Promise<PreparedImage>;
    asRoot: AsRoot;
    /** Whether a container on any node may use the volume. */
    isUsed(name: string): Promise<boolean>;
  },
): SharedVolumes {
  const { asRoot, runAs } = options;
  const pathOf = (name: string) => join(options.directory, name);
  const volumes = createVolumes(context, options.hostImage, pathOf);

  const createVolume: Volumes['createVolume'] = async volume => {
    const path = pathOf(volume.name);
    const created = await mkdir(path, { recursive: true });
    // Commands run as another user, and some programs check that it owns the directory.
    if (created !== undefined) {
      await chmod(path, 0o755);
      await asRoot.changeOwner(path, runAs);
    }
    await volumes.createVolume(volume);
  };

  return {
    ...volumes,
    pathOf,
    createVolume,
    async ensure(mounts) {
      for (const { type, source: name, owner } of mounts) {
        if (type !== 'volume') continue;
        if (await findVolume(context, name)) continue;
        if (!owner) throw new VolumeLost(`Docker has lost the volume ${name}.`);
        await createVolume({ name, owner });
      }
    },
    async removeVolume(name, limits) {
      if (await options.isUsed(name)) return false;
      if (!(await volumes.removeVolume(name, limits))) return false;
      await asRoot.removeTree(pathOf(name));
      return true;
    },
  };
}
