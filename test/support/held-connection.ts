// A TLS client that never closes its side of the connection.
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect as connectPlain } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import { connect } from 'node:tls';

export type HeldConnection = {
  write(bytes: string | Buffer): void;
  /** Everything received so far. */
  text(): string;
  /** Resolves when the server has closed its side. */
  ended: Promise<unknown>;
  /** Resolves when the server has released its file descriptor. */
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

/**
 * Whether a process still has the server's end of a connection open. After that, the kernel lists it without an inode.
 */
async function isOwned(serverPort: number, clientPort: number): Promise<boolean> {
  const hex = (port: number) => `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = (await readFile('/proc/net/tcp', 'utf8')).split('\n').map(row => row.trim().split(/\s+/));
  return rows.some(
    ([, local, remote, , , , , , , inode]) =>
      local?.endsWith(hex(serverPort)) && remote?.endsWith(hex(clientPort)) && inode !== '0',
  );
}
