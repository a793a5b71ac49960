// A socket in front of the Docker Engine that lets everything through but the end of chosen containers (as with a process
// that the kernel cannot end, the engine refuses, or does not answer) or requests of one kind, which are never answered.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export type Stubbornness = 'refusing' | 'hanging';

export type Gate = {
  dockerHost: string;
  /** From now on nobody ends or removes the container, which has all of these names; says how often it was tried. */
  protect(names: readonly string[], how: Stubbornness): () => number;
  /** From now on no request of this kind is answered; says how often it was tried. */
  hang(method: string, path: RegExp): () => number;
  release(): void;
  close(): Promise<void>;
};

const ENDS = [
  ['POST', /^(?:\/v[\d.]+)?\/containers\/([^/?]+)\/(?:kill|stop)\b/],
  ['DELETE', /^(?:\/v[\d.]+)?\/containers\/([^/?]+)(?:\?|$)/],
] as const;

/** The container that a request is to end or remove. */
const endedBy = ({ method, url = '' }: IncomingMessage): string | undefined =>
  ENDS.flatMap(([verb, path]) => (method === verb ? (path.exec(url)?.[1] ?? []) : []))[0];

export async function openGate(engineHost: string): Promise<Gate> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-gate-'));
  const path = join(directory, 'docker.sock');
  const socketPath = engineHost.slice('unix://'.length);
  const hanging = new Set<ServerResponse>();
  let isProtected = (_name: string) => false;
  let isUnanswered = (_request: IncomingMessage) => false;
  let manner: Stubbornness = 'refusing';
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
      // Some answers begin long before there is anything in them.
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
