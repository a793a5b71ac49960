// The contract between Assay and the engine that runs its containers. Everything outside of src/engine that needs a
// container, a volume, an image or a network asks for it here. The Docker Engine is behind it today
// (docker/docker-engine.ts); another implementation has to keep every promise below.
//
// An engine works for one instance. Whatever it creates carries the label of that instance, and it lists nothing else;
// only imported images belong to all. The caller chooses names that contain the instance and can be computed again, so
// that it finds what it created after a crash.
//
// Order of calls
//
//   1. `ensureNetwork` and `prepareImage`, in any order. Their results go into the plan.
//   2. `createVolume`, then `fillVolume` or `claimVolume`, or `createUnion` of such volumes, for each volume that the plan
//      mounts. A volume whose mount names an `owner` is created when it is first mounted.
//   3. `startContainer`.
//   4. `waitForExit`, `inspectContainer` and `listStorage`, as often as needed. The result of the job does not come from
//      them: the entry script writes it to the output file (output.ts). The exit code serves a job that left no record.
//   5. `stopContainer` to end it early. It resolves when nothing of the container runs.
//   6. `readVolume` for what it left, then `removeContainer`, then `removeVolume`.
//
// Repeating a call
//
//   Every call may be repeated, with the same arguments and at any time, except for `importImage` and `pullImage`, which
//   transfer the whole image again. Starting the same plan twice is one container and one run of its command. Creating
//   what exists and removing or stopping what is gone succeed. A fill that failed leaves a volume with part of the
//   content: fill a new volume, or remove this one first.
//
// After a crash of the server
//
//   The engine keeps no state in this process that a new one would miss. Containers go on, their output files grow, and
//   volumes keep their content. A container that was created and not started is started by the next `startContainer` of
//   the same plan. Containers that the engine uses for its own work are left behind then: `listContainers` of the next
//   process lists them, and they may be removed. It never lists those that its own process is using.
//
// After a crash of the engine
//
//   Calls throw EngineUnavailable until it answers again; `ping` is the way to find out. A container may be gone, may have
//   ended, or may still run: `inspectContainer` tells which. The engine itself never starts one a second time. Images,
//   networks and volumes may have been lost: call `prepareImage` and `ensureNetwork` again before the next start. A volume
//   that was lost is never replaced by an empty one: see VolumeLost.
//
// Isolation
//
//   A container is not started before its network is protected: it reaches neither the ports of the host, nor other
//   containers, nor link-local addresses. It has no capabilities and gains no privileges.
//
// Errors
//
//   Every call has a deadline, and throws EngineUnavailable when the engine does not answer in time. Unless `reached` is
//   false, what was asked may have happened. Every call throws EngineRefused when the engine answers that it cannot do
//   what was asked; its message is for people. Calls that throw a subclass of it say so below. A call with a signal throws
//   the reason of the signal when it is aborted.
import type { Readable } from 'node:stream';
import {
  CACHE_DIRECTORY,
  type ContainerPlan,
  type Mount,
  type Ownership,
} from '../domain/container/container-plan.ts';

/** The engine does not answer: the work has to wait, and nothing is decided. */
export class EngineUnavailable extends Error {
  override name = 'EngineUnavailable';
  /** False when no connection was made: what was asked has certainly not happened. */
  readonly reached: boolean;
  constructor(message: string, reached = true) {
    super(message);
    this.reached = reached;
  }
}

/** The engine answered that it cannot do what was asked. Asking again without a change is of no use. */
export class EngineRefused extends Error {
  override name = 'EngineRefused';
}

/** The image that was named is not there. Nothing was started. */
export class ImageMissing extends EngineRefused {
  override name = 'ImageMissing';
}

/** The network of the plan is not there. Nothing was started. */
export class NetworkMissing extends EngineRefused {
  override name = 'NetworkMissing';
}

/** A volume that was to be mounted is gone. Nothing was started. */
export class VolumeLost extends EngineRefused {
  override name = 'VolumeLost';
}

/** The kind of the empty volume that is left where a lost one was to be mounted. It can be removed. */
export const LOST_VOLUME_KIND = 'lost';

/** The kind of a container that runs only while a server uses the instance. */
export const GUARD_KIND = 'guard';

/** The network setting for the instance's own bridge. */
export const OWN_BRIDGE = 'bridge';

export type ContainerState = {
  running: boolean;
  /** Undefined while it runs and when it never started. */
  exitCode: number | undefined;
  oomKilled: boolean;
  startedAt: Date | undefined;
};

type OwnedContainer = {
  containerId: string;
  name: string;
  owner: Ownership;
  running: boolean;
};

export type OwnedVolume = { name: string; owner: Ownership; createdAt: Date };

export type ContainerStorage = {
  owner: Ownership;
  layerBytes: number;
  volumes: { name: string; target: string }[];
};

/** A directory of a volume; '' is the whole volume. */
export type VolumeDirectory = { volume: string; inside: string };

export type UnionPlan = {
  name: string;
  labels: Ownership;
  /** What it shows, read-only. Where several have the same path, the first one wins. */
  layers: readonly VolumeDirectory[];
  /** Where changes go: two directories of one volume, which exist and are empty. Without it nothing can be written. */
  writable?: { volume: string; upper: string; work: string };
};

/** What a plan needs to know of an image. */
export type PreparedImage = {
  reference: string;
  mounts: Mount[];
  /** Of the user that commands run as. */
  userName: string;
  /** Without git the checkout is made in another container: src/domain/container/checkout-script.ts. */
  hasGit: boolean;
};

export type StoredImage = { imageId: string; names: string[]; sizeBytes: number };

export type Containers = {
  /**
   * Creates and starts a container, and returns its id. Throws ImageMissing, NetworkMissing or VolumeLost. After an
   * EngineRefused this call has started nothing.
   */
  startContainer(plan: ContainerPlan): Promise<string>;
  /** Undefined when there is none. Takes a name or an id, as all that follow. */
  inspectContainer(container: string): Promise<ContainerState | undefined>;
  /** Resolves when it no longer runs: with undefined when it is gone. */
  waitForExit(container: string, signal?: AbortSignal): Promise<ContainerState | undefined>;
  /** Kills it. It stays to be inspected. */
  stopContainer(container: string): Promise<void>;
  /** Kills and removes it, with the volumes that have no name. */
  removeContainer(container: string): Promise<void>;
  /** All of the instance, except those that this engine is using for its own work. */
  listContainers(): Promise<OwnedContainer[]>;
  /**
   * The running containers with what they can write to, in one call. With `layers` the bytes of their writable layers are
   * counted on the spot, which takes longer the more files they hold.
   */
  listStorage(options: { layers: boolean }): Promise<ContainerStorage[]>;
};

/** Where a volume is mounted while it is filled or read: the names in its tars begin with this path. */
export const VOLUME_DIRECTORY = CACHE_DIRECTORY;

export type Volumes = {
  /** An empty volume, unless there is one of that name. */
  createVolume(volume: { name: string; labels: Ownership }): Promise<void>;
  /**
   * A volume that shows directories of others as one tree. It is valid while those exist and are mounted by the same
   * container. False when there are more layers than the engine can join. Throws VolumeLost.
   */
  createUnion(union: UnionPlan): Promise<boolean>;
  hasVolume(name: string): Promise<boolean>;
  /** Makes an empty volume belong to the user that commands run as. Throws VolumeLost. */
  claimVolume(name: string): Promise<void>;
  /** Unpacks the plain tar that `open` returns. Its names begin with VOLUME_DIRECTORY. Throws VolumeLost. */
  fillVolume(name: string, open: () => Readable): Promise<void>;
  /** Passes a directory to `read` as a tar, and returns its result. Throws VolumeLost. */
  readVolume<T>(from: VolumeDirectory, read: (tar: Readable) => Promise<T>): Promise<T>;
  /** Whether there is a directory at that path. Throws VolumeLost. */
  hasDirectory(at: VolumeDirectory): Promise<boolean>;
  /** Bytes on disk, by name. One that could not be counted in time is missing. */
  measureVolumes(names: readonly string[]): Promise<Map<string, number>>;
  listVolumes(): Promise<OwnedVolume[]>;
  /** False when a container still uses it. With many files it needs a longer deadline than other calls. */
  removeVolume(name: string, options?: { deadlineMs: number }): Promise<boolean>;
};

export type Images = {
  /** Makes an image usable for the user that commands run as: once, however often it is called. Throws ImageMissing. */
  prepareImage(name: string): Promise<PreparedImage>;
  /** Takes a `docker save` archive or the tar of a root file system, and gives it the name. */
  importImage(file: string, name: string): Promise<void>;
  /** Asks a registry. Only for an image that an administrator named: nothing else ever does. */
  pullImage(name: string): Promise<void>;
  listImages(): Promise<StoredImage[]>;
  /** The names of images that this instance made, without imported ones. */
  listMadeImages(): Promise<string[]>;
  /** False when it stays, because a container uses it, or when it is gone. */
  removeImage(name: string): Promise<boolean>;
};

export type Network = {
  /** Creates the network of the setting where it is missing, and returns its name. */
  ensureNetwork(): Promise<string>;
  /** Puts its firewall rules in force again while containers run: `restored` when some were missing. */
  protectNetwork(): Promise<'intact' | 'restored'>;
  listNetworks(): Promise<string[]>;
  /** Removes the instance's own networks, on which there may be no container, and its firewall rules. */
  removeNetworks(): Promise<{ names: string[]; rules: number }>;
};

export type Engine = Containers &
  Volumes &
  Images &
  Network & {
    /** Resolves when the engine answers. */
    ping(): Promise<void>;
    /** The directory on the engine's host that holds containers and volumes. */
    findDataRoot(): Promise<string>;
    /** Ends every request and refuses new ones, so that the process can exit. Containers of jobs go on. */
    close(): void;
  };
