// A TLS client that keeps its connection open whatever the server does: it never closes its side.
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect as connectPlain } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import { connect } from 'node:tls';

export type HeldConnection = {
  write(bytes: string | Buffer): void;
  /** All that has come so far. */
  text(): string;
  /** Resolves when the server has sent its last byte. */
  ended: Promise<unknown>;
  /** Resolves when the server has given up its descriptor. */
  forgotten(): Promise<void>;
  destroy(): void;
};

export async function holdConnection(port: number, ca: string): Promise<HeldConnection> {
  const below = connectPlain({ port, host: '127.0.0.1', allowHalfOpen: true });
  below.on('error', () => {});
  const ended = new Promise(resolve => below.once('end', resolve).once('close', resolve));
  const carrier = new Duplex({ read() {}, write: (bytes, _, done) => below.write(bytes, done) });
  below.on('data', bytes => carrier.push(bytes));
  const secure = connect({ socket: carrier, ca, host: '127.0.0.1' });
  secure.on('error', () => {});
  let text = '';
  secure.on('data', bytes => {
    text += bytes.toString('latin1');
  });
  await once(secure, 'secureConnect');
  const { localPort } = below;
  if (localPort === undefined) throw new Error('the connection was closed at once');
  return {
    write: bytes => secure.write(bytes),
    text: () => text,
    ended,
    async forgotten() {
      while (await isOwned(port, localPort)) await wait(100);
    },
    destroy: () => below.destroy(),
  };
}

/** Whether a process still has the server's end of a connection. The kernel knows it for longer, without an inode. */
async function isOwned(serverPort: number, clientPort: number): Promise<boolean> {
  const hex = (port: number) => `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map(row => row.trim().split(/\s+/));
  return rows.some(
    ([, local, remote, , , , , , , inode]) =>
      local?.endsWith(hex(serverPort)) && remote?.endsWith(hex(clientPort)) && inode !== '0',
  );
}
