// The demo's Git host: an SSH server on loopback that accepts one key, only to fetch from and push to the demo's
// repositories. The only file that imports ssh2.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import ssh2, { type AuthContext, type ServerChannel, type Session } from 'ssh2';
import { generateKeyPair } from '../domain/ssh-key.ts';
import { gitEnvironment } from './repository.ts';

export type GitHost = {
  port: number;
  /** An OpenSSH client configuration that reaches this host under the given name. */
  clientConfig(name: string): string;
  /** Accepts this public key, and no other from now on. */
  allow(publicKey: string): void;
  close(): Promise<void>;
};

const USER = 'git';
/** A command of git. The name has no slash and only one dot, so it stays inside the directory. */
const COMMAND = /^git-(upload-pack|receive-pack) '\/?([a-z0-9-]+\.git)'$/;
const PROTOCOL = /^version=\d$/;

export async function startGitHost(repositories: string): Promise<GitHost> {
  let allowed: ssh2.ParsedKey | undefined;
  const connections = new Set<ssh2.Connection>();
  const server = new ssh2.Server({ hostKeys: [generateKeyPair('assay demo').privateKey] }, connection => {
    connections.add(connection);
    connection.on('close', () => connections.delete(connection));
    // A client may disconnect at any time.
    connection.on('error', () => {});
    connection.on('authentication', context => {
      if (allowed && isAllowed(context, allowed)) context.accept();
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
    allow(publicKey) {
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

function isAllowed(context: AuthContext, allowed: ssh2.ParsedKey): boolean {
  if (context.method !== 'publickey' || context.username !== USER) return false;
  const { key, signature, blob, hashAlgo } = context;
  if (key.algo !== allowed.type || !key.data.equals(allowed.getPublicSSH())) return false;
  // Without a signature, the client only asks whether the key is accepted.
  return !signature || (blob !== undefined && allowed.verify(blob, signature, hashAlgo) === true);
}

function serve(session: Session, repositories: string): void {
  let protocol = '';
  session.on('env', (accept, reject, { key, val }) => {
    const known = key === 'GIT_PROTOCOL' && PROTOCOL.test(val);
    if (known) protocol = val;
    // They are undefined if the client wants no reply.
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
  // Git closes its input once it has what it needs; the rest is dropped.
  git.stdin.on('error', () => {});
  git.on('error', () => end(127));
  git.on('close', status => end(status ?? 1));
  channel.on('close', () => git.kill());
}
