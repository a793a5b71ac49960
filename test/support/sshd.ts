// A real OpenSSH server on a free loopback port, with its own host key, that serves the repositories of a temporary
// directory.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { generateKeyPair } from '../../src/domain/ssh-key.ts';
import { freePort } from './ports.ts';

export type TestSshd = {
  port: number;
  repositoriesDirectory: string;
  // Lines for ssh/config in a data directory, with the alias that urlFor uses.
  clientConfig: string;
  urlFor(name: string): string;
  // `command` runs instead of the requested command, which it finds in SSH_ORIGINAL_COMMAND.
  addKey(publicKey: string, command?: string): void;
  removeKey(publicKey: string): void;
  changeHostKey(): Promise<void>;
  // Ends the connections that clients keep open.
  endSessions(): void;
  close(): Promise<void>;
};

const HOST_ALIAS = 'git.assay.test';
const START_TIMEOUT_MS = 60_000;

/** `keyExchange: 'default'` is for benchmarks: it takes the client a sixth of a second of processor time. */
export async function startSshd({ keyExchange = 'cheap' as 'cheap' | 'default' } = {}): Promise<TestSshd> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-sshd-'));
  const repositoriesDirectory = join(directory, 'repositories');
  mkdirSync(repositoriesDirectory);
  const user = userInfo().username;
  const keys = new Map<string, string>();
  // Replaced atomically: a login may be reading it.
  const writeKeys = () => {
    const path = join(directory, 'authorized_keys');
    writeFileSync(`${path}.new`, [...keys.values(), ''].join('\n'));
    renameSync(`${path}.new`, path);
  };
  writeKeys();
  writeHostKey(directory);
  const { port, server: first } = await listenSomewhere(directory, keyExchange);
  let server = first;
  return {
    port,
    repositoriesDirectory,
    clientConfig: `Host ${HOST_ALIAS}\n  HostName 127.0.0.1\n  Port ${port}\n`,
    urlFor: name => `${user}@${HOST_ALIAS}:${join(repositoriesDirectory, name)}`,
    addKey(publicKey, command) {
      const options = command ? `command="${command.replaceAll('"', '\\"')}" ` : '';
      keys.set(publicKey, `${options}${publicKey}`);
      writeKeys();
    },
    removeKey(publicKey) {
      keys.delete(publicKey);
      writeKeys();
    },
    async changeHostKey() {
      await stop(server);
      writeHostKey(directory);
      server = await run(directory);
    },
    endSessions: () => endSessions(server),
    async close() {
      await stop(server);
      // A session may still write for a moment.
      rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
    },
  };
}

/** Another process may take the free port before sshd does. */
async function listenSomewhere(
  directory: string,
  keyExchange: 'cheap' | 'default',
): Promise<{ port: number; server: ChildProcess }> {
  for (let tries = 1; ; tries += 1) {
    const port = await freePort();
    writeConfig(directory, port, keyExchange);
    try {
      return { port, server: await run(directory) };
    } catch (error) {
      if (tries === 5 || !/Address already in use/.test(String(error))) throw error;
    }
  }
}

function writeConfig(directory: string, port: number, keyExchange: 'cheap' | 'default'): void {
  const settings = [
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${join(directory, 'host_key')}`,
    `AuthorizedKeysFile ${join(directory, 'authorized_keys')}`,
    'PidFile none',
    'StrictModes no',
    'UsePAM no',
    'PermitRootLogin prohibit-password',
    'PasswordAuthentication no',
    'KbdInteractiveAuthentication no',
    'AcceptEnv GIT_PROTOCOL',
    'PrintMotd no',
    'MaxStartups 100',
    'UseDNS no',
    ...(keyExchange === 'cheap' ? ['KexAlgorithms curve25519-sha256'] : []),
    // Debian's bash reads the host's ~/.bashrc for each command, unless it is a nested shell.
    'SetEnv SHLVL=2',
  ];
  writeFileSync(join(directory, 'sshd_config'), `${settings.join('\n')}\n`);
}

function writeHostKey(directory: string): void {
  writeFileSync(join(directory, 'host_key'), generateKeyPair('host').privateKey, { mode: 0o600 });
}

// In its own process group, so that open sessions end with it.
async function run(directory: string): Promise<ChildProcess> {
  // Debian's sshd requires its privilege separation directory when root starts it.
  if (userInfo().uid === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 });
  const server = spawn('/usr/sbin/sshd', ['-D', '-e', '-f', join(directory, 'sshd_config')], {
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  });
  const output: string[] = [];
  const lines = createInterface({ input: server.stderr! });
  const listening = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('sshd did not start in time')), START_TIMEOUT_MS);
    lines.on('line', line => {
      output.push(line);
      if (!line.startsWith('Server listening')) return;
      clearTimeout(timer);
      resolve();
    });
    server.on('error', reject);
    server.on('exit', () => {
      clearTimeout(timer);
      reject(new Error(`sshd ended: ${output.join('\n')}`));
    });
  });
  await listening;
  return server;
}

/** Ends the processes of sshd only. What they started ends by itself, and can clean up first. */
function endSessions(server: ChildProcess): void {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    let status = '';
    try {
      status = readFileSync(`/proc/${name}/stat`, 'utf8');
    } catch {
      // It has ended meanwhile.
    }
    const parent = Number(/\) \S (\d+)/.exec(status)?.[1] ?? 0);
    if (/^\d+ \(sshd/.test(status)) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const end = (parent: number) => {
    for (const pid of children.get(parent) ?? []) {
      end(pid);
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has ended meanwhile.
      }
    }
  };
  end(server.pid!);
}

async function stop(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return;
  const ended = once(server, 'exit');
  // Sessions are in groups of their own.
  endSessions(server);
  process.kill(-server.pid!, 'SIGKILL');
  await ended;
}
