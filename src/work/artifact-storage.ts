// How containers get the artifacts of dependencies: as volumes on this machine (artifact-volumes.ts), or as layers of their
// image on another one.

import type { PlacedArtifact } from '../domain/container/artifact-mounts.ts';
import type { Mount, Ownership, RemotePlan, RunAs } from '../domain/container/container-plan.ts';
import type { VolumeDirectory } from '../engine/engine.ts';
import type { Db } from '../store/database/db.ts';
import type { ContainerHost } from './container-host.ts';

export type ArtifactOptions = { db: Db; host: ContainerHost; dataDirectory: string; runAs: RunAs };

export type AttachedArtifacts = {
  mounts: Mount[];
  /** Layers of the image, if the container may run on another machine. */
  layers: RemotePlan['layers'];
};

export type BuildPrefix = AttachedArtifacts & {
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

/** The engine makes the layers when it starts the container. */
export const LAYER_STORAGE: ArtifactStorage = {
  attach: async artifacts => ({ mounts: [], layers: layersOf(artifacts) }),
  attachPrefix: async (_, __, related) => ({ mounts: [], layers: layersOf(related), source: undefined }),
  volumesOf: () => [],
  ready: async () => {},
  isVolumeNeeded: () => false,
};

const layersOf = (artifacts: readonly PlacedArtifact[]) =>
  artifacts.map(({ hash, prefix }) => ({ hash, prefix }));
