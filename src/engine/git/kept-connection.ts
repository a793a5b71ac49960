// SSH connections that are kept open for a while, so that the next fetch of a project does not have to connect and
// authenticate again. ssh itself keeps them: see ControlMaster in ssh_config(5).

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** Which connection to use: of the same name, with the same key, to the same destination. */
export type Kept = { name: string; destination: string };

/** How long a connection stays open that nobody uses. A key that the host revokes meanwhile is not noticed. */
export const KEPT_SECONDS = 60;
/** Each one is a process. */
const KEPT_MAX = 16;
/** A socket cannot have a longer path. ssh appends 17 characters while it creates the socket. */
const PATH_MAX_BYTES = 107 - 17;
const CLOSE_DEADLINE_MS = 5_000;

const directoryOf = (dataDirectory: string) => join(dataDirectory, 'tmp', 'kept');

/**
 * The socket of the connection, and whether it is open already. Undefined if it cannot be kept. A connection that was made
 * with another ssh/config or with other known hosts is closed first.
 */
export async function findKept(
  dataDirectory: string,
  { name, destination }: Kept,
  privateKey: string,
): Promise<{ socket: string; isOpen: boolean } | undefined> {
  const digest = createHash('sha256').update(`${destination}\0${privateKey}`).digest('hex').slice(0, 8);
  const directory = directoryOf(dataDirectory);
  const socket = join(directory, `${name}-${digest}`);
  if (Buffer.byteLength(socket) > PATH_MAX_BYTES) return undefined;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if (isOutdated(dataDirectory, socket)) await closeSocket(socket);
  const isOpen = existsSync(socket);
  return isOpen || (await readdir(directory)).length < KEPT_MAX ? { socket, isOpen } : undefined;
}

function isOutdated(dataDirectory: string, socket: string): boolean {
  const changedAt = (path: string) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const openedAt = changedAt(socket);
  return (
    openedAt > 0 &&
    ['config', 'known_hosts'].some(file => changedAt(join(dataDirectory, 'ssh', file)) > openedAt)
  );
}

/** Closes the connections of one name, or all. */
export async function closeKept(dataDirectory: string, name?: string): Promise<void> {
  const directory = directoryOf(dataDirectory);
  const sockets = await readdir(directory).catch(() => []);
  await Promise.all(
    sockets
      .filter(socket => name === undefined || socket.startsWith(`${name}-`))
      .map(socket => closeSocket(join(directory, socket))),
  );
}

/** Resolves when the process that keeps the connection has been asked to exit, or does not exist. */
export async function closeSocket(socket: string): Promise<void> {
  const args = ['-F', '/dev/null', '-o', `ControlPath=${socket.replaceAll('%', '%%')}`, '-O', 'exit', 'kept'];
  await new Promise<void>(resolve => {
    execFile('ssh', args, { timeout: CLOSE_DEADLINE_MS, killSignal: 'SIGKILL' }, () => resolve());
  });
  await rm(socket, { force: true });
}
