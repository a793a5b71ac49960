// A proxy in front of the Docker socket that blocks the end of chosen containers, as if the kernel could not kill a
// process (refused or never answered), or never answers one kind of request.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export type BlockMode = 'refusing' | 'hanging';

export type Gate = {
  dockerHost: string;
  /** From now on, the container with these names cannot be stopped or removed. Returns the number of attempts. */
  protect(names: readonly string[], how: BlockMode): () => number;
  /** From now on, requests of this kind are not answered. Returns the number of attempts. */
  hang(method: string, path: RegExp): () => number;
  release(): void;
  close(): Promise<void>;
};

const ENDS = [
  ['POST', /^(?:\/v[\d.]+)?\/containers\/([^/?]+)\/(?:kill|stop)\b/],
  ['DELETE', /^(?:\/v[\d.]+)?\/containers\/([^/?]+)(?:\?|$)/],
] as const;

/** The container that a request stops or removes. */
const endedBy = ({ method, url = '' }: IncomingMessage): string | undefined =>
  ENDS.flatMap(([verb, path]) => (method === verb ? (path.exec(url)?.[1] ?? []) : []))[0];

export async function openGate(engineHost: string): Promise<Gate> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-gate-'));
  const path = join(directory, 'docker.sock');
  const socketPath = engineHost.slice('unix://'.length);
  const hanging = new Set<ServerResponse>();
  let isProtected = (_name: string) => false;
  let isUnanswered = (_request: IncomingMessage) => false;
  let manner: BlockMode = 'refusing';
  let tries = 0;

  const hold = (response: ServerResponse) => {
    tries += 1;
    if (manner === 'hanging') hanging.add(response);
    else
      response
        .writeHead(500, { 'content-type': 'application/json' })
        .end(JSON.stringify({ message: 'tried to kill container, but did not receive an exit event' }));
  };
  const pass = (incoming: IncomingMessage, response: ServerResponse) => {
    const { method = '', url = '', headers } = incoming;
    const outgoing = request({ socketPath, method, path: url, headers }, answer => {
      response.writeHead(answer.statusCode ?? 0, answer.headers);
      // Some responses send headers long before their content.
      response.flushHeaders();
      answer.on('error', () => response.destroy());
      answer.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
    incoming.on('error', () => outgoing.destroy());
    response.on('close', () => outgoing.destroy());
    incoming.pipe(outgoing);
  };
  const server = createServer({ requestTimeout: 0 }, (incoming, response) => {
    const name = endedBy(incoming);
    if (isUnanswered(incoming) || (name !== undefined && isProtected(name))) hold(response);
    else pass(incoming, response);
  });
  await once(server.listen(path), 'listening');

  const gate: Gate = {
    dockerHost: `unix://${path}`,
    protect(names, how) {
      tries = 0;
      manner = how;
      isProtected = name => names.includes(name);
      return () => tries;
    },
    hang(method, path) {
      tries = 0;
      manner = 'hanging';
      isUnanswered = request => request.method === method && path.test(request.url ?? '');
      return () => tries;
    },
    release() {
      isProtected = () => false;
      isUnanswered = () => false;
      for (const response of hanging) response.destroy();
      hanging.clear();
    },
    async close() {
      gate.release();
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
      rmSync(directory, { recursive: true, force: true });
    },
  };
  return gate;
}
