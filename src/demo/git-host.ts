// The demo's Git host: SSH on a free port of loopback, for one key, and behind it nothing but fetching from and
// pushing to the demo's own repositories. The one door to ssh2.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import ssh2, { type AuthContext, type ServerChannel, type Session } from 'ssh2';
import { generateKeyPair } from '../domain/ssh-key.ts';
import { gitEnvironment } from './repository.ts';

export type GitHost = {
  port: number;
  /** What an OpenSSH client configuration needs to reach it under that name. */
  clientConfig(name: string): string;
  /** The one key that is let in, in OpenSSH's form. */
  letIn(publicKey: string): void;
  close(): Promise<void>;
};

const USER = 'git';
/** As git writes it; the name has neither a slash nor a dot before its end, so it stays in the directory. */
const COMMAND = /^git-(upload-pack|receive-pack) '\/?([a-z0-9-]+\.git)'$/;
const PROTOCOL = /^version=\d$/;

export async function startGitHost(repositories: string): Promise<GitHost> {
  let allowed: ssh2.ParsedKey | undefined;
  const connections = new Set<ssh2.Connection>();
  const server = new ssh2.Server({ hostKeys: [generateKeyPair('assay demo').privateKey] }, connection => {
    connections.add(connection);
    connection.on('close', () => connections.delete(connection));
    // A client that goes away in the middle is its own affair.
    connection.on('error', () => {});
    connection.on('authentication', context => {
      if (allowed && mayEnter(context, allowed)) context.accept();
      else context.reject(['publickey']);
    });
    connection.on('session', accept => serve(accept(), repositories));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    port,
    clientConfig: name => `Host ${name}\n  HostName 127.0.0.1\n  Port ${port}\n`,
    letIn(publicKey) {
      const parsed = ssh2.utils.parseKey(publicKey);
      if (parsed instanceof Error) throw parsed;
      allowed = parsed;
    },
    async close() {
      for (const connection of connections) connection.end();
      server.close();
      await once(server, 'close');
    },
  };
}

function mayEnter(context: AuthContext, allowed: ssh2.ParsedKey): boolean {
  if (context.method !== 'publickey' || context.username !== USER) return false;
  const { key, signature, blob, hashAlgo } = context;
  if (key.algo !== allowed.type || !key.data.equals(allowed.getPublicSSH())) return false;
  // Without a signature the client only asks whether the key would do.
  return !signature || (blob !== undefined && allowed.verify(blob, signature, hashAlgo) === true);
}

function serve(session: Session, repositories: string): void {
  let protocol = '';
  session.on('env', (accept, reject, { key, val }) => {
    const known = key === 'GIT_PROTOCOL' && PROTOCOL.test(val);
    if (known) protocol = val;
    // A client that wants no answer leaves these undefined.
    (known ? accept : reject)?.();
  });
  session.on('exec', (accept, reject, { command }) => {
    const [, service, name] = COMMAND.exec(command) ?? [];
    if (service === undefined || name === undefined) reject();
    else runGit(accept(), service, join(repositories, name), protocol);
  });
}

function runGit(channel: ServerChannel, service: string, repository: string, protocol: string): void {
  const git = spawn('git', [service, repository], {
    env: { ...gitEnvironment(), GIT_PROTOCOL: protocol },
    stdio: 'pipe',
  });
  const end = (status: number) => {
    channel.exit(status);
    channel.end();
  };
  channel.pipe(git.stdin);
  git.stdout.pipe(channel, { end: false });
  git.stderr.pipe(channel.stderr, { end: false });
  // Git closes its input when it has what it wants; the rest of what is sent is of no use to anyone.
  git.stdin.on('error', () => {});
  git.on('error', () => end(127));
  git.on('close', status => end(status ?? 1));
  channel.on('close', () => git.kill());
}
