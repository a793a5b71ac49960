// The artifacts of the dependencies that a suite or a compile uses, and how its container gets them: as volumes on this
// machine, or as layers of its image on another one.

import { orderDependencies, type PlacedArtifact } from '../domain/container/artifact-mounts.ts';
import type { MountedDependency } from '../domain/container/dependency-environment.ts';
import { findArtifact } from '../store/artifacts.ts';
import type { Dependency } from '../store/dependencies.ts';
import { listRelatedVersions, type UsedDependency } from '../store/dependency-use.ts';
import { listSuiteDependencies } from '../store/suites.ts';
import {
  type ArtifactOptions,
  type ArtifactStorage,
  type BuildPrefix,
  type Holds,
  LAYER_STORAGE,
} from './artifact-storage.ts';
import { createArtifactVolumes } from './artifact-volumes.ts';
import { CannotRun } from './job.ts';
import type { Attached } from './prepare-suite.ts';

export type Artifacts = Holds &
  Pick<ArtifactStorage, 'ready' | 'isVolumeNeeded'> & {
    attachToSuite(suiteId: bigint): Promise<Attached>;
    /** The artifacts of dependencies and of those they were compiled with, in search order. Throws CannotRun if one is missing. */
    listArtifacts(dependencies: readonly UsedDependency[]): (PlacedArtifact & MountedDependency)[];
    /** Mounts the prefixes of related dependencies, and the dependency's own prefix, writable. */
    attachToCompile(dependency: Dependency, related: readonly PlacedArtifact[]): Promise<BuildPrefix>;
    compileVolumes(dependencyId: bigint): string[];
  };

export function createArtifacts(options: ArtifactOptions): Artifacts {
  const { db, host } = options;
  const holds = createHolds();
  const storage = host.engine.isRemote ? LAYER_STORAGE : createArtifactVolumes(options, holds);

  function placed(dependency: Dependency): PlacedArtifact & MountedDependency {
    const artifact = dependency.artifactHash === null ? undefined : findArtifact(db, dependency.artifactHash);
    const { id, name, environment, libraryPath } = dependency;
    if (artifact) return { id, name, environment, libraryPath, hash: artifact.hash, prefix: artifact.prefix };
    throw new CannotRun(
      dependency.compileState === 'compile_failed'
        ? `The dependency ${dependency.name} has never been compiled: its compile failed.`
        : `The dependency ${dependency.name} has not been compiled yet: ${dependency.archiveHash === null ? 'upload its archive' : 'rerun the build when its compile has finished'}.`,
    );
  }

  const order = (listed: readonly UsedDependency[]) =>
    orderDependencies(listed, dependency => listRelatedVersions(db, dependency));

  return {
    async attachToSuite(suiteId) {
      const { search, launch } = order(listSuiteDependencies(db, suiteId));
      if (search.length === 0) return { dependencies: [], used: [], mounts: [], layers: [] };
      const artifacts = search.map(placed);
      return { dependencies: launch, used: artifacts, ...(await storage.attach(artifacts)) };
    },
    listArtifacts: dependencies => order(dependencies).search.map(placed),
    attachToCompile: ({ id, prefix }, related) => storage.attachPrefix(id, prefix, related),
    compileVolumes: storage.volumesOf,
    ready: storage.ready,
    isVolumeNeeded: storage.isVolumeNeeded,
    ...holds,
  };
}

function createHolds(): Holds {
  const held = new Map<string, number>();
  return {
    hold(hash) {
      held.set(hash, (held.get(hash) ?? 0) + 1);
      return () => {
        const count = (held.get(hash) ?? 1) - 1;
        if (count > 0) held.set(hash, count);
        else held.delete(hash);
      };
    },
    isHeld: hash => held.has(hash),
  };
}
