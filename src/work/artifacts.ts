// The artifacts of the dependencies that a suite or a compile uses, and how its container gets them: as volumes on this
// machine, or as layers of its image on another one.

import { orderDependencies, type PlacedArtifact } from '../domain/container/artifact-mounts.ts';
import type { Mount, Ownership, RemotePlan, RunAs } from '../domain/container/container-plan.ts';
import type { MountedDependency } from '../domain/container/dependency-environment.ts';
import type { VolumeDirectory } from '../engine/engine.ts';
import { findArtifact } from '../store/artifacts.ts';
import type { Db } from '../store/database/db.ts';
import type { Dependency } from '../store/dependencies.ts';
import { listRelatedVersions, type UsedDependency } from '../store/dependency-use.ts';
import { listSuiteDependencies } from '../store/suites.ts';
import { createArtifactVolumes } from './artifact-volumes.ts';
import type { ContainerHost } from './container-host.ts';
import { CannotRun } from './job.ts';
import type { Attached } from './prepare-suite.ts';

export type ArtifactOptions = { db: Db; host: ContainerHost; dataDirectory: string; runAs: RunAs };

type AttachedArtifacts = {
  mounts: Mount[];
  /** Layers of the image, if the container may run on another machine. */
  layers: RemotePlan['layers'];
};

type BuildPrefix = AttachedArtifacts & {
  /** The directory of a volume that the compile writes to. Undefined if it writes to its container. */
  source: VolumeDirectory | undefined;
};

/** How containers get artifacts. */
export type ArtifactStorage = {
  /** Artifacts are in search order. */
  attach(artifacts: readonly PlacedArtifact[]): Promise<AttachedArtifacts>;
  /** Attaches related artifacts, and the prefix of a dependency, writable. */
  attachPrefix(
    dependencyId: bigint,
    prefix: string,
    related: readonly PlacedArtifact[],
  ): Promise<BuildPrefix>;
  /** The volumes that `attachPrefix` creates, in the order in which they can be removed. */
  volumesOf(dependencyId: bigint): string[];
  /** Prepares a new artifact, so that its first use is fast. */
  ready(hash: string): Promise<void>;
  isVolumeNeeded(name: string, owner: Ownership): boolean;
};

export type Holds = {
  /** Keeps the sweep from deleting an artifact that no row refers to yet. */
  hold(hash: string): () => void;
  isHeld(hash: string): boolean;
};

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
  const storage = host.engine.isRemote ? LAYERS : createArtifactVolumes(options, holds);

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

/** The engine makes the layers when it starts the container. */
const LAYERS: ArtifactStorage = {
  attach: async artifacts => ({ mounts: [], layers: layersOf(artifacts) }),
  attachPrefix: async (_, __, related) => ({ mounts: [], layers: layersOf(related), source: undefined }),
  volumesOf: () => [],
  ready: async () => {},
  isVolumeNeeded: () => false,
};

const layersOf = (artifacts: readonly PlacedArtifact[]) =>
  artifacts.map(({ hash, prefix }) => ({ hash, prefix }));

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
