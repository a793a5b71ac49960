// Hosts on loopback that misbehave: they hang, send a byte at a time, send garbage, disconnect, or never stop.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { freePort } from '../../support/ports.ts';

export type BadHost = { port: number; close(): Promise<void> };

/** `behave` gets each connection. */
export async function startBadHost(behave: (socket: Socket) => void): Promise<BadHost> {
  const sockets = new Set<Socket>();
  const server = createServer(socket => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    // Clients disconnect from such a host.
    socket.on('error', () => {});
    socket.resume();
    behave(socket);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}

/** A port where nothing listens. */
export const startNobody = async (): Promise<BadHost> => ({ port: await freePort(), close: async () => {} });

const DRIP_MS = 500;

/** Sends a byte now and then, without end. */
function drip(socket: Socket, text: string): void {
  let at = 0;
  const timer = setInterval(() => socket.write(text[at++ % text.length] ?? ''), DRIP_MS);
  socket.on('close', () => clearInterval(timer));
}

export const hang = () => {};
export const hangUp = (socket: Socket) => void socket.end();
export const garbage = (socket: Socket) => void socket.end(randomBytes(20_000));
export const dripSsh = (socket: Socket) => drip(socket, 'SSH-2.0-Slow');
export const dripHttp = (socket: Socket) => drip(socket, 'HTTP/1.1 200 OK\r\nx: y\r\nx: y');
export const redirect = (socket: Socket) =>
  void socket.end('HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n');

/** A response with an endless body. */
export function endless(socket: Socket): void {
  socket.write('HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n');
  const more = () => {
    while (!socket.destroyed && socket.write(randomBytes(65_536)));
  };
  socket.on('drain', more);
  more();
}
