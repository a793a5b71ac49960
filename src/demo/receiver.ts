// The demo's webhook receiver: an HTTP server on loopback that checks every signature and records the events.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { sign } from '../domain/webhook/signature.ts';

export type Receiver = {
  /** The URL for notifications of that type. */
  urlFor(notifiableType: string): string;
  expectSecret(notifiableType: string, secret: string): void;
  /** Resolves with the events received so far, when all of these have arrived or the time is up. */
  received(ids: readonly string[]): Promise<Set<string>>;
  /** How many calls had an invalid signature. */
  forged(): number;
  close(): Promise<void>;
};

const DEADLINE_MS = 30_000;

export async function startReceiver(): Promise<Receiver> {
  const secrets = new Map<string, string>();
  const seen = new Set<string>();
  const waiting = new Set<() => void>();
  let forged = 0;
  const server = createServer(async (request, response) => {
    const body = await text(request);
    const id = String(request.headers['webhook-id']);
    const secret = secrets.get((request.url ?? '').slice(1)) ?? '';
    const timestamp = Number(request.headers['webhook-timestamp']);
    const isGenuine = request.headers['webhook-signature'] === sign({ id, timestamp, body, secret });
    if (isGenuine) seen.add(id);
    else forged += 1;
    response.writeHead(isGenuine ? 204 : 401).end();
    for (const check of waiting) check();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    urlFor: type => `http://127.0.0.1:${port}/${type}`,
    expectSecret: (type, secret) => secrets.set(type, secret),
    forged: () => forged,
    received: ids =>
      new Promise(resolve => {
        const end = () => {
          clearTimeout(timer);
          waiting.delete(check);
          resolve(new Set(ids.filter(id => seen.has(id))));
        };
        const check = () => {
          if (ids.every(id => seen.has(id))) end();
        };
        const timer = setTimeout(end, DEADLINE_MS);
        waiting.add(check);
        check();
      }),
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}
