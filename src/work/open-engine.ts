// Opens the engine of the setting ENGINE.

import type { Settings } from '../config.ts';
import { registryOf } from '../domain/swarm.ts';
import { createDockerEngine, type DockerEngineOptions } from '../engine/docker/docker-engine.ts';
import type { Engine } from '../engine/engine.ts';
import { createSwarmEngine, type SwarmEngineOptions } from '../engine/swarm/swarm-engine.ts';
import { artifactPath, imagesDirectory } from '../store/data/paths.ts';

type EngineSettings = Pick<
  Settings,
  'engine' | 'shared' | 'data' | 'dockerHost' | 'network' | 'runAs' | 'baseUrl'
>;

type EngineOptions = Pick<
  DockerEngineOptions,
  'instance' | 'hostRoot' | 'environment' | 'onRulesRestored' | 'preparesNetworks'
> &
  Pick<SwarmEngineOptions, 'onCapacity' | 'lostAfterMs'> & {
    /** The address of the server, if it differs from the setting. */
    baseUrl?: (() => string) | undefined;
    /** With what nodes pull images. Only needed to start containers. */
    registryAuth?: SwarmEngineOptions['registryAuth'];
  };

/** For commands that start no containers. */
const NO_ACCESS = (serveraddress: string) => ({ username: '', password: '', serveraddress });

export function openEngine(settings: EngineSettings, options: EngineOptions): Engine {
  const { dockerHost, network, runAs, shared, data } = settings;
  const { registryAuth = NO_ACCESS, baseUrl = () => settings.baseUrl, ...rest } = options;
  const common = { dockerHost, network, runAs, ...rest };
  if (settings.engine === 'single' || shared === undefined) return createDockerEngine(common);
  return createSwarmEngine({
    ...common,
    shared,
    imageDirectory: imagesDirectory(data),
    artifactFile: hash => artifactPath(data, hash),
    registry: () => registryOf(baseUrl()),
    registryAuth,
  });
}
