// Measures volumes by running `du` in a short-lived container that may read every file, because the server may not read
// Docker's directories.
import type { PreparedImage } from '../engine.ts';
import { type EngineContext, withInternalContainer } from './create-container.ts';
import { runToExit } from './wait-for-exit.ts';

const BATCH_SIZE = 64;
const SECONDS_EACH = 20;
const PARALLEL = 4;
const BATCH_MS = (BATCH_SIZE / PARALLEL) * SECONDS_EACH * 1_000 + 30_000;
const MEMORY_BYTES = 256 * 1024 ** 2;
/** The exit status of a shell and of xargs for a missing command. */
const NOT_FOUND = 127;
const DIRECTORY = '/srv/.assay/volumes';
/** One `du` for each volume, so that a volume that takes too long does not affect the others. */
const SCRIPT = `cd ${DIRECTORY} && ls | xargs -P ${PARALLEL} -n 1 timeout ${SECONDS_EACH} du -skx 2>/dev/null`;

/** Docker creates a missing volume, empty, with a label that lets the sweep remove it. */
export async function measureVolumes(
  context: EngineContext,
  hostImage: PreparedImage,
  names: readonly string[],
): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (let at = 0; at < names.length; at += BATCH_SIZE)
    for (const [name, bytes] of await measureBatch(context, hostImage, names.slice(at, at + BATCH_SIZE)))
      sizes.set(name, bytes);
  return sizes;
}

async function measureBatch(
  context: EngineContext,
  hostImage: PreparedImage,
  names: readonly string[],
): Promise<[name: string, bytes: number][]> {
  const { call, instance } = context;
  const mounts = names.map((name, number) => ({
    type: 'volume' as const,
    source: name,
    target: `${DIRECTORY}/${number}`,
    readOnly: true,
    copy: false as const,
    owner: { instance, kind: 'cache', id: '' },
  }));
  const spec = {
    kind: 'disk-usage',
    image: hostImage.reference,
    command: ['/bin/sh', '-c', SCRIPT],
    mounts: [...hostImage.mounts, ...mounts],
  };
  const options = {
    User: '0:0',
    // With a terminal the log is plain text. Otherwise Docker puts a header before each chunk.
    Tty: true,
    HostConfig: {
      CapAdd: ['DAC_READ_SEARCH'],
      LogConfig: { Type: 'json-file', Config: {} },
      Memory: MEMORY_BYTES,
      MemorySwap: MEMORY_BYTES,
      PidsLimit: 64,
      CpuShares: 128,
    },
  };
  return withInternalContainer(context, spec, options, async container => {
    const status = await runToExit(context, container, { action: 'measure volumes', deadlineMs: BATCH_MS });
    if (status === NOT_FOUND)
      throw new Error('Volumes cannot be measured: the host has no du, timeout or xargs in /usr/bin.');
    const output = await call('measure volumes', () => container.logs({ stdout: true, follow: false }));
    return [...output.toString().matchAll(/^(\d+)\s+(\d+)\s*$/gm)].map(([, kibibytes, number]) => [
      names[Number(number)] as string,
      Number(kibibytes) * 1024,
    ]);
  });
}
