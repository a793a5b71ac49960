// Sets up the network of the next container ahead, because that takes Docker longer than all the rest of a start. A sandbox
// is a small container that has a network and does nothing. A job's container joins it instead of getting a network of its
// own.
//
// - A sandbox serves one container, and is removed with it.
// - One is ready at most, and it is made only while no job runs: two containers cost more processor time than one.
// - The network mode of the container names its sandbox, so that another process can see which ones are in use.

import { setTimeout as pause } from 'node:timers/promises';
import type { PreparedImage } from '../engine.ts';
import { createContainer, type EngineContext, nameInternalContainer } from './create-container.ts';

export type Sandbox = { name: string; containerId: string };

export type Sandboxes = {
  /** The one that is ready, if there is one for the network. It is the caller's then. */
  take(network: string): Sandbox | undefined;
  remove(sandbox: Sandbox): Promise<void>;
  /** Makes one soon, unless `isBusy` by then. */
  prepareSoon(isBusy: () => boolean): void;
  /** Removes the one that is ready, and makes no more. */
  close(): Promise<void>;
};

/** The kind of the containers. */
export const SANDBOX_KIND = 'sandbox';
const MODE_PREFIX = 'container:';

/** The network mode of a container that joins the sandbox. */
export const modeOf = ({ containerId }: Sandbox) => `${MODE_PREFIX}${containerId}`;

/** The ids of the containers whose network others have joined. */
export const joinedIn = (containers: readonly { HostConfig: { NetworkMode?: string } }[]): Set<string> =>
  new Set(
    containers.flatMap(({ HostConfig: { NetworkMode: mode = '' } }) =>
      mode.startsWith(MODE_PREFIX) ? [mode.slice(MODE_PREFIX.length)] : [],
    ),
  );

/** The next job often follows at once. It would have to share the processors. */
const QUIET_MS = 500;
const MEMORY_BYTES = 16 * 1024 ** 2;

/** For engines that make none. */
export const noSandboxes: Sandboxes = {
  take: () => undefined,
  remove: async () => {},
  prepareSoon() {},
  close: async () => {},
};

export function createSandboxes(
  context: EngineContext,
  options: {
    network: string;
    sysctls: Record<string, string>;
    hostImage(): Promise<PreparedImage>;
    removeContainer(container: string): Promise<void>;
  },
): Sandboxes {
  const { call, internalContainers } = context;
  const closed = new AbortController();
  let ready: Sandbox | undefined;
  let preparing: Promise<void> | undefined;
  // Kept, because preparing it reads many files.
  let image: PreparedImage | undefined;

  const remove = async ({ name }: Pick<Sandbox, 'name'>) => {
    // From now on it is listed, so that what is left after an error can be removed later.
    internalContainers.delete(name);
    await options.removeContainer(name);
  };
  const make = async () => {
    const { name, owner } = nameInternalContainer(context, SANDBOX_KIND);
    internalContainers.add(name);
    try {
      image ??= await options.hostImage();
      const { reference, mounts } = image;
      const container = await createContainer(
        context,
        { name, owner, image: reference, mounts, command: ['/bin/sleep', 'infinity'] },
        {
          User: '65534:65534',
          HostConfig: {
            NetworkMode: options.network,
            Sysctls: options.sysctls,
            ReadonlyRootfs: true,
            Memory: MEMORY_BYTES,
            MemorySwap: MEMORY_BYTES,
            PidsLimit: 16,
          },
        },
      );
      await call('start a container', () => container.start());
      return { name, containerId: container.id };
    } catch {
      // The next start takes longer without it, and reports what is wrong.
      image = undefined;
      await remove({ name }).catch(() => {});
      return undefined;
    }
  };

  return {
    take(network) {
      if (network !== options.network) return undefined;
      const taken = ready;
      ready = undefined;
      return taken;
    },
    remove,
    prepareSoon(isBusy) {
      preparing ??= (async () => {
        await pause(QUIET_MS, undefined, { signal: closed.signal }).catch(() => {});
        if (!ready && !isBusy() && !closed.signal.aborted) ready = await make();
        preparing = undefined;
      })();
    },
    async close() {
      closed.abort();
      await preparing;
      if (ready) await remove(ready);
      ready = undefined;
    },
  };
}
