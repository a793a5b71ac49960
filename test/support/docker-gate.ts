// A socket in front of the Docker Engine that a test can shut and open: the engine goes away and comes back.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DOCKER_HOST } from './appliance.ts';

export type DockerGate = {
  dockerHost: string;
  shut(): Promise<void>;
  open(): Promise<void>;
  close(): Promise<void>;
};

/** Shut until it is opened. */
export function createDockerGate(): DockerGate {
  const directory = mkdtempSync(join(tmpdir(), 'assay-gate-'));
  const path = join(directory, 'docker.sock');
  const engine = DOCKER_HOST.slice('unix://'.length);
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  const gate: DockerGate = {
    dockerHost: `unix://${path}`,
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
          one.pipe(other);
        }
      }).listen(path);
      await once(server, 'listening');
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
