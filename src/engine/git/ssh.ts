// One SSH client setting for a call of git: the project's key alone, the administrator's ssh/config and
// the host keys of the data directory. What ssh and git say when it fails is put into words in explain.ts.

import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { shellQuote } from '../../domain/text/shell.ts';

export interface SshAccess {
  dataDirectory: string;
  privateKey: string;
  // Until TCP, banner and key exchange are done.
  connectTimeoutMs?: number;
}

export interface SshSession {
  // Private to this call and gone after it; `home` inside is empty.
  directory: string;
  environment: Record<string, string>;
  connectTimeoutMs: number;
}

export const CONNECT_TIMEOUT_MS = 15_000;
const END_LOOK_MS = 20;
const END_PATIENCE_MS = 1_000;

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

// When git is stopped, its ssh goes on for as long as the host keeps the session open. Resolves when it has ended.
async function endSsh(directory: string): Promise<void> {
  const pid = (await readFile(join(directory, 'pid'), 'utf8').catch(ignoreMissing))?.trim();
  if (!pid) return;
  // The number may belong to another process by now; this path belongs to no other.
  const isThere = async () =>
    (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).includes(directory);
  for (let waitedMs = 0; await isThere(); waitedMs += END_LOOK_MS) {
    try {
      if (waitedMs === 0) process.kill(Number(pid));
      else if (waitedMs >= END_PATIENCE_MS) process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It ended between the look and the kill.
    }
    if (waitedMs > 2 * END_PATIENCE_MS) return;
    await delay(END_LOOK_MS);
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
    // Each call logs in anew: a kept connection would see neither a changed host key nor a withdrawn one.
    ControlMaster: 'no',
    ControlPath: 'none',
    ControlPersist: 'no',
  };
  const defaults = {
    GlobalKnownHostsFile: '/dev/null',
    HashKnownHosts: 'no',
    ServerAliveInterval: 15,
    ServerAliveCountMax: 3,
  };
  return [...configLines(firm), administrators ?? '', 'Match all', ...configLines(defaults), ''].join('\n');
}

function configLines(settings: Record<string, string | number>): string[] {
  return Object.entries(settings).map(([name, value]) => `${name} ${value}`);
}

// ssh expands %x and ${x} in these values and has no way to write a quotation mark inside quotes.
function configPath(path: string): string {
  if (/["\\\p{Cc}]|\$\{/u.test(path)) throw new Error(`ssh cannot use a path with such characters: ${path}`);
  return `"${path.replaceAll('%', '%%')}"`;
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
