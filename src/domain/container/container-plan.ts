// Describes a container as a plain value, and defines the paths inside it. src/engine/docker runs the plan;
// entry-script.ts is what runs inside.

export const PROJECT_DIRECTORY = '/srv/project';
export const CACHE_DIRECTORY = '/srv/cache';
/** What a build leaves here is kept. */
export const ARTIFACTS_DIRECTORY = '/srv/artifacts';
/** Holds a directory for the daemon of each dependency. */
export const RUN_DIRECTORY = '/srv/run';
export const HOME_DIRECTORY = '/home/assay';
/** The entry script (entry-script.ts). It is part of every prepared image. */
export const SCRIPT_FILE = '/srv/.assay/entry.sh';
/** A named pipe between the commands and what relays their output. Every container has its own, from its image. */
export const PIPE_FILE = '/srv/.assay/pipe';
export const OUTPUT_FILE = '/srv/.assay/output';
export const ENVIRONMENT_FILE = '/srv/.assay/environment';
/** Has what a container waits for that was started early. See waiting-plan.ts. */
export const BEGIN_DIRECTORY = '/srv/.assay/begin';
export const ARCHIVE_FILE = '/srv/.assay/archive';
/** The volumes of a union are mounted here as well, so that Docker sees them in use and does not remove them. */
export const LAYERS_DIRECTORY = '/srv/.assay/parts';
export const MIRROR_DIRECTORY = '/srv/.assay/mirror';
/** A directory of objects, which has the pack of a snapshot. */
export const SNAPSHOT_DIRECTORY = '/srv/.assay/snapshot';
export const SUBMODULES_DIRECTORY = '/srv/.assay/submodules';

export type Mount = {
  type: 'bind' | 'volume';
  source: string;
  target: string;
  readOnly: boolean;
  /** False: an empty volume does not receive the image's files, owner included. */
  copy?: false;
  /** The owner of a volume that is created on its first mount. */
  owner?: Ownership;
};

/** Identifies the owner of a container, volume or network. Assay never touches anything without its own instance's label. */
export type Ownership = { instance: string; kind: string; id: string };

/** The Docker name of a container or volume. It is unique for each kind and id. */
export const resourceName = ({ instance, kind, id }: Ownership) => `assay-${instance}-${kind}-${id}`;

/** The volume for the checkout of a build whose image has no git. */
export const workspaceVolumeName = (instance: string, buildId: bigint) =>
  `${resourceName({ instance, kind: 'build', id: String(buildId) })}-workspace`;

/** The cache of a build of a fork's code. It is not kept, because code of a fork must not reach other builds. */
export const forkCacheName = (instance: string, buildId: bigint) =>
  `${resourceName({ instance, kind: 'build', id: String(buildId) })}-cache`;

/** The volume that a compile installs into. */
export const prefixVolumeName = (instance: string, dependencyId: bigint) =>
  resourceName({ instance, kind: 'prefix', id: String(dependencyId) });

/** The user of a container. */
export type RunAs = { uid: number; gid: number };

/** What a container may use. The same for all, from the settings. */
export type Limits = {
  runAs: RunAs;
  memoryBytes: number;
  cpus: number;
  pids: number;
  /** The size of /dev/shm. Its content counts as memory. */
  shmBytes: number;
};

export type ContainerPlan = {
  name: string;
  owner: Ownership;
  image: string;
  command: string[];
  environment: Record<string, string>;
  workingDirectory: string;
  mounts: Mount[];
  limits: Limits;
  /** `none`, or the name of a Docker network */
  network: string;
  /** Set if it may run on another machine. */
  remote?: RemotePlan;
};

/** A directory of a container or something in it; '' is the directory itself. */
export type KeptPath = { directory: string; inside: string };

/** What a container on another machine needs besides, because that machine has no volumes of this one. */
export type RemotePlan = {
  nonce: string;
  /** Artifacts of dependencies, which are layers of its image. In order of precedence. */
  layers: readonly { hash: string; prefix: string }[];
  /** The directory that a compile installs into. */
  writable?: string;
  /** What is read after its end, by `keepScript`. */
  kept: readonly KeptPath[];
  /** When it ends by itself, even if the machine is cut off. */
  deadlineAt: number;
  /** The id of the machine that it must run on. Without it, any. */
  node?: string;
};

export function labelsOf(owner: Ownership): Record<string, string> {
  return { 'assay.instance': owner.instance, 'assay.kind': owner.kind, 'assay.id': owner.id };
}

export function ownershipOf(labels: Record<string, string> | undefined | null): Ownership | undefined {
  const instance = labels?.['assay.instance'];
  if (!instance) return undefined;
  return { instance, kind: labels?.['assay.kind'] ?? '', id: labels?.['assay.id'] ?? '' };
}

/** The file that the entry script writes the output to. */
export function outputMount(hostFile: string): Mount {
  return { type: 'bind', source: hostFile, target: OUTPUT_FILE, readOnly: false };
}

/** The suite's variables. They are in a file because everyone with access to Docker can read a container's environment. */
export function environmentMount(hostFile: string): Mount {
  return { type: 'bind', source: hostFile, target: ENVIRONMENT_FILE, readOnly: true };
}

/** The project's mirror. The checkout borrows its objects, so it must stay mounted while `.git` is in use. */
export function mirrorMount(hostDirectory: string): Mount {
  return { type: 'bind', source: hostDirectory, target: MIRROR_DIRECTORY, readOnly: true };
}

/** The pack of a snapshot. The rest of its repository has paths of the server. */
export function snapshotMount(repository: string): Mount {
  return {
    type: 'bind',
    source: `${repository}/objects/pack`,
    target: `${SNAPSHOT_DIRECTORY}/pack`,
    readOnly: true,
  };
}

/** The mirrors of the project's submodules. */
export function submodulesMount(hostDirectory: string): Mount {
  return { type: 'bind', source: hostDirectory, target: SUBMODULES_DIRECTORY, readOnly: true };
}
