// Implements the contract of ../engine.ts with the Docker Engine.
import type { RunAs } from '../../domain/container/container-plan.ts';
import { HOST_IMAGE } from '../../domain/names.ts';
import { type Engine, OWN_BRIDGE } from '../engine.ts';
import { type ClientSettings, openDocker } from './client.ts';
import { createContainers, networkSysctls, removeContainer } from './container.ts';
import type { EngineContext } from './create-container.ts';
import { createImages } from './image.ts';
import { createNetwork, type NetworkOptions } from './network.ts';
import { createSandboxes, noSandboxes } from './sandbox.ts';
import { createVolumes } from './volume.ts';

export type DockerEngineOptions = ClientSettings &
  Pick<NetworkOptions, 'network' | 'onRulesRestored'> & {
    instance: string;
    /** The user that commands run as. */
    runAs: RunAs;
    /** Where the packages of the host are looked up instead of /. */
    hostRoot?: string | undefined;
    watchIntervalMs?: number | undefined;
    /** Whether to set up the network of the next container while no job runs. Then call `removePrepared` before `close`. */
    preparesNetworks?: boolean;
  };

export function createDockerEngine(options: DockerEngineOptions): Engine {
  const client = openDocker(options);
  const { call } = client;
  const { instance, watchIntervalMs } = options;
  const context: EngineContext = { ...client, instance, watchIntervalMs, internalContainers: new Set() };
  const images = createImages(context, options);
  const hostImage = () => images.prepareImage(HOST_IMAGE);
  const { network: setting, onRulesRestored } = options;
  const { bridge, startProtected, close, ...network } = createNetwork(context, {
    network: setting,
    onRulesRestored,
    hostImage,
  });
  const sandboxes =
    options.preparesNetworks && setting === OWN_BRIDGE
      ? createSandboxes(context, {
          network: bridge,
          sysctls: networkSysctls(),
          hostImage,
          removeContainer: container => removeContainer(context, container),
        })
      : noSandboxes;
  return {
    ...createContainers(context, { startProtected, sandboxes }),
    ...createVolumes(context, hostImage),
    ...images,
    ...network,
    isRemote: false,
    listNodes: async () => [],
    nodes: () => undefined,
    probeNodes: async () => [],
    capacity: () => undefined,
    findNode: async () => undefined,
    removePrepared: sandboxes.close,
    ping: async () => void (await call('ping', docker => docker.version())),
    findDataRoot: async () => (await call('info', docker => docker.info())).DockerRootDir as string,
    close() {
      close();
      client.close();
    },
  };
}
