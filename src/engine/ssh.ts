// One SSH client setting for a call of git: the project's key alone, the administrator's ssh/config and
// the host keys of the data directory. What ssh and git say when it fails is put into words in explain.ts.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface SshAccess {
  dataDirectory: string;
  privateKey: string;
  // Until TCP, banner and key exchange are done.
  connectTimeoutMs?: number;
  // 0: every call logs in anew. Otherwise a connection stays open that long after its last use, for this
  // key only; it sees neither a changed host key nor a withdrawn key until it is replaced.
  keepConnectionMs?: number;
}

export interface SshSession {
  // Private to this call and gone after it; `home` inside is empty.
  directory: string;
  environment: Record<string, string>;
  connectTimeoutMs: number;
}

export const CONNECT_TIMEOUT_MS = 15_000;
const KEPT_CONNECTION_MAX_AGE_MS = 300_000;
const CLOSE_TIMEOUT_MS = 5_000;
// A unix socket's path has 107 bytes; ssh adds 40 for %C and 17 while it binds.
const SOCKET_PREFIX_MAX_BYTES = 107 - 40 - 17;

export async function withSsh<T>(access: SshAccess, use: (session: SshSession) => Promise<T>): Promise<T> {
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
    return await use({
      directory,
      connectTimeoutMs,
      environment: {
        HOME: home,
        GIT_SSH_COMMAND: `echo $$ >${shellQuote(join(directory, 'pid'))}; exec ssh -F ${shellQuote(join(directory, 'config'))}`,
        GIT_SSH_VARIANT: 'ssh',
        // ssh's ConnectTimeout begins only after the name is resolved.
        RES_OPTIONS: 'timeout:3 attempts:2',
      },
    });
  } finally {
    await endSsh(directory);
    await rm(directory, { recursive: true, force: true });
  }
}

// When git is stopped, its ssh goes on for as long as the host keeps the session open.
async function endSsh(directory: string): Promise<void> {
  const pid = await readFile(join(directory, 'pid'), 'utf8').catch(ignoreMissing);
  if (!pid) return;
  const command = await readFile(`/proc/${pid.trim()}/cmdline`, 'utf8').catch(() => '');
  // The number may belong to another process by now; this path belongs to no other.
  if (!command.includes(directory)) return;
  try {
    process.kill(Number(pid));
  } catch {
    // It ended between the look and the kill.
  }
}

// Keys that a killed process left behind. Only before the first call of this process.
export async function clearSshLeftovers(dataDirectory: string): Promise<void> {
  const parent = join(dataDirectory, 'tmp');
  const names = await readdir(parent).catch(ignoreMissing);
  const left = (names ?? []).filter(name => name.startsWith('ssh-'));
  await Promise.all(
    left.map(async name => {
      // Its ssh may still be fetching into a mirror, or pushing.
      await endSsh(join(parent, name));
      await rm(join(parent, name), { recursive: true, force: true });
    }),
  );
}

// ssh takes the first value it finds, so what must hold stands before the administrator's lines and what
// is only a default behind them. It is a file, not a list of -o options, because the ssh that ProxyJump
// starts is handed the file and nothing else.
async function clientConfig(access: SshAccess, directory: string, connectTimeoutMs: number): Promise<string> {
  const administrators = await readFile(join(access.dataDirectory, 'ssh', 'config'), 'utf8').catch(
    ignoreMissing,
  );
  const firm = {
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
    ...(await keptConnection(access)),
  };
  const defaults = {
    GlobalKnownHostsFile: '/dev/null',
    HashKnownHosts: 'no',
    ServerAliveInterval: 15,
    ServerAliveCountMax: 3,
  };
  return [...configLines(firm), administrators ?? '', 'Match all', ...configLines(defaults), ''].join('\n');
}

const kept = new Map<string, { openedAt: number; generation: number }>();
let socketDirectory: Promise<string> | undefined;

async function keptConnection({ privateKey, keepConnectionMs = 0 }: SshAccess) {
  const none = { ControlMaster: 'no', ControlPath: 'none', ControlPersist: 'no' };
  if (keepConnectionMs === 0) return none;
  socketDirectory ??= mkdtemp(join(tmpdir(), 'assay-'));
  const key = createHash('sha256').update(privateKey).digest('hex').slice(0, 16);
  // A busy connection would never grow idle: past its age a new one is made and the old one runs out.
  const now = performance.now();
  let entry = kept.get(key) ?? { openedAt: now, generation: 0 };
  if (now - entry.openedAt > KEPT_CONNECTION_MAX_AGE_MS)
    entry = { openedAt: now, generation: entry.generation + 1 };
  kept.set(key, entry);
  const prefix = join(await socketDirectory, `${key}${entry.generation}-`);
  if (Buffer.byteLength(prefix) > SOCKET_PREFIX_MAX_BYTES) return none;
  return {
    ControlMaster: 'auto',
    ControlPath: configPath(prefix, '%C'),
    ControlPersist: Math.max(1, Math.ceil(keepConnectionMs / 1000)),
  };
}

export async function closeConnections(): Promise<void> {
  if (!socketDirectory) return;
  const directory = await socketDirectory;
  socketDirectory = undefined;
  kept.clear();
  const sockets = await readdir(directory);
  await Promise.all(sockets.map(socket => closeConnection(join(directory, socket))));
  await rm(directory, { recursive: true, force: true });
}

async function closeConnection(socket: string): Promise<void> {
  const ask = ['-F', '/dev/null', '-S', socket.replaceAll('%', '%%'), '-O', 'exit', 'kept'];
  try {
    await promisify(execFile)('ssh', ask, { timeout: CLOSE_TIMEOUT_MS });
  } catch {
    // It ran out by itself in the meantime.
  }
}

function configLines(settings: Record<string, string | number>): string[] {
  return Object.entries(settings).map(([name, value]) => `${name} ${value}`);
}

// ssh expands %x and ${x} in these values and has no way to write a quotation mark inside quotes.
function configPath(path: string, token = ''): string {
  if (/["\\\p{Cc}]|\$\{/u.test(path)) throw new Error(`ssh cannot use a path with such characters: ${path}`);
  return `"${path.replaceAll('%', '%%')}${token}"`;
}

function shellQuote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
