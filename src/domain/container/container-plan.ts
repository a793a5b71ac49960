// Owns what a container is to be, as plain data, and where things are inside it.
// Carrying a plan out is src/engine/docker/container.ts's; what runs inside is src/domain/container/entry-script.ts's.

export const PROJECT_DIRECTORY = '/srv/project';
export const CACHE_DIRECTORY = '/srv/cache';
export const HOME_DIRECTORY = '/home/assay';
export const OUTPUT_FILE = '/srv/.assay/output';
export const ENVIRONMENT_FILE = '/srv/.assay/environment';
export const ARCHIVE_FILE = '/srv/.assay/archive';
/** Volumes that a union is made of are mounted here too: Docker keeps only what it sees in use. */
export const LAYERS_DIRECTORY = '/srv/.assay/parts';
export const MIRROR_DIRECTORY = '/srv/.assay/mirror';
export const SUBMODULES_DIRECTORY = '/srv/.assay/submodules';

export interface Mount {
  type: 'bind' | 'volume';
  source: string;
  target: string;
  readOnly: boolean;
  /** False where an empty volume must stay as it is, instead of taking what the image has there, owner included. */
  copy?: false;
  /** Whose a volume is that is made when it is first mounted. */
  owner?: Ownership;
}

/** Whose a container, volume or network is. Nothing without the own instance's label is ever touched. */
export interface Ownership {
  instance: string;
  kind: string;
  id: string;
}

/** The name in Docker of a container or volume: one for each kind and id. */
export const resourceName = ({ instance, kind, id }: Ownership) => `assay-${instance}-${kind}-${id}`;

/** Where the checkout of a build is made whose image has no git. */
export const workspaceVolumeName = (instance: string, buildId: bigint) =>
  `${resourceName({ instance, kind: 'build', id: String(buildId) })}-workspace`;

/** What a compile installs into. */
export const prefixVolumeName = (instance: string, dependencyId: bigint) =>
  resourceName({ instance, kind: 'prefix', id: String(dependencyId) });

export interface ContainerPlan {
  name: string;
  labels: Ownership;
  image: string;
  /** `uid:gid` */
  user: string;
  command: string[];
  environment: Record<string, string>;
  workingDirectory: string;
  mounts: Mount[];
  memoryBytes: number;
  cpus: number;
  pids: number;
  /** Of /dev/shm; what is in it counts as memory. */
  shmBytes: number;
  /** `none`, or the name of a Docker network */
  network: string;
}

export function labelsOf(owner: Ownership): Record<string, string> {
  return { 'assay.instance': owner.instance, 'assay.kind': owner.kind, 'assay.id': owner.id };
}

export function ownershipOf(labels: Record<string, string> | undefined | null): Ownership | undefined {
  const instance = labels?.['assay.instance'];
  if (!instance) return undefined;
  return { instance, kind: labels?.['assay.kind'] ?? '', id: labels?.['assay.id'] ?? '' };
}

/** The mount through which the entry script hands the output out. */
export function outputMount(hostFile: string): Mount {
  return { type: 'bind', source: hostFile, target: OUTPUT_FILE, readOnly: false };
}

/** The suite's variables: in a file, because what a container is started with can be read by all who may ask Docker. */
export function environmentMount(hostFile: string): Mount {
  return { type: 'bind', source: hostFile, target: ENVIRONMENT_FILE, readOnly: true };
}

/** The project's mirror, whose objects the checkout borrows: it must stay mounted while `.git` is used. */
export function mirrorMount(hostDirectory: string): Mount {
  return { type: 'bind', source: hostDirectory, target: MIRROR_DIRECTORY, readOnly: true };
}

/** The mirrors of its submodules, for the same use. */
export function submodulesMount(hostDirectory: string): Mount {
  return { type: 'bind', source: hostDirectory, target: SUBMODULES_DIRECTORY, readOnly: true };
}

export interface RunAs {
  uid: number;
  gid: number;
}

/** Reads RUN_AS; undefined when it is not `uid:gid`. */
export function parseRunAs(text: string): RunAs | undefined {
  const match = /^(\d{1,9}):(\d{1,9})$/.exec(text);
  return match ? { uid: Number(match[1]), gid: Number(match[2]) } : undefined;
}
