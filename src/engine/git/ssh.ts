// Configures the SSH client for one git call: only the project's key, the administrator's ssh/config, and the host keys of
// the data directory.

import { existsSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { shellQuote } from '../../domain/text/shell.ts';

export type SshAccess = {
  dataDirectory: string;
  privateKey: string;
  /** Covers TCP, banner and key exchange. */
  connectTimeoutMs?: number;
  /** KexAlgorithms, unless ssh/config names others. */
  keyExchange?: string;
};

export type SshSession = {
  /** Private to this call and removed after it. */
  directory: string;
  environment: Record<string, string>;
  connectTimeoutMs: number;
};

export const CONNECT_TIMEOUT_MS = 15_000;
const EXIT_POLL_MS = 20;
const EXIT_TIMEOUT_MS = 1_000;

export async function withSsh<T>(access: SshAccess, use: (session: SshSession) => Promise<T>): Promise<T> {
  const session = await openSession(access);
  try {
    return await use(session);
  } finally {
    await closeSession(session);
  }
}

/** Creates the directory of a session. The caller closes it. */
export async function openSession(access: SshAccess): Promise<SshSession> {
  const parent = join(access.dataDirectory, 'tmp');
  await mkdir(parent, { recursive: true, mode: 0o700 });
  await mkdir(join(access.dataDirectory, 'ssh'), { recursive: true, mode: 0o700 });
  const directory = await mkdtemp(join(parent, 'ssh-'));
  try {
    const connectTimeoutMs = access.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    const home = join(directory, 'home');
    await mkdir(home, { mode: 0o700 });
    await writeFile(join(directory, 'key'), access.privateKey, { mode: 0o600 });
    await writeFile(join(directory, 'config'), await clientConfig(access, directory, connectTimeoutMs), {
      mode: 0o600,
    });
    return {
      directory,
      connectTimeoutMs,
      environment: {
        HOME: home,
        GIT_SSH_COMMAND: sshCommand(directory),
        GIT_SSH_VARIANT: 'ssh',
        // ssh's ConnectTimeout starts only after the name is resolved.
        RES_OPTIONS: 'timeout:3 attempts:2',
      },
    };
  } catch (error) {
    await rm(directory, { recursive: true, force: true });
    throw error;
  }
}

/** For GIT_SSH_COMMAND. Paths in the options are relative to the directory of the session. */
export function sshCommand(directory: string, options = ''): string {
  const config = shellQuote(join(directory, 'config'));
  return `cd ${shellQuote(directory)}; echo $$ >pid; exec ssh -F ${config} ${options}`;
}

/** Ends what runs in the session and removes its directory. */
export async function closeSession({ directory }: Pick<SshSession, 'directory'>): Promise<void> {
  await endSsh(directory);
  await rm(directory, { recursive: true, force: true });
}

// When git is stopped, its ssh process runs on for as long as the host keeps the session open. Resolves when it has exited.
async function endSsh(directory: string): Promise<void> {
  const pid = (await readFile(join(directory, 'pid'), 'utf8').catch(ignoreMissing))?.trim();
  if (!pid) return;
  // Another process may have this pid by now, but no other process has this path.
  const isRunning = async () =>
    (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).includes(directory);
  for (let waitedMs = 0; await isRunning(); waitedMs += EXIT_POLL_MS) {
    try {
      if (waitedMs === 0) process.kill(Number(pid));
      else if (waitedMs >= EXIT_TIMEOUT_MS) process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It exited between the check and the kill.
    }
    if (waitedMs > 2 * EXIT_TIMEOUT_MS) return;
    await delay(EXIT_POLL_MS);
  }
}

/** Removes keys that a killed process left behind. Call it only before the first git call of this process. */
export async function clearSshLeftovers(dataDirectory: string): Promise<void> {
  const parent = join(dataDirectory, 'tmp');
  const names = existsSync(parent) ? readdirSync(parent) : [];
  const left = names.filter(name => name.startsWith('ssh-'));
  await Promise.all(
    // Its ssh process may still be fetching or pushing.
    left.map(name => closeSession({ directory: join(parent, name) })),
  );
}

// ssh uses the first value it finds, so mandatory settings come before the administrator's lines and defaults after them.
// It is a file instead of -o options because ProxyJump passes only the file to the ssh it starts.
async function clientConfig(access: SshAccess, directory: string, connectTimeoutMs: number): Promise<string> {
  const administrators = await readFile(join(access.dataDirectory, 'ssh', 'config'), 'utf8').catch(
    ignoreMissing,
  );
  const mandatory = {
    IdentityFile: configPath(join(directory, 'key')),
    IdentitiesOnly: 'yes',
    IdentityAgent: 'none',
    CertificateFile: 'none',
    PreferredAuthentications: 'publickey',
    PasswordAuthentication: 'no',
    KbdInteractiveAuthentication: 'no',
    BatchMode: 'yes',
    UserKnownHostsFile: configPath(join(access.dataDirectory, 'ssh', 'known_hosts')),
    StrictHostKeyChecking: 'accept-new',
    UpdateHostKeys: 'no',
    ConnectTimeout: Math.max(1, Math.ceil(connectTimeoutMs / 1000)),
    ForwardAgent: 'no',
    ForwardX11: 'no',
    ClearAllForwardings: 'yes',
    PermitLocalCommand: 'no',
    RequestTTY: 'no',
    EscapeChar: 'none',
    // Only kept-connection.ts shares a connection, in which case it overrides these.
    ControlMaster: 'no',
    ControlPath: 'none',
    ControlPersist: 'no',
  };
  const defaults = {
    GlobalKnownHostsFile: '/dev/null',
    HashKnownHosts: 'no',
    ServerAliveInterval: 15,
    ServerAliveCountMax: 3,
    ...(access.keyExchange && { KexAlgorithms: access.keyExchange }),
  };
  return [...configLines(mandatory), administrators ?? '', 'Match all', ...configLines(defaults), ''].join(
    '\n',
  );
}

function configLines(settings: Record<string, string | number>): string[] {
  return Object.entries(settings).map(([name, value]) => `${name} ${value}`);
}

// ssh expands %x and ${x} in these values and has no way to write a quotation mark inside quotes.
function configPath(path: string): string {
  if (/["\\\p{Cc}]|\$\{/u.test(path)) throw new Error(`ssh cannot use a path with these characters: ${path}`);
  return `"${path.replaceAll('%', '%%')}"`;
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
