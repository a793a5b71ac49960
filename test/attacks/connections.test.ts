// Connections without credentials that stay open, or that reset every stream: each is closed by the production limits,
// while other clients are served. The server may open 1,024 files, which a thousand connections would exhaust.
import assert from 'node:assert/strict';
import { readdirSync, readlinkSync } from 'node:fs';
import { connect as connectPlain, type Socket } from 'node:net';
import { after, before } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { type HeldConnection, holdConnection } from '../support/held-connection.ts';
import { END_STREAM, frame, HEADERS, PREFACE, REQUEST, resetStream } from '../support/http2-frames.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { alive, openWire, statusesIn, type Wire } from './wire.ts';

const PING = 'GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
const HEADERS_MS = 15_000;

let app: ServedApp;
let wire: Wire;
before(async () => {
  app = await serveApp(['prlimit', '--nofile=1024:1024']);
  wire = openWire(app);
});
after(async () => {
  wire.close();
  await app.close();
});

const port = () => Number(new URL(app.url).port);
const closed = (socket: Socket) =>
  socket.destroyed ? Promise.resolve() : new Promise<void>(resolve => socket.once('close', () => resolve()));

const idlers: Record<string, Buffer[]> = {
  'after TLS': [],
  'after the preface': [PREFACE],
  'in the middle of headers': [PREFACE, frame(HEADERS, END_STREAM, 1, REQUEST)],
};
const ended: Record<string, string> = {
  'a malformed request': 'no HTTP at all\r\n\r\n',
  'a request with too many headers': `GET /ping HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(100_000)}\r\n\r\n`,
  'an unfinished request': 'GET /ping HTTP/1.1\r\nHost: x\r\nX-Slow:',
  'its last response': PING,
};
const held: Record<string, () => Promise<void>> = {
  ...mapValues(
    idlers,
    frames => async () => {
      const beganAt = Date.now();
      const sockets = await Promise.all(Array.from({ length: 20 }, () => wire.open(['h2'])));
      for (const socket of sockets) {
        assert.equal(socket.alpnProtocol, 'h2');
        socket.resume();
        for (const bytes of frames) socket.write(bytes);
      }
      await Promise.all(sockets.map(closed));
      const tookMs = Date.now() - beganAt;
      assert.ok(tookMs >= HEADERS_MS - 1_000 && tookMs < 3 * HEADERS_MS, `${tookMs} ms`);
    },
    name => `over HTTP/2, idle ${name}`,
  ),
  ...mapValues(
    ended,
    request => async () => {
      const connections: HeldConnection[] = [];
      for (let count = 0; count < 30; count += 1)
        connections.push(await holdConnection(port(), app.client.ca));
      for (const connection of connections) connection.write(request);
      await Promise.all(connections.map(connection => connection.ended));
      const status = request === PING ? 200 : 400;
      for (const connection of connections) assert.deepEqual(statusesIn(connection.text()), [status]);
      await Promise.all(connections.map(connection => connection.forgotten()));
    },
    name => `over HTTP/1.1, after ${name}`,
  ),
};
attacks('a connection that is kept open is closed', held, run => run(), { concurrency: 7 });

const crowds: Record<string, () => Promise<Socket>> = {
  'without a TLS handshake': async () => connectPlain(port(), '127.0.0.1'),
  'idle over HTTP/1.1': () => wire.open(),
  'idle over HTTP/2': async () => {
    const socket = await wire.open(['h2']);
    socket.write(PREFACE);
    return socket;
  },
};
attacks('a thousand idle connections do not block other clients', crowds, async open => {
  const known = await Promise.all(Array.from({ length: 5 }, () => wire.open()));
  for (const socket of known) {
    socket.write(`GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: ${app.people.owner.as}\r\n\r\n`);
    socket.resume();
  }
  const sockets: Socket[] = [];
  for (let count = 0; count < 40; count += 1) {
    const opened = await Promise.all(Array.from({ length: 25 }, open));
    for (const socket of opened) sockets.push(socket.on('error', () => {}).resume());
    assert.deepEqual(statusesIn(await wire.exchange(PING)), [200]);
  }
  // Until the connections beyond the limit are closed.
  while (openSockets(app.pid) > 500) await wait(100);
  for (let count = 0; count < 20; count += 1) {
    assert.deepEqual(statusesIn(await wire.exchange(PING)), [200]);
    await alive(app);
  }
  for (const socket of known) assert.ok(!socket.destroyed, 'a connection with credentials was closed');
  for (const socket of [...known, ...sockets]) socket.destroy();
});

function openSockets(pid: number): number {
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory).filter(name => {
    try {
      return readlinkSync(`${directory}/${name}`).startsWith('socket:');
    } catch {
      // Closed since it was listed.
      return false;
    }
  }).length;
}

attacks(
  'a client that resets every stream is disconnected, while others are served',
  { 'a few at a time': 20, 'many at a time': 2_000 },
  async batch => {
    for (let round = 0; round < 10; round += 1) {
      const socket = await wire.open(['h2']);
      socket.resume();
      socket.write(PREFACE);
      for (let at = 0; at < 4_000 && !socket.destroyed; at += batch) {
        socket.write(Buffer.concat(Array.from({ length: batch }, (_, n) => resetStream(at + n))));
        await wait(1);
      }
      await closed(socket);
      await alive(app);
    }
  },
);

function mapValues<Value, Other>(
  values: Record<string, Value>,
  map: (value: Value) => Other,
  rename: (name: string) => string,
): Record<string, Other> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [rename(name), map(value)]));
}
