// Changes files on the shared file system that belong to the users of containers, with a short-lived container on the
// manager, because the server need not be root.
import { chown, rm } from 'node:fs/promises';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { type EngineContext, withInternalContainer } from '../docker/create-container.ts';
import { runToExit } from '../docker/wait-for-exit.ts';
import { EngineRefused, type PreparedImage } from '../engine.ts';

const DIRECTORY = '/srv/.assay/shared';
const DEADLINE_MS = 30 * 60_000;
const MEMORY_BYTES = 256 * 1024 ** 2;

export type AsRoot = {
  /** Paths are in the shared directory. */
  removeTree(path: string): Promise<void>;
  changeOwner(path: string, owner: RunAs): Promise<void>;
};

export function createAsRoot(
  context: EngineContext,
  shared: string,
  hostImage: () => Promise<PreparedImage>,
): AsRoot {
  async function run(command: string[], path: string): Promise<void> {
    if (!path.startsWith(`${shared}/`)) throw new Error(`${path} is not in the shared directory`);
    const inside = `${DIRECTORY}${path.slice(shared.length)}`;
    const { reference: image, mounts } = await hostImage();
    const spec = {
      kind: 'files',
      image,
      command: [...command, '--', inside],
      mounts: [...mounts, { type: 'bind' as const, source: shared, target: DIRECTORY, readOnly: false }],
    };
    const options = {
      User: '0:0',
      HostConfig: {
        CapAdd: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER'],
        Memory: MEMORY_BYTES,
        MemorySwap: MEMORY_BYTES,
        PidsLimit: 16,
      },
    };
    await withInternalContainer(context, spec, options, async container => {
      const limits = { action: 'change shared files', deadlineMs: DEADLINE_MS };
      const status = await runToExit(context, container, limits);
      if (status !== 0) throw new EngineRefused(`${command[0]} ended with ${status} for ${path}.`);
    });
  }

  return {
    async removeTree(path) {
      try {
        await rm(path, { recursive: true, force: true });
      } catch (error) {
        if (!isDenied(error)) throw error;
        await run(['rm', '-rf'], path);
      }
    },
    async changeOwner(path, { uid, gid }) {
      try {
        await chown(path, uid, gid);
      } catch (error) {
        if (!isDenied(error)) throw error;
        await run(['chown', `${uid}:${gid}`], path);
      }
    },
  };
}

const isDenied = (error: unknown) =>
  ['EPERM', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '');
