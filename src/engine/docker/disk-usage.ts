// Counts what volumes hold. `du` runs in a short-lived container of the image `host`, with the one capability to read
// everything and no other right, because the server itself may not read Docker's directories.
import { labelsOf, type Mount } from '../../domain/container/container-plan.ts';
import type { DockerDoor } from './docker.ts';

export interface VolumesToMeasure {
  instance: string;
  /** The image `host`, which has the host's own `du`. */
  hostImage: { reference: string; mounts: Mount[] };
  names: readonly string[];
}

const AT_ONCE = 16;
const SECONDS_EACH = 20;
const PARALLEL = 4;
const ROUND_MS = (AT_ONCE / PARALLEL) * SECONDS_EACH * 1_000 + 30_000;
const MEMORY_BYTES = 256 * 1024 ** 2;
/** How a shell and xargs report a missing command. */
const NOT_FOUND = 127;
const PLACE = '/srv/.assay/volumes';
/** One `du` for each volume: one that holds too many files to count in time does not hide the others. */
const COUNT = `cd ${PLACE} && ls | xargs -P ${PARALLEL} -n 1 timeout ${SECONDS_EACH} du -skx 2>/dev/null`;

/**
 * Bytes on disk, by name. A volume that could not be counted in time is missing. A volume that is gone is made again,
 * empty, with a label by which the sweep removes it.
 */
export async function measureVolumes(
  door: DockerDoor,
  { names, ...options }: VolumesToMeasure,
): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (let at = 0; at < names.length; at += AT_ONCE)
    for (const [name, bytes] of await measureSome(door, { ...options, names: names.slice(at, at + AT_ONCE) }))
      sizes.set(name, bytes);
  return sizes;
}

async function measureSome(
  { docker, call }: DockerDoor,
  { instance, hostImage, names }: VolumesToMeasure,
): Promise<[name: string, bytes: number][]> {
  const container = await call('create a container', abortSignal =>
    docker.createContainer({
      Image: hostImage.reference,
      User: '0:0',
      Entrypoint: ['/bin/sh', '-c', COUNT],
      Labels: labelsOf({ instance, kind: 'disk-usage', id: '' }),
      // Plain text in the log, without the headers that Docker puts before each part otherwise.
      Tty: true,
      HostConfig: {
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        CapAdd: ['DAC_READ_SEARCH'],
        SecurityOpt: ['no-new-privileges:true'],
        LogConfig: { Type: 'json-file', Config: {} },
        Memory: MEMORY_BYTES,
        MemorySwap: MEMORY_BYTES,
        PidsLimit: 64,
        CpuShares: 128,
        Mounts: [
          ...hostImage.mounts.map(({ type, source, target, readOnly }) => ({
            Type: type,
            Source: source,
            Target: target,
            ReadOnly: readOnly,
          })),
          ...names.map((name, number) => ({
            Type: 'volume' as const,
            Source: name,
            Target: `${PLACE}/${number}`,
            ReadOnly: true,
            VolumeOptions: {
              NoCopy: true,
              Labels: labelsOf({ instance, kind: 'cache', id: '' }),
              DriverConfig: {} as never,
            },
          })),
        ],
      },
      abortSignal,
    }),
  );
  try {
    await call('measure volumes', abortSignal => container.start({ abortSignal }));
    const { StatusCode: status } = await call(
      'measure volumes',
      abortSignal => container.wait({ abortSignal }),
      { deadlineMs: ROUND_MS },
    );
    if (status === NOT_FOUND)
      throw new Error('Volumes cannot be measured: the host has no du, timeout or xargs in /usr/bin.');
    const output = await call('measure volumes', abortSignal =>
      container.logs({ stdout: true, follow: false, abortSignal }),
    );
    return [...output.toString().matchAll(/^(\d+)\s+(\d+)\s*$/gm)].map(([, kibibytes, number]) => [
      names[Number(number)] as string,
      Number(kibibytes) * 1024,
    ]);
  } finally {
    await call('remove a container', abortSignal => container.remove({ force: true, v: true, abortSignal }));
  }
}
