// A webhook receiver that records what it gets, and sometimes fails the first attempt of an event: by refusing, by
// disconnecting, by being slow.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Random } from './random.ts';

export type Receiver = {
  url: string;
  /** By event: what was sent, how often, and whether it was acknowledged. */
  received: ReadonlyMap<string, { body: string; type: string; times: number; thanked: boolean }>;
  /** What must not happen: one ID with two bodies. */
  problems: string[];
  close(): Promise<void>;
};

const SLOW_MS = 300;

export async function startReceiver(options: { random?: Random; failing?: number } = {}): Promise<Receiver> {
  const { random, failing = 0 } = options;
  const received = new Map<string, { body: string; type: string; times: number; thanked: boolean }>();
  const problems: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', chunk => chunks.push(chunk));
    // A killed sender disconnects in the middle.
    request.on('error', () => {});
    request.on('end', () => {
      const id = String(request.headers['webhook-id']);
      const body = Buffer.concat(chunks).toString();
      const known = received.get(id);
      if (known && known.body !== body) problems.push(`event ${id} came with two bodies`);
      const entry = known ?? { body, type: typeOf(body), times: 0, thanked: false };
      received.set(id, entry);
      entry.times += 1;
      const fails = entry.times === 1 && random?.happens(failing);
      const way = fails ? random?.pick(['refuse', 'hang up', 'be slow']) : undefined;
      if (way === 'refuse') return response.writeHead(500).end();
      if (way === 'hang up') return request.socket.destroy();
      const thank = () => {
        entry.thanked = true;
        response.end('thanks');
      };
      return way === 'be slow' ? setTimeout(thank, SLOW_MS) : thank();
    });
  });
  server.on('connection', socket => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    received,
    problems,
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}

const typeOf = (body: string) => (JSON.parse(body) as { type: string }).type;
