// Sending one webhook: deadlines, limits, forbidden addresses, certificates and proxies.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import {
  type AddressInfo,
  connect,
  createServer as createNetServer,
  type Server,
  type Socket,
} from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { type Cidr, parseCidrs } from '../../src/domain/webhook/address.ts';
import { type Delivery, deliver } from '../../src/engine/webhook.ts';

const loopback = parseCidrs('127.0.0.0/8');
const directory = mkdtempSync(join(tmpdir(), 'assay-webhook-'));
after(() => rmSync(directory, { recursive: true }));

async function listen(t: TestContext, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  // A client that gives up disconnects in the middle.
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => socket.destroy())));
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

async function receiver(t: TestContext, listener: RequestListener): Promise<string> {
  return `http://127.0.0.1:${await listen(t, createServer(listener))}/hook`;
}

const send = (url: string, more: Partial<Delivery> = {}) =>
  deliver({
    url,
    body: '{"id":1}',
    headers: { 'content-type': 'application/json' },
    allow: loopback,
    ...more,
  });

function makeCertificate(): { key: string; cert: string } {
  const key = join(directory, 'key.pem');
  const cert = join(directory, 'cert.pem');
  const request = [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    '2',
  ];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  execFileSync('openssl', [...request, ...names, '-keyout', key, '-out', cert], {
    stdio: 'ignore',
    timeout: 10_000,
  });
  return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
}
const certificate = makeCertificate();

test('the body arrives byte for byte with its headers, and the response is returned', async t => {
  let seen: unknown;
  const url = await receiver(t, async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    seen = [
      request.method,
      request.url,
      request.headers['content-type'],
      request.headers['content-length'],
      body,
    ];
    response.writeHead(202).end('thank you');
  });
  const answer = await send(`${url}?a=1`, { body: '{"text":"ä"}' });
  assert.deepEqual(seen, ['POST', '/hook?a=1', 'application/json', '13', '{"text":"ä"}']);
  assert.deepEqual({ ...answer, responseMs: 0 }, { status: 202, excerpt: 'thank you', responseMs: 0 });
  assert.ok(answer.responseMs >= 0);
});

test('a redirect is a response, and is not followed', async t => {
  let requests = 0;
  const url = await receiver(t, (request, response) => {
    requests++;
    request.resume();
    response.writeHead(302, { location: '/elsewhere' }).end();
  });
  assert.equal((await send(url)).status, 302);
  assert.equal(requests, 1);
});

test('only the first KiB of an endless response is read, and the connection is closed', async t => {
  const closed = Promise.withResolvers<void>();
  const url = await receiver(t, (request, response) => {
    request.resume();
    response.on('close', closed.resolve);
    const chunk = Buffer.alloc(65_536, 'x');
    const write = () => {
      while (!response.destroyed && response.write(chunk));
    };
    response.on('drain', write);
    write();
  });
  const answer = await send(url);
  assert.equal(answer.status, 200);
  assert.equal(answer.excerpt, 'x'.repeat(1_024));
  await closed.promise;
});

test('a receiver that hangs, or sends its headers slowly, is given up at the deadline', async t => {
  const hanging = await listen(
    t,
    createNetServer(() => {}),
  );
  const dripping = await listen(
    t,
    createNetServer(socket => {
      socket.write('HTTP/1.1 200 OK\r\n');
      const drip = setInterval(() => socket.write('x: y\r\n'), 20);
      socket.on('error', () => {}).on('close', () => clearInterval(drip));
    }),
  );
  for (const port of [hanging, dripping]) {
    const answer = await send(`http://127.0.0.1:${port}/`, { timeoutMs: 200 });
    assert.equal(answer.error, 'no response in time');
    assert.equal(answer.status, undefined);
    assert.ok(answer.responseMs >= 190 && answer.responseMs < 8_000, `${answer.responseMs}`);
  }
});

test('a slow body does not take longer than the deadline, and its status counts', async t => {
  const url = await receiver(t, (request, response) => {
    request.resume();
    response.write('slow');
    const drip = setInterval(() => response.write('.'), 20);
    response.on('close', () => clearInterval(drip));
  });
  const answer = await send(url, { timeoutMs: 200 });
  assert.equal(answer.status, 200);
  assert.match(answer.excerpt, /^slow\.*$/);
  assert.ok(answer.responseMs < 8_000);
});

test('a receiver that closes, sends garbage or does not exist is reported clearly', async t => {
  const closing = await listen(
    t,
    createNetServer(socket => socket.once('data', () => socket.destroy())),
  );
  const rubbish = await listen(
    t,
    createNetServer(socket => socket.once('data', () => socket.end('SSH-2.0-x\r\n\r\n'))),
  );
  const gone = createNetServer().listen(0, '127.0.0.1');
  await once(gone, 'listening');
  const gonePort = (gone.address() as AddressInfo).port;
  gone.close();
  assert.match(
    (await send(`http://127.0.0.1:${closing}/`)).error!,
    /closed the connection without a response/,
  );
  assert.match((await send(`http://127.0.0.1:${rubbish}/`)).error!, /is not HTTP/);
  assert.match((await send(`http://127.0.0.1:${gonePort}/`)).error!, /refused the connection/);
  assert.match((await send('ftp://127.0.0.1/')).error!, /not http/);
});

test('a delivery can be canceled', async t => {
  const controller = new AbortController();
  const url = await receiver(t, () => controller.abort());
  assert.match((await send(url, { signal: controller.signal })).error!, /was canceled/);
  assert.match((await send(url, { signal: AbortSignal.abort() })).error!, /was canceled/);
});

test('forbidden addresses are never connected to, by number or by name', async t => {
  let connections = 0;
  const server = createServer((_, response) => response.end());
  server.on('connection', () => connections++);
  const port = await listen(t, server);
  const none: Cidr[] = [];
  for (const host of ['127.0.0.1', '2130706433', '0x7f.1', '[::ffff:127.0.0.1]', '0', 'localhost']) {
    const { error, status } = await send(`http://${host}:${port}/`, { allow: none });
    assert.match(error!, /(loopback|unspecified) address; an administrator may allow it/, host);
    assert.equal(status, undefined);
  }
  // A connection that one allow list permits is not reused for another that does not.
  assert.equal((await send(`http://localhost:${port}/`)).status, 200);
  assert.match((await send(`http://localhost:${port}/`, { allow: none })).error!, /loopback/);
  assert.equal(connections, 1);
});

test('connections are kept and limited for each host, and a closed one is replaced', async t => {
  const server = createServer((request, response) => request.resume().on('end', () => response.end('ok')));
  const opened: Socket[] = [];
  server.on('connection', socket => opened.push(socket));
  const url = `http://127.0.0.1:${await listen(t, server)}/`;
  const answers = await Promise.all(Array.from({ length: 400 }, () => send(url)));
  assert.ok(answers.every(answer => answer.status === 200));
  assert.ok(opened.length <= 16, `${opened.length} connections`);
  for (const socket of opened) socket.resetAndDestroy();
  const again = await Promise.all(Array.from({ length: 16 }, () => send(url)));
  assert.deepEqual(new Set(again.map(answer => answer.status)), new Set([200]));
});

test('receivers that hang do not delay others', async t => {
  const hanging = await listen(
    t,
    createNetServer(() => {}),
  );
  const url = await receiver(t, (request, response) => request.resume().on('end', () => response.end()));
  const stuck = Array.from({ length: 64 }, () => send(`http://127.0.0.1:${hanging}/`, { timeoutMs: 3_000 }));
  const answer = await send(url);
  assert.equal(answer.status, 200);
  assert.ok(answer.responseMs < 2_500, `${answer.responseMs}`);
  for (const { error } of await Promise.all(stuck)) assert.equal(error, 'no response in time');
});

test('a certificate must be trusted, and name the host', async t => {
  const port = await listen(
    t,
    createTlsServer(certificate, (_, response) => response.end('safe')),
  );
  assert.match(
    (await send(`https://localhost:${port}/`)).error!,
    /certificate of localhost:\d+ is not trusted/,
  );
  const trusted = getCACertificates('default');
  t.after(() => setDefaultCACertificates(trusted));
  setDefaultCACertificates([...trusted, certificate.cert]);
  const allow = parseCidrs('127.0.0.0/8');
  assert.equal((await send(`https://localhost:${port}/`, { allow })).excerpt, 'safe');
  assert.match((await send(`https://127.0.0.1:${port}/`, { allow })).error!, /is not trusted/);
});

test('a proxy is used, but not for forbidden or excepted addresses', async t => {
  const trusted = getCACertificates('default');
  t.after(() => setDefaultCACertificates(trusted));
  setDefaultCACertificates([...trusted, certificate.cert]);
  const port = await listen(
    t,
    createTlsServer(certificate, (_, response) => response.end('through')),
  );
  const requested: string[] = [];
  const proxyServer = createServer();
  proxyServer.on('connect', (request, socket) => {
    requested.push(request.url!);
    const upstream = connect(port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      upstream.pipe(socket).pipe(upstream);
    });
    for (const end of [upstream, socket]) end.on('error', () => {});
  });
  const HTTPS_PROXY = `http://127.0.0.1:${await listen(t, proxyServer)}`;
  const url = `https://localhost:${port}/`;
  const allow = parseCidrs('127.0.0.0/8');
  assert.equal((await send(url, { allow, proxy: { HTTPS_PROXY } })).excerpt, 'through');
  assert.equal(
    (await send(url, { allow, proxy: { HTTPS_PROXY, NO_PROXY: 'localhost' } })).excerpt,
    'through',
  );
  assert.match((await send(url, { allow: [], proxy: { HTTPS_PROXY } })).error!, /loopback/);
  assert.deepEqual(requested, [`localhost:${port}`]);
});
