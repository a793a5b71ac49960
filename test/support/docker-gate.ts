// A proxy in front of the Docker socket that a test can close and open, as if the engine stopped and came back.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { DOCKER_HOST } from './appliance.ts';

type Spoiling = 'break' | 'hang' | 'lose';

export type DockerGate = {
  dockerHost: string;
  shut(): Promise<void>;
  open(): Promise<void>;
  /**
   * Requests whose first line matches do not reach the engine: the connection is cut, or never answered. With `lose`, they
   * reach it, and the connection is cut when it answers.
   */
  spoil(request: RegExp | undefined, how?: Spoiling): void;
  /** The first lines of all requests, without the HTTP version. */
  requests: string[];
  close(): Promise<void>;
};

/** Refuses connections until it is opened. */
export function createDockerGate(): DockerGate {
  const directory = mkdtempSync(join(tmpdir(), 'assay-gate-'));
  const path = join(directory, 'docker.sock');
  const engine = DOCKER_HOST.slice('unix://'.length);
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  let spoiled: { request: RegExp; how: Spoiling } | undefined;
  /** Returns whether a chunk of a request must not reach the engine. */
  const spoiling = (socket: Socket, behind: Socket) => {
    let isSpoiled = false;
    return (chunk: Buffer): boolean => {
      const [line] = chunk.toString('latin1').split('\r\n', 1) as [string];
      const [request] = /^[A-Z]+ \/\S*(?= HTTP\/1\.1$)/.exec(line) ?? [];
      if (request !== undefined) gate.requests.push(request);
      isSpoiled ||= spoiled?.request.test(line) ?? false;
      if (isSpoiled && spoiled?.how === 'break') socket.destroy();
      if (!isSpoiled || spoiled?.how !== 'lose') return isSpoiled;
      behind.unpipe(socket);
      behind.once('data', () => socket.destroy()).resume();
      return false;
    };
  };
  const gate: DockerGate = {
    dockerHost: `unix://${path}`,
    requests: [],
    async open() {
      server = createServer({ allowHalfOpen: true }, socket => {
        const behind = connect({ path: engine, allowHalfOpen: true });
        for (const [one, other] of [
          [socket, behind],
          [behind, socket],
        ] as const) {
          sockets.add(one);
          one.on('error', () => other.destroy());
          one.on('close', () => {
            sockets.delete(one);
            other.destroy();
          });
        }
        behind.pipe(socket);
        const spoils = spoiling(socket, behind);
        const passed = new Transform({
          transform: (chunk, _, done) => done(null, spoils(chunk) ? undefined : chunk),
        });
        socket.pipe(passed).pipe(behind);
      }).listen(path);
      await once(server, 'listening');
    },
    spoil(request, how = 'break') {
      spoiled = request && { request, how };
    },
    async shut() {
      if (!server) return;
      const closed = once(server, 'close');
      server.close();
      server = undefined;
      for (const socket of sockets) socket.destroy();
      await closed;
    },
    async close() {
      await gate.shut();
      rmSync(directory, { recursive: true, force: true });
    },
  };
  return gate;
}
