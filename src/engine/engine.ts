// The contract between Assay and the engine that runs its containers. Everything outside of src/engine that needs a
// container, a volume, an image or a network uses this contract. docker/docker-engine.ts implements it; any other
// implementation must keep every promise below.
//
// An engine serves one instance. It labels everything it creates with that instance, and lists nothing else; only imported
// images are shared. The caller chooses names that contain the instance and can be computed again, so that it finds what it
// created after a crash.
//
// Order of calls
//
//   1. `ensureNetwork` and `prepareImage`, in any order. Their results go into the plan.
//   2. `createVolume`, then `fillVolume` or `claimVolume`, or `createUnion` of such volumes, for each volume that the plan
//      mounts. A volume whose mount names an `owner` is created when it is first mounted.
//   3. `startContainer`.
//   4. `waitForExit`, `inspectContainer` and `listStorage`, as often as needed. The entry script writes the result of the
//      job to the output file (output.ts). The exit code counts only for a job that left no record there.
//   5. `stopContainer` to end it early. It resolves when no process of the container runs.
//   6. `readContainer` and `readVolume` for the files it left, then `removeContainer`, then `removeVolume`.
//
// Repeating a call
//
//   Every call is idempotent, except for `importImage` and `pullImage`, which transfer the whole image again. Starting the
//   same plan twice creates one container and runs its command once. Creating what exists and removing or stopping what is
//   gone succeed. A failed fill leaves a volume with part of the content: fill a new volume, or remove this one first.
//
// After a crash of the server
//
//   The engine keeps no state in the process that a new process needs. Containers keep running, their output files grow,
//   and volumes keep their content. The next `startContainer` of the same plan starts a container that was only created.
//   Internal containers of the engine are left behind: `listContainers` of the next process lists them, and they may be
//   removed. It never lists those that its own process uses.
//
// After a crash of the engine
//
//   Calls throw EngineUnavailable until it responds again; `ping` checks that. A container may be gone, may have ended, or
//   may still run: see `inspectContainer`. The engine never starts one a second time by itself. Images, networks and
//   volumes may have been lost: call `prepareImage` and `ensureNetwork` again before the next start. A lost volume is never
//   replaced by an empty one: see VolumeLost.
//
// Isolation
//
//   A container is not started before its network is protected: it reaches neither the ports of the host, nor other
//   containers, nor link-local addresses. It has no capabilities and gains no privileges.
//
// Errors
//
//   Every call has a deadline, and throws EngineUnavailable when the engine does not respond in time. Unless `reached` is
//   false, the request may have been carried out. Every call throws EngineRefused when the engine responds with an error;
//   its message is for people. Calls that throw a subclass of it are documented below. An aborted signal makes its call
//   throw the signal's reason.
import type { Readable } from 'node:stream';
import {
  CACHE_DIRECTORY,
  type ContainerPlan,
  type Mount,
  type Ownership,
} from '../domain/container/container-plan.ts';
import type { EngineNode } from '../domain/node.ts';

/** The engine does not respond. The work has to wait; it has no outcome yet. */
export class EngineUnavailable extends Error {
  override name = 'EngineUnavailable';
  /** False if there was no connection: then the request was certainly not carried out. */
  readonly reached: boolean;
  constructor(message: string, reached = true) {
    super(message);
    this.reached = reached;
  }
}

/** The engine responded with an error. Retrying without a change does not help. */
export class EngineRefused extends Error {
  override name = 'EngineRefused';
}

/** The image does not exist. Nothing was started. */
export class ImageMissing extends EngineRefused {
  override name = 'ImageMissing';
}

/** The network of the plan does not exist. Nothing was started. */
export class NetworkMissing extends EngineRefused {
  override name = 'NetworkMissing';
}

/** A volume of the plan no longer exists. Nothing was started. */
export class VolumeLost extends EngineRefused {
  override name = 'VolumeLost';
}

/** The kind of the empty volume that Docker leaves in place of a lost one. It can be removed. */
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
  /** Why it ended, if it left no record and the engine knows. A sentence. */
  reason?: string;
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
  owner: Ownership;
  /** Its content, read-only. If several have the same path, the first one wins. */
  layers: readonly VolumeDirectory[];
  /** Where changes go: two empty directories of one volume. Without it the union is read-only. */
  writable?: { volume: string; upper: string; work: string };
};

/**
 * A path in a container. `directory` is one that the engine added to the image and only root can replace; '' as `inside` is
 * that directory itself.
 */
export type ContainerPath = { container: string; directory: string; inside: string };

/** What a plan needs to know of an image. */
export type PreparedImage = {
  reference: string;
  /** Changes when the name stands for another image. See `identifyImage` for its content. */
  imageId: string;
  mounts: Mount[];
  /** Of the user that commands run as. */
  userName: string;
  /** Without git, another container makes the checkout: see src/domain/container/checkout-script.ts. */
  hasGit: boolean;
};

export type StoredImage = { imageId: string; names: string[]; sizeBytes: number };

export type Containers = {
  /**
   * Creates and starts a container, and returns its id. Throws ImageMissing, NetworkMissing or VolumeLost. After an
   * EngineRefused this call has started nothing.
   */
  startContainer(plan: ContainerPlan): Promise<string>;
  /** Undefined if there is none. Takes a name or an id, like the calls below. */
  inspectContainer(container: string): Promise<ContainerState | undefined>;
  /** Resolves when it no longer runs; undefined if it is gone. */
  waitForExit(container: string, signal?: AbortSignal): Promise<ContainerState | undefined>;
  /** Kills it. It stays to be inspected. */
  stopContainer(container: string): Promise<void>;
  /** Kills and removes it, with the volumes that have no name. */
  removeContainer(container: string): Promise<void>;
  /**
   * Passes a path of a container that does not run to `read` as a tar, whose names begin with the last segment of the path,
   * and returns the result of `read`. Follows no link on the way to the path. `read` may return before the end of the tar;
   * until it returns, other calls for this container wait. Undefined if there is no such container or path, or if nothing
   * was ever written to `directory`. Throws EngineUnavailable also if the transfer stalls or breaks off.
   */
  readContainer<T>(
    from: ContainerPath,
    read: (tar: Readable) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T | undefined>;
  /** Those of the instance, except the internal containers of this engine. */
  listContainers(): Promise<OwnedContainer[]>;
  /**
   * The running containers with their storage, in one call. With `layers` it measures their writable layers, which takes
   * longer the more files they have.
   */
  listStorage(options: { layers: boolean }): Promise<ContainerStorage[]>;
};

/** Where a volume is mounted while it is filled or read: the names in its tars begin with this path. */
export const VOLUME_DIRECTORY = CACHE_DIRECTORY;

export type Volumes = {
  /** Creates an empty volume, unless there is one of that name. */
  createVolume(volume: { name: string; owner: Ownership }): Promise<void>;
  /**
   * Creates a volume that shows directories of others as one tree. Those must exist and be mounted by the same container.
   * False if there are more layers than the engine supports. Throws VolumeLost.
   */
  createUnion(union: UnionPlan): Promise<boolean>;
  hasVolume(name: string): Promise<boolean>;
  /** Makes an empty volume belong to the user that commands run as. Throws VolumeLost. */
  claimVolume(name: string): Promise<void>;
  /** Unpacks the plain tar that `open` returns. Its names begin with VOLUME_DIRECTORY. Throws VolumeLost. */
  fillVolume(name: string, open: () => Readable): Promise<void>;
  /** Passes a directory to `read` as a tar, and returns the result of `read`. Throws VolumeLost. */
  readVolume<T>(from: VolumeDirectory, read: (tar: Readable) => Promise<T>): Promise<T>;
  /** Whether there is a directory at that path. Throws VolumeLost. */
  hasDirectory(at: VolumeDirectory): Promise<boolean>;
  /** Bytes on disk by name, without volumes that could not be measured in time. */
  measureVolumes(names: readonly string[]): Promise<Map<string, number>>;
  listVolumes(): Promise<OwnedVolume[]>;
  /** False if a container still uses it. With many files it needs a longer deadline than other calls. */
  removeVolume(name: string, options?: { deadlineMs: number }): Promise<boolean>;
};

export type Images = {
  /** Prepares an image for the user that commands run as. Throws ImageMissing. */
  prepareImage(name: string): Promise<PreparedImage>;
  /**
   * Changes when containers of the image get other content: for `host` when packages of the host change, for others when
   * the name stands for another image. Inspects the host at each call, which is cheap.
   */
  identifyImage(image: PreparedImage): Promise<string>;
  /** Imports a `docker save` archive or the tar of a root file system under the name. */
  importImage(file: string, name: string): Promise<void>;
  /** Pulls from a registry. Only for an image that an administrator named. */
  pullImage(name: string): Promise<void>;
  listImages(): Promise<StoredImage[]>;
  /** The names of the images that this instance created, without imported ones. */
  listCreatedImages(): Promise<string[]>;
  /** Removes what is stored for nodes to pull and was not used for that long. It is stored again when it is needed. */
  sweepImages(unusedMs: number): Promise<void>;
  /** False if a container uses it or it does not exist. */
  removeImage(name: string): Promise<boolean>;
};

export type Network = {
  /** Creates the network of the setting if it is missing, and returns its name. */
  ensureNetwork(): Promise<string>;
  /** Checks the firewall rules while containers run: `restored` if some were missing. */
  protectNetwork(): Promise<'intact' | 'restored'>;
  listNetworks(): Promise<string[]>;
  /**
   * Removes the instance's networks, which must have no containers, and its firewall rules. `unreached` are the nodes
   * that did not respond, so that their rules are still there.
   */
  removeNetworks(): Promise<{ names: string[]; rules: number; unreached?: string[] }>;
};

/** What a job finds on a node: one entry for each thing that it checks. */
export type NodeProbe = { node: string; checks: { name: string; ok: boolean; detail: string }[] };

/** Of all nodes together. `reason` says why there are no slots. */
export type Capacity = { slots: number; reason: string | undefined };

export type Nodes = {
  /** Empty if there is only the engine's own host. */
  listNodes(): Promise<EngineNode[]>;
  /** The same as of the last check; undefined if there is only the engine's own host. */
  nodes(): readonly EngineNode[] | undefined;
  /** Runs a job on each node that takes work. Empty if there is only the engine's own host. */
  probeNodes(): Promise<NodeProbe[]>;
  /** Of the last check; undefined if the engine leaves it to the caller. */
  capacity(): Capacity | undefined;
  /**
   * The name of the node that a container runs on or ran on last. Undefined if it is the engine's own host, or unknown, for
   * example while the engine does not respond.
   */
  findNode(container: string): Promise<string | undefined>;
};

export type Engine = Containers &
  Volumes &
  Images &
  Network &
  Nodes & {
    /** Whether containers run on other machines, too. Then a plan needs `remote`. */
    isRemote: boolean;
    /** Resolves if the engine responds. */
    ping(): Promise<void>;
    /** The directory on the engine's host with containers and volumes. */
    findDataRoot(): Promise<string>;
    /** Removes what was prepared for jobs that may follow, and prepares no more. */
    removePrepared(): Promise<void>;
    /** Ends every request and refuses new ones, so that the process can exit. Jobs keep running. */
    close(): void;
  };
