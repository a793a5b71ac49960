// Owns the way into volumes: through a container that mounts one and is never started, so that nothing of it runs and the
// server needs no right to Docker's own directories. What is in the tars is artifact-tar.ts's.
import { PassThrough, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  CACHE_DIRECTORY,
  labelsOf,
  type Ownership,
  ownershipOf,
} from '../../domain/container/container-plan.ts';
import { type DockerDoor, EngineUnavailable, isRefused } from './docker.ts';

/**
 * Where a volume is mounted while it is filled or read, and so the path that its tars name. In our images it belongs to the
 * container's user, and an empty volume takes its owner from there.
 */
export const VOLUME_DIRECTORY = CACHE_DIRECTORY;

export interface Carrier {
  volume: string;
  /** An image of ours. */
  image: string;
  owner: Ownership;
}

/** The kind of a volume that stands for one that was lost. */
export const STAND_IN = 'lost';
const STALL_MS = 60_000;
const LONGEST_MS = 6 * 3600_000;
/** As Go numbers it. */
const DIRECTORY_MODE = 2 ** 31;

/** Makes an empty volume belong to the container's user. */
export async function claimVolume(door: DockerDoor, carrier: Carrier): Promise<void> {
  await carried(door, carrier, async () => {});
}

/** Unpacks the plain tar that `open` gives, whose names begin with VOLUME_DIRECTORY, into the volume. */
export async function fillVolume(door: DockerDoor, carrier: Carrier, open: () => Readable): Promise<void> {
  await carried(door, carrier, async container => {
    const failed = new AbortController();
    const moving = passing();
    const sent = pipeline(open(), moving).catch(cause => {
      failed.abort(cause);
      throw cause;
    });
    // At the root, where a link that leads out of the volume is still inside what Docker lets it name.
    const filled = door.call(
      'fill a volume',
      abortSignal => container.putArchive(moving, { path: '/', abortSignal }),
      { deadlineMs: LONGEST_MS, signal: failed.signal },
    );
    // Nobody reads on: whoever sends is not left waiting for that.
    filled.catch(() => moving.destroy());
    const [one, other] = await Promise.allSettled([filled, sent]);
    if (one.status === 'rejected') throw one.reason;
    if (other.status === 'rejected') throw other.reason;
  });
}

/** Hands what lies at `inside`, as a tar, to `read`. */
export async function readVolume<T>(
  door: DockerDoor,
  carrier: Carrier,
  inside: string,
  read: (tar: Readable) => Promise<T>,
): Promise<T> {
  return await carried(door, carrier, async container => {
    const path = inside === '' ? VOLUME_DIRECTORY : `${VOLUME_DIRECTORY}/${inside}`;
    const stream = await door.call('read a volume', () => container.getArchive({ path }));
    const moving = passing();
    const sent = pipeline(stream, moving);
    sent.catch(() => {});
    try {
      const result = await read(moving);
      await sent;
      return result;
    } finally {
      moving.destroy();
    }
  });
}

/** Which of the paths are directories in the volume. */
export async function findDirectories(
  door: DockerDoor,
  carrier: Carrier,
  paths: readonly string[],
): Promise<Set<string>> {
  return await carried(door, carrier, async container => {
    const found = new Set<string>();
    for (const inside of paths) {
      try {
        const answer = (await door.call('look into a volume', abortSignal =>
          container.infoArchive({ path: `${VOLUME_DIRECTORY}/${inside}`, abortSignal }),
        )) as unknown as Readable & { headers: Record<string, string> };
        // Nothing is in it, but it must be read to its end before the connection is free.
        answer.resume();
        const stat = Buffer.from(answer.headers['x-docker-container-path-stat'] ?? '', 'base64').toString();
        if ((JSON.parse(stat) as { mode: number }).mode >= DIRECTORY_MODE) found.add(inside);
      } catch (error) {
        if (!isRefused(error, 404)) throw error;
      }
    }
    return found;
  });
}

/** Where the volume is on the engine's host; undefined when there is none of that name. */
export async function findMountpoint(door: DockerDoor, name: string): Promise<string | undefined> {
  const found = await findVolume(door, name);
  return found && !isStandIn(found) ? found.Mountpoint : undefined;
}

export async function findVolume({ docker, call }: DockerDoor, name: string) {
  try {
    return await call('inspect a volume', abortSignal =>
      docker.getVolume(name).inspect({ abortSignal } as object),
    );
  } catch (error) {
    if (isRefused(error, 404)) return undefined;
    throw error;
  }
}

/**
 * Docker makes a volume that is to be mounted and is not there, empty: what was lost meanwhile would pass for an artifact
 * with nothing in it. One made like this cannot be mounted, so that the start fails. It says nothing of one that is there.
 */
export const standInFor = ({ instance }: Ownership) => ({
  Labels: labelsOf({ instance, kind: STAND_IN, id: '' }),
  DriverConfig: { Name: 'local', Options: { type: 'none', o: 'bind', device: '/nonexistent/assay-lost' } },
});

export const isStandIn = ({ Labels }: { Labels?: Record<string, string> | null }) =>
  ownershipOf(Labels)?.kind === STAND_IN;

type DockerContainer = ReturnType<DockerDoor['docker']['getContainer']>;

async function carried<T>(
  { docker, call }: DockerDoor,
  { volume, image, owner }: Carrier,
  work: (container: DockerContainer) => Promise<T>,
): Promise<T> {
  const container = await call('create a container', abortSignal =>
    docker.createContainer({
      Image: image,
      Entrypoint: ['/bin/sh'],
      Labels: labelsOf(owner),
      NetworkDisabled: true,
      HostConfig: { Mounts: [{ Type: 'volume', Source: volume, Target: VOLUME_DIRECTORY, ReadOnly: false }] },
      abortSignal,
    }),
  );
  try {
    return await work(container);
  } finally {
    await call('remove a container', abortSignal => container.remove({ force: true, abortSignal }));
  }
}

/** Passes bytes on as long as they move. */
function passing(): PassThrough {
  const stream = new PassThrough({ highWaterMark: 1 << 20 });
  let timer = setTimeout(stop, STALL_MS);
  function stop() {
    stream.destroy(new EngineUnavailable(`Docker moved nothing for ${STALL_MS / 1000} s.`));
  }
  stream.on('data', () => {
    clearTimeout(timer);
    timer = setTimeout(stop, STALL_MS);
  });
  // Listening to data sets a stream in motion before its reader is there.
  stream.pause();
  stream.once('close', () => clearTimeout(timer));
  return stream;
}
