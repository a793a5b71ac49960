// Prepares the image, the network, the dependencies and the cache of a suite, and plans its container except for what
// depends on the commit. A build uses it, and so does a container that is started before the commit is known.

import { forkCacheName, type Mount, type RemotePlan } from '../domain/container/container-plan.ts';
import type { MountedDependency } from '../domain/container/dependency-environment.ts';
import type { SuiteOptions } from '../domain/container/suite-plan.ts';
import type { PreparedImage } from '../engine/engine.ts';
import type { BuildRequest } from '../store/builds.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import type { Dependency } from '../store/dependency-use.ts';
import type { Suite } from '../store/suites.ts';
import { chooseImage, type JobOptions } from './job.ts';

export type Attached = {
  /** In launch order. */
  dependencies: Dependency[];
  /** The same, in search order. */
  used: MountedDependency[];
  mounts: Mount[];
  /** Those that are layers of the image. */
  layers: RemotePlan['layers'];
};

export type PrepareOptions = Pick<JobOptions, 'db' | 'host' | 'settings'> & {
  /** Returns the artifacts of the suite's dependencies, ready to mount. */
  attach(suiteId: bigint): Promise<Attached>;
  /** Returns the volume for /srv/cache. */
  openCache(suiteId: bigint): string;
};

type PreparedSuite = {
  imageName: string;
  image: PreparedImage;
  attached: Attached;
  plan: Omit<SuiteOptions, 'build' | 'project' | 'branch' | 'tag' | 'mirror' | 'outputFile'>;
};

/** May throw CannotRun. */
export async function prepareSuite(
  options: PrepareOptions,
  suite: Suite,
  request: BuildRequest,
  buildId: bigint,
): Promise<PreparedSuite> {
  const instance = instanceOf(options.db);
  // Code that is not in the repository must not change what later builds find in the cache.
  const isCacheKept = request.pullRequest === null && !request.local;
  const imageName = chooseImage(options, suite.image);
  const [{ image, network }, attached] = await Promise.all([
    options.host.prepare(imageName),
    options.attach(suite.id),
  ]);
  return {
    imageName,
    image,
    attached,
    plan: {
      instance,
      suite,
      trigger: request.trigger ?? '',
      triggerName: request.triggerName ?? '',
      pullRequest: request.pullRequest?.toString() ?? '',
      dependencies: attached.dependencies,
      used: attached.used,
      artifactMounts: attached.mounts,
      cacheVolume: isCacheKept ? options.openCache(suite.id) : forkCacheName(instance, buildId),
      isCacheKept,
      image,
      network,
      limits: options.settings,
    },
  };
}
