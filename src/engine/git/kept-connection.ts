// Keeps the SSH connection of a project open for a while after a call, so that the next one does not have to connect and
// authenticate again. See ControlMaster in ssh_config(5). The rules:
//
// - A connection has one name, one destination, one key, one ssh/config and one state of known_hosts. If one of them
//   changes, it is closed. It serves one call at a time; another call of the same name connects for itself.
// - Its ssh process is our child, so we see it end. It also ends with this process, even if that is killed.
// - A call that fails on the connection of an earlier call, or gets no answer on it, is repeated at once without it. After
//   any failure the connection is closed, so that whatever still runs on the host ends with it.
// - Its socket is in the directory of its session. The key is there only until the connection is open.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { explain } from './explain.ts';
import { GitFailure, type OnOutput } from './git.ts';
import { closeSession, openSession, type SshAccess, type SshSession, sshCommand, withSsh } from './ssh.ts';

export type KeptCall = {
  /** Calls of the same name share a connection. */
  name: string;
  /** `git@host` of `git@host:path.git`. */
  destination: string;
  host: string;
  signal?: AbortSignal | undefined;
  /** How long connecting may take. */
  openMs: number;
  /** Calls `close` when the connection must not be used any more. Returns a function that ends the watch. */
  watch?: ((close: () => void) => () => void) | undefined;
};

/** What one attempt must respect. */
type Attempt = { signal: AbortSignal | undefined; onOutput: OnOutput };
type Use<T> = (session: SshSession, attempt: Attempt) => Promise<T>;

/** How long a connection stays open that nobody uses. */
const IDLE_MS = 60_000;
/** A key that the host revokes works until the connection is closed, so even a busy one is closed after this time. */
const AGE_MAX_MS = 300_000;
/** Each one is a process. */
const KEPT_MAX = 16;
/** A network may drop an idle connection without a sign. ssh itself would notice after 45 s. */
const SILENCE_MS = 5_000;
/** A failure after this time has another cause than the age of the connection. */
const REPEATED_WITHIN_MS = 30_000;
const READY_POLL_MS = 10;
const EXIT_TIMEOUT_MS = 1_000;
const PRINTED_MAX_CHARACTERS = 8_000;

const SOCKET = 'socket';
// If the process cannot be reached, ssh would connect by itself and without the key.
const SHARE = `-o ControlPath=${SOCKET} -o ProxyCommand=false`;
// The shell waits for the end of a pipe from us. The standard error is then open in ssh alone.
const OWNED_SSH = 'ssh "$@" </dev/null & exec 2>/dev/null; read -r _; kill $!';
// What ssh prints if it cannot create its socket, for example because the file system has no sockets.
const CANNOT_SHARE = /\bmux|unix_listener|ControlSocket/;

type Connection = {
  key: string;
  session: SshSession;
  openedAt: number;
  usedAt: number;
  isBusy: boolean;
  /** What it was opened with. Undefined if no other call may use it. */
  setup?: string | undefined;
  process: ReturnType<typeof startSsh>;
  idle?: NodeJS.Timeout;
  unwatch?: (() => void) | undefined;
  closed?: Promise<void>;
};

/** By data directory and name. Undefined while one is being opened. */
const connections = new Map<string, Connection | undefined>();
const keyOf = (dataDirectory: string, name: string) => `${dataDirectory} ${name}`;

/** Like withSsh, for a call that may be repeated. */
export async function withKeptSsh<T>(access: SshAccess, call: KeptCall, use: Use<T>): Promise<T> {
  const key = keyOf(access.dataDirectory, call.name);
  const known = connections.get(key);
  if (known && !known.isBusy && isUsable(known, setupOf(access, call))) {
    const startedAt = performance.now();
    try {
      return await useConnection(known, call, use, SILENCE_MS);
    } catch (error) {
      if (call.signal?.aborted || performance.now() - startedAt > REPEATED_WITHIN_MS) throw error;
    }
  } else {
    if (known && !known.isBusy) await close(known);
    const opened = await open(key, access, call);
    if (opened) return await useConnection(opened, call, use);
  }
  return await withSsh(access, session => use(session, { signal: call.signal, onOutput: () => {} }));
}

/** Closes the connection of one name, or all. */
export async function closeKept(dataDirectory: string, name?: string): Promise<void> {
  const found = [...connections].filter(([key]) =>
    name === undefined ? key.startsWith(keyOf(dataDirectory, '')) : key === keyOf(dataDirectory, name),
  );
  await Promise.all(found.map(([, connection]) => connection && close(connection)));
}

async function useConnection<T>(
  connection: Connection,
  call: KeptCall,
  use: Use<T>,
  silenceMs?: number,
): Promise<T> {
  const silence = new AbortController();
  const timer = silenceMs === undefined ? undefined : setTimeout(() => silence.abort(), silenceMs);
  connection.isBusy = true;
  clearTimeout(connection.idle);
  try {
    const result = await use(connection.session, {
      signal: call.signal ? AbortSignal.any([silence.signal, call.signal]) : silence.signal,
      onOutput: () => clearTimeout(timer),
    });
    connection.isBusy = false;
    connection.usedAt = performance.now();
    if (connection.setup === undefined) void close(connection);
    else connection.idle = setTimeout(() => void close(connection), IDLE_MS).unref();
    return result;
  } catch (error) {
    await close(connection);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function isUsable(connection: Connection, setup: string): boolean {
  return (
    connection.setup === setup &&
    !connection.closed &&
    !connection.process.hasEnded() &&
    performance.now() - connection.openedAt < AGE_MAX_MS
  );
}

/** Equal as long as nothing has changed that a new connection would depend on. */
function setupOf({ dataDirectory, privateKey }: SshAccess, { destination }: KeptCall): string {
  const files = ['config', 'known_hosts'].map(name => {
    const found = statSync(join(dataDirectory, 'ssh', name), { throwIfNoEntry: false, bigint: true });
    return `${found?.ino} ${found?.size} ${found?.mtimeNs}`;
  });
  return createHash('sha256')
    .update([destination, privateKey, ...files].join('\0'))
    .digest('hex');
}

/**
 * Undefined if the call has to connect for itself: the connection is in use, all are, or the data directory cannot have
 * sockets. Throws a GitFailure if the host cannot be reached.
 */
async function open(key: string, access: SshAccess, call: KeptCall): Promise<Connection | undefined> {
  if (connections.has(key) || !freePlace()) return undefined;
  connections.set(key, undefined);
  let connection: Connection | undefined;
  try {
    const session = await openSession(access);
    const now = performance.now();
    connection = {
      key,
      session: {
        ...session,
        environment: { ...session.environment, GIT_SSH_COMMAND: sshCommand(session.directory, SHARE) },
      },
      openedAt: now,
      usedAt: now,
      isBusy: true,
      process: startSsh(session, call.destination),
    };
    connections.set(key, connection);
    if (!(await isOpened(connection, call))) {
      await close(connection);
      return undefined;
    }
    await rm(join(session.directory, 'key'));
  } catch (error) {
    if (connection) await close(connection);
    else connections.delete(key);
    throw error;
  }
  const opened = connection;
  // The connection itself may have added the host to known_hosts.
  opened.setup = setupOf(access, call);
  opened.unwatch = call.watch?.(() => {
    opened.setup = undefined;
    if (!opened.isBusy) void close(opened);
  });
  return opened;
}

/** Makes place for one more, if possible, by closing the connection that was not used for the longest time. */
function freePlace(): boolean {
  const all = [...connections.values()];
  if (all.length < KEPT_MAX) return true;
  const idle = all.filter(connection => connection && !connection.isBusy && !connection.closed);
  const [oldest] = (idle as Connection[]).sort((one, other) => one.usedAt - other.usedAt);
  if (oldest) void close(oldest);
  return oldest !== undefined;
}

/** False if ssh cannot create the socket. */
async function isOpened({ session, process }: Connection, call: KeptCall): Promise<boolean> {
  const { signal, openMs, host } = call;
  const socket = join(session.directory, SOCKET);
  const startedAt = performance.now();
  while (!existsSync(socket)) {
    if (process.hasEnded()) {
      const printed = process.printed();
      if (CANNOT_SHARE.test(printed)) return false;
      throw new GitFailure(explain(printed, { ...session, host }), printed);
    }
    if (signal?.aborted) throw new GitFailure('The work was canceled.', process.printed());
    if (performance.now() - startedAt > openMs)
      throw new GitFailure(
        `Nothing has arrived from the host ${host} for ${Math.ceil(openMs / 1000)} s: try again.`,
        process.printed(),
      );
    await delay(READY_POLL_MS);
  }
  return true;
}

function startSsh({ directory, environment }: SshSession, destination: string) {
  // The process passes on only variables that it would send itself. git asks for its protocol by this one.
  const settings = ['ControlMaster=yes', `ControlPath=${SOCKET}`, 'SendEnv=GIT_PROTOCOL'];
  const options = ['-F', join(directory, 'config'), ...settings.flatMap(setting => ['-o', setting])];
  const child = spawn('sh', ['-c', OWNED_SSH, 'sh', ...options, '-N', '--', destination], {
    cwd: directory,
    env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', ...environment },
    stdio: ['pipe', 'ignore', 'pipe'],
    // All its processes are in one group.
    detached: true,
  });
  let printed = '';
  let hasEnded = false;
  const ended = new Promise<void>(resolve => {
    const end = () => {
      hasEnded = true;
      // The shell ends too.
      child.stdin.end();
      resolve();
    };
    child.on('error', error => {
      printed += error.message;
      end();
    });
    child.stderr.on('close', end);
  });
  child.stdin.on('error', () => {});
  child.stderr.setEncoding('utf8').on('data', text => {
    printed = (printed + text).slice(-PRINTED_MAX_CHARACTERS);
  });
  // This process may exit at any time: the other one then ends.
  child.unref();
  for (const stream of [child.stdin, child.stderr] as unknown as Socket[]) stream.unref();
  return {
    hasEnded: () => hasEnded,
    printed: () => printed,
    async end(): Promise<void> {
      child.stdin.end();
      const timer = setTimeout(() => {
        try {
          process.kill(-(child.pid as number), 'SIGKILL');
        } catch {
          // It has just ended.
        }
      }, EXIT_TIMEOUT_MS);
      await ended;
      clearTimeout(timer);
    },
  };
}

/** Does not fail: what could not be removed is removed at the next start. */
async function close(connection: Connection): Promise<void> {
  connection.closed ??= (async () => {
    connection.unwatch?.();
    clearTimeout(connection.idle);
    await connection.process.end();
    await closeSession(connection.session).catch(() => {});
    connections.delete(connection.key);
  })();
  await connection.closed;
}
