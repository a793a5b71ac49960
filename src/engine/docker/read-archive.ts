// Reads files out of containers that do not run, as tars, through Docker's archive API.
import type { Socket } from 'node:net';
import { PassThrough, type Readable } from 'node:stream';
import { EngineUnavailable } from '../engine.ts';
import { unlessRefused } from './client.ts';
import type { EngineContext } from './create-container.ts';

const STALL_MS = 60_000;
/** The bit that marks a directory in Go's file modes. A link to one does not have it. */
const DIRECTORY_MODE = 2 ** 31;

type PathStat = { isDirectory: boolean; modifiedAt: Date };

/** Undefined if there is nothing at the path. */
export async function statPath(
  { call }: EngineContext,
  container: string,
  path: string,
): Promise<PathStat | undefined> {
  const response = (await unlessRefused([404], () =>
    call('inspect a path in a container', docker => docker.getContainer(container).infoArchive({ path })),
  )) as (Readable & { headers: Record<string, string> }) | undefined;
  // The body is empty, but the connection is released only when it is read.
  response?.resume();
  const header = response?.headers['x-docker-container-path-stat'];
  if (header === undefined) return undefined;
  const { mode, mtime } = JSON.parse(Buffer.from(header, 'base64').toString()) as {
    mode: number;
    mtime: string;
  };
  return { isDirectory: mode >= DIRECTORY_MODE, modifiedAt: new Date(mtime) };
}

/** Passes the path to `read` as a tar. `read` may return before the end: the rest is not transferred. */
export async function readArchive<T>(
  { call, download }: EngineContext,
  container: string,
  path: string,
  read: (tar: Readable) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const query = `path=${encodeURIComponent(path)}`;
  const tar = await call(
    'read files of a container',
    () => download(`/containers/${container}/archive?${query}`, signal),
    { signal },
  );
  const socket = tar as Socket;
  socket.setTimeout(STALL_MS, () => socket.destroy(stalled()));
  try {
    return await read(tar);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if ((tar.errored as NodeJS.ErrnoException | null)?.code === 'ECONNRESET')
      throw new EngineUnavailable('The connection to Docker broke while files were read.');
    throw error;
  } finally {
    // Docker locks the container until it has sent everything or the connection is closed.
    tar.destroy();
  }
}

const stalled = () => new EngineUnavailable(`Docker transferred nothing for ${STALL_MS / 1000} s.`);

/** Passes bytes through, and fails if none arrive for a while. */
export function failWhenStalled(): PassThrough {
  const stream = new PassThrough({ highWaterMark: 1 << 20 });
  const timer = setTimeout(() => stream.destroy(stalled()), STALL_MS);
  stream.on('data', () => timer.refresh());
  // The listener above would start the stream before its reader is attached.
  stream.pause();
  stream.once('close', () => clearTimeout(timer));
  return stream;
}
