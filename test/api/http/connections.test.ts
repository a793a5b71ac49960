// Idle timeouts and connection limits, with short limits for testing. test/attacks/connections.test.ts tests the
// production limits.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { connect as connect2 } from 'node:http2';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import {
  type ConnectionLimits,
  connectionLimits,
  markAuthenticated,
} from '../../../src/api/http/connections.ts';
import { type Server, startServer } from '../../../src/api/http/server.ts';
import { frame as eventFrame, openStream, streamResponse } from '../../../src/api/http/stream.ts';
import { ensureCertificate } from '../../../src/engine/certificate.ts';
import { createLog } from '../../../src/log.ts';
import { collectGarbage } from '../../support/garbage.ts';
import { holdConnection } from '../../support/held-connection.ts';
import {
  CONTINUATION,
  END_HEADERS,
  END_STREAM,
  frame,
  HEADERS,
  PREFACE,
  REQUEST,
  resetStream,
} from '../../support/http2-frames.ts';

let directory: string;
let certificate: Awaited<ReturnType<typeof ensureCertificate>>;
let ca: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'assay-connections-'));
  certificate = await ensureCertificate({ directory, hosts: ['127.0.0.1'] });
  ca = await readFile(join(directory, 'ca.pem'), 'utf8');
});
after(() => rm(directory, { recursive: true, force: true }));

/** Limits that never apply, except for those that a test sets. */
const patient: ConnectionLimits = {
  ...connectionLimits,
  checkMs: 50,
  unauthenticated: { perAddress: 1_000, total: 1_000, totalWithYoung: 1_000, settleMs: 0 },
};

/** `/stream` stays open; the query `known` counts as credentials. Counts the requests that it handles. */
async function serve(context: TestContext, limits: Partial<ConnectionLimits>) {
  const counts = { requests: 0 };
  const seen: WeakRef<ServerResponse>[] = [];
  const server: Server = await startServer({
    host: '127.0.0.1',
    port: 0,
    certificate,
    log: createLog(() => {}, {}),
    limits: { ...patient, ...limits },
    clientKeyOf: address => (address === '127.0.0.9' ? undefined : address),
    fetch: (request: Request, { outgoing }: { outgoing: ServerResponse }) => {
      counts.requests += 1;
      seen.push(new WeakRef(outgoing));
      const { pathname, search } = new URL(request.url);
      if (search === '?known') markAuthenticated(outgoing);
      if (pathname !== '/stream') return new Response('pong');
      openStream(outgoing, () => true).send(eventFrame('state', '{}'));
      return streamResponse();
    },
  });
  context.after(() => server.close());
  return Object.assign(server, { counts, seen });
}

async function open({ port }: Server, ALPNProtocols = ['http/1.1'], localAddress = '127.0.0.1') {
  const options = { port, host: '127.0.0.1', localAddress, ca, ALPNProtocols };
  const socket = connect(options);
  socket.on('error', () => {});
  socket.resume();
  await once(socket, 'secureConnect');
  return socket;
}

async function ask(socket: TLSSocket, path: string): Promise<string> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return chunk.toString('latin1');
}

/** Resolves when the server has closed the connection. */
const closed = (socket: Socket) =>
  socket.destroyed ? Promise.resolve() : new Promise<void>(resolve => socket.once('close', () => resolve()));

const idlers: Record<string, Buffer[]> = {
  'after TLS': [],
  'after the preface': [PREFACE],
  'in the middle of its first headers': [PREFACE, frame(HEADERS, END_STREAM, 1, REQUEST)],
  'in the middle of headers, after a request': [
    PREFACE,
    frame(HEADERS, END_STREAM | END_HEADERS, 1, REQUEST),
    frame(HEADERS, END_STREAM, 3, REQUEST),
  ],
  'in headers that are continued': [
    PREFACE,
    frame(HEADERS, END_STREAM, 1, REQUEST.subarray(0, 3)),
    frame(CONTINUATION, 0, 1, REQUEST.subarray(3)),
  ],
};
for (const [name, frames] of Object.entries(idlers))
  test(`an HTTP/2 connection that idles ${name} is closed`, async context => {
    const server = await serve(context, { headersMs: 200 });
    const socket = await open(server, ['h2']);
    assert.equal(socket.alpnProtocol, 'h2');
    for (const bytes of frames) socket.write(bytes);
    await closed(socket);
  });

test('headers over HTTP/2 in two frames are answered', async context => {
  const server = await serve(context, {});
  const socket = await open(server, ['h2']);
  socket.write(PREFACE);
  socket.write(frame(HEADERS, END_STREAM, 1, REQUEST.subarray(0, 3)));
  await wait(120);
  socket.write(frame(CONTINUATION, END_HEADERS, 1, REQUEST.subarray(3)));
  for (let text = ''; !text.includes('pong'); text += await once(socket, 'data'));
  socket.destroy();
});

test('an HTTP/2 connection without requests is closed like one of HTTP/1.1, and one with a stream is not', async context => {
  const server = await serve(context, { keepAliveMs: 200, headersMs: 60_000 });
  const sessions = [0, 1].map(() => connect2(`https://127.0.0.1:${server.port}`, { ca }));
  const [busy, idle] = sessions as [ReturnType<typeof connect2>, ReturnType<typeof connect2>];
  const stream = busy.request({ ':path': '/stream' });
  await once(stream, 'response');
  const request = idle.request({ ':path': '/ping' });
  request.resume();
  const ended = once(idle, 'goaway');
  await once(request, 'close');
  await ended;
  await new Promise(resolve => (idle.destroyed ? resolve(undefined) : idle.once('close', resolve)));
  assert.ok(!busy.destroyed && !stream.destroyed);
  stream.close();
  await once(busy, 'close');
});

test('a connection that the client keeps open after its last response is closed', async context => {
  const server = await serve(context, { lingerMs: 100 });
  for (const request of [
    'no HTTP at all\r\n\r\n',
    'GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
  ]) {
    const held = await holdConnection(server.port, ca);
    held.write(request);
    await held.ended;
    await held.forgotten();
  }
});

test('a connection without traffic is closed while a request is handled', async context => {
  const server = await serve(context, { stallMs: 300 });
  const socket = await open(server);
  assert.match(await ask(socket, '/stream'), /^HTTP\/1\.1 200 /);
  await closed(socket);
});

test('beyond the limit of an address, its connections that are idle for longest are closed, and no others', async context => {
  const server = await serve(context, { unauthenticated: { ...patient.unauthenticated, perAddress: 3 } });
  const other = await open(server);
  const shared = await Promise.all(Array.from({ length: 6 }, () => open(server, ['h2'], '127.0.0.9')));
  const known: TLSSocket[] = [];
  for (let count = 0; count < 6; count += 1) {
    const socket = await open(server, undefined, '127.0.0.2');
    assert.match(await ask(socket, '/ping?known'), /^HTTP\/1\.1 200 /);
    known.push(socket);
  }
  const strangers: TLSSocket[] = [];
  for (let count = 0; count < 5; count += 1) strangers.push(await open(server, ['h2'], '127.0.0.2'));
  const [first, second, ...rest] = strangers as [TLSSocket, TLSSocket, ...TLSSocket[]];
  await Promise.all([first, second].map(closed));
  await wait(200);
  for (const socket of [other, ...shared, ...known, ...rest]) assert.ok(!socket.destroyed);
  for (const socket of [...known, other]) assert.match(await ask(socket, '/ping'), /^HTTP\/1\.1 200 /);
  for (const socket of [other, ...shared, ...known, ...rest]) socket.destroy();
});

test('beyond the total limit, new connections are served and running requests continue', async context => {
  const server = await serve(context, {
    unauthenticated: { perAddress: 1_000, total: 4, totalWithYoung: 8, settleMs: 60_000 },
  });
  const busy = await open(server);
  assert.match(await ask(busy, '/stream'), /^HTTP\/1\.1 200 /);
  const idle: TLSSocket[] = [];
  for (let count = 0; count < 20; count += 1) idle.push(await open(server));
  await Promise.all(idle.slice(0, 12).map(closed));
  const late = await open(server);
  assert.match(await ask(late, '/ping'), /^HTTP\/1\.1 200 /);
  assert.ok(!busy.destroyed);
  for (const socket of [busy, late, ...idle]) socket.destroy();
});

test('a client that resets every stream is disconnected, and none of them is handled', async context => {
  for (const batch of [20, 2_000]) {
    const server = await serve(context, {});
    const socket = await open(server, ['h2']);
    socket.write(PREFACE);
    for (let at = 0; at < 4_000 && !socket.destroyed; at += batch) {
      socket.write(Buffer.concat(Array.from({ length: batch }, (_, n) => resetStream(at + n))));
      await wait(1);
    }
    await closed(socket);
    assert.ok(server.counts.requests < 20, `${server.counts.requests} were handled`);
  }
});

test('a client that abandons many streams after they started is still served', async context => {
  const server = await serve(context, {});
  const session = connect2(`https://127.0.0.1:${server.port}`, { ca });
  for (let count = 0; count < 300; count += 1) {
    const stream = session.request({ ':path': '/stream' });
    await once(stream, 'response');
    stream.close(8);
    await once(stream, 'close');
  }
  const stream = session.request({ ':path': '/ping' });
  assert.equal((await once(stream, 'response'))[0][':status'], 200);
  session.destroy();
});

test('an idle connection keeps no response in memory', async context => {
  const server = await serve(context, {});
  const socket = await open(server);
  for (const _ of [1, 2]) assert.match(await ask(socket, '/ping'), /pong/);
  // A response is released a few turns after its last byte.
  for (let turns = 0; turns < 100 && server.seen.some(response => response.deref()); turns += 1) {
    await wait(10);
    collectGarbage();
  }
  assert.ok(server.seen.every(response => response.deref() === undefined));
  // The connection is still open.
  assert.match(await ask(socket, '/ping'), /pong/);
  socket.destroy();
});
