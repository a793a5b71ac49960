// Request smuggling, forged headers and floods: no second request hides in the first, no header is trusted that should
// not be, and other clients are served meanwhile.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connect2 } from 'node:http2';
import { connect as connectPlain, type Socket } from 'node:net';
import { after, before } from 'node:test';
import type { Planted } from '../support/app.ts';
import { frame, HEADERS, PREFACE, REQUEST, resetStream, streamId } from '../support/http2-frames.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { alive, openWire, statusesIn, type Wire } from './wire.ts';

let app: ServedApp;
let planted: Planted;
let wire: Wire;
before(async () => {
  app = await serveApp();
  planted = app.plant();
  wire = openWire(app);
});
after(async () => {
  wire.close();
  await app.close();
});

const HIDDEN = 'GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
const post = (...headers: string[]) =>
  `POST /projects HTTP/1.1\r\nHost: x\r\n${headers.join('\r\n')}\r\n\r\n`;
const CHUNKED = 'Transfer-Encoding: chunked';
const length = (text: string) => `Content-Length: ${text.length}`;
const ended = `0\r\n\r\n${HIDDEN}`;

const smuggled: Record<string, string> = {
  'a length and chunks': post(length(ended), CHUNKED) + ended,
  'chunks and a length': post(CHUNKED, length(ended)) + ended,
  'a length of zero and chunks': post('Content-Length: 0', CHUNKED) + ended,
  'chunks in capitals and a length': post('TRANSFER-ENCODING: CHUNKED', length(ended)) + ended,
  'a misspelled chunked coding': post('Transfer-Encoding: xchunked', 'Content-Length: 5') + ended,
  'a space before the colon': post('Transfer-Encoding : chunked', 'Content-Length: 5') + ended,
  'a vertical tab after the colon': post('Transfer-Encoding:\tchunked', 'Content-Length: 5') + ended,
  'a vertical tabulator': post('Transfer-Encoding: \u000bchunked', 'Content-Length: 5') + ended,
  'a quoted coding': post('Transfer-Encoding: "chunked"', 'Content-Length: 5') + ended,
  'chunked, but not last': post('Transfer-Encoding: chunked, identity') + ended,
  'chunks twice': post('Transfer-Encoding: chunked, chunked') + ended,
  'two codings in two headers': post('Transfer-Encoding: identity', CHUNKED, 'Content-Length: 5') + ended,
  'an unknown coding': post('Transfer-Encoding: gzip', 'Content-Length: 5') + ended,
  'a coding folded over two lines': post('Transfer-Encoding:\r\n chunked', 'Content-Length: 5') + ended,
  'a header folded before the length': post('X: y\r\n Content-Length: 0', length(ended)) + ended,
  'two lengths': post('Content-Length: 0', length(HIDDEN)) + HIDDEN,
  'two lengths, the larger first': post(length(HIDDEN), 'Content-Length: 0') + HIDDEN,
  'two lengths in one line': post('Content-Length: 0, 40') + HIDDEN,
  'a length with a sign': post('Content-Length: +0') + HIDDEN,
  'a negative length': post('Content-Length: -1') + HIDDEN,
  'a length in hex': post('Content-Length: 0x0') + HIDDEN,
  'a length with a space inside': post('Content-Length: 0 0') + HIDDEN,
  'a length followed by letters': post('Content-Length: 0abc') + HIDDEN,
  'a length that overflows': post('Content-Length: 18446744073709551616') + HIDDEN,
  'a length without a number': post('Content-Length:') + HIDDEN,
  'a bare line feed before a header': post('X: y\nContent-Length: 0') + HIDDEN,
  'bare line feeds at the end': `POST /projects HTTP/1.1\nHost: x\nContent-Length: 0\n\n${HIDDEN}`,
  'a bare carriage return': post('X: y\rContent-Length: 0') + HIDDEN,
  'a NUL in a header': post('X: a\0b', 'Content-Length: 0') + HIDDEN,
  'a chunk size in hex with a prefix': `${post(CHUNKED)}0x0\r\n\r\n${HIDDEN}`,
  'a chunk size with a sign': `${post(CHUNKED)}+0\r\n\r\n${HIDDEN}`,
  'a negative chunk size': `${post(CHUNKED)}-1\r\n\r\n${HIDDEN}`,
  'a chunk size that overflows': `${post(CHUNKED)}10000000000000000\r\n\r\n${HIDDEN}`,
  'a chunk size that ends with a bare line feed': `${post(CHUNKED)}0\n\n${HIDDEN}`,
  'a chunk extension with a bare line feed': `${post(CHUNKED)}1;a\nb\r\nx\r\n0\r\n\r\n${HIDDEN}`,
  'a chunk without its end': `${post(CHUNKED)}1\r\nxx0\r\n\r\n${HIDDEN}`,
  'a trailer that is a length': `${post(CHUNKED)}0\r\nContent-Length: 5\r\n\r\n`,
  'a space before the first header': `POST /projects HTTP/1.1\r\n Content-Length: 0\r\nHost: x\r\n\r\n${HIDDEN}`,
  'a header name with a space': post('Content Length: 0') + HIDDEN,
  'a request line with tabs': `POST\t/projects\tHTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n${HIDDEN}`,
  'a request line without a version': `GET /projects\r\n${HIDDEN}`,
  'chunks under HTTP/1.0': `POST /projects HTTP/1.0\r\nHost: x\r\n${CHUNKED}\r\n\r\n${ended}`,
  'the preface of HTTP/2': `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${HIDDEN}`,
  'a request in the body of a GET': `GET /whoami HTTP/1.1\r\nHost: x\r\n${length(HIDDEN)}\r\nConnection: close\r\n\r\n${HIDDEN}`,
};

attacks('no request hides in another', smuggled, async bytes => {
  const text = await wire.exchange(bytes, 700);
  assert.ok(!text.includes('pong'), `the hidden request was answered: ${text}`);
  const statuses = statusesIn(text);
  assert.ok(statuses.length <= 1, text);
  for (const status of statuses) assert.ok(status === 400 || status === 401, text);
  await alive(app);
});

const get = (path: string, ...headers: string[]) =>
  `GET ${path} HTTP/1.1\r\n${headers.map(header => `${header}\r\n`).join('')}Connection: close\r\n\r\n`;
const believed: Record<string, { request: () => string; never: RegExp; status: number }> = {
  'a foreign host in a link': {
    request: () => get('/projects?limit=1', 'Host: evil.example', `Authorization: ${app.people.owner.as}`),
    never: /evil\.example/,
    status: 200,
  },
  'a foreign host in the OpenAPI document': {
    request: () => get('/openapi.json', 'Host: evil.example'),
    never: /evil\.example/,
    status: 200,
  },
  'a foreign host in a redirect': {
    request: () => get('/ui/projects', 'Host: evil.example'),
    never: /location: [^/\r]*evil/i,
    status: 303,
  },
  'a forwarded host': {
    request: () => get('/', 'Host: x', 'X-Forwarded-Host: evil.example', 'Forwarded: host=evil.example'),
    never: /evil\.example/,
    status: 302,
  },
  'another path in a header': {
    request: () => get('/nothing', 'Host: x', 'X-Original-URL: /ping', 'X-Rewrite-URL: /ping'),
    never: /pong/,
    status: 400,
  },
  'another method in a header': {
    request: () =>
      get(
        `/projects/${planted.project_id}`,
        'Host: x',
        'X-HTTP-Method-Override: DELETE',
        `Authorization: ${app.people.owner.as}`,
      ),
    never: /destroyed/,
    status: 200,
  },
  'another method in the query': {
    request: () =>
      get(
        `/projects/${planted.project_id}?_method=DELETE`,
        'Host: x',
        `Authorization: ${app.people.owner.as}`,
      ),
    never: /destroyed/,
    status: 200,
  },
  'a user in a header': {
    request: () =>
      get('/whoami', 'Host: x', 'X-Forwarded-User: owner@example.org', 'Remote-User: owner@example.org'),
    never: /owner@example/,
    status: 401,
  },
  'an upgrade to HTTP/2 without TLS': {
    request: () => get('/ping', 'Host: x', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA'),
    never: / 101 /,
    status: 200,
  },
  'an upgrade to a WebSocket': {
    request: () =>
      get('/ping', 'Host: x', 'Upgrade: websocket', 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=='),
    never: / 101 /,
    status: 200,
  },
  'the URL of another server': {
    request: () => get('http://evil.example/ping', 'Host: x'),
    never: /pong/,
    status: 400,
  },
  'the URL of another server in a link': {
    request: () =>
      get('https://evil.example/projects?limit=1', 'Host: x', `Authorization: ${app.people.owner.as}`),
    never: /evil\.example/,
    status: 200,
  },
  'the URL of another server in a redirect': {
    request: () => get('https://evil.example/ui/', 'Host: x'),
    never: /evil\.example/,
    status: 308,
  },
  'a foreign origin': {
    request: () => get('/ping', 'Host: x', 'Origin: https://evil.example'),
    never: /access-control-allow/i,
    status: 200,
  },
  'a file next to the assets': {
    request: () => get('/ui/assets/x/..%2f..%2f..%2fpackage.json', 'Host: x'),
    never: /"dependencies"/,
    status: 404,
  },
};
attacks('headers and parameters cannot change what a request is', believed, async row => {
  if (row.never.source.includes('evil')) app.plant();
  const text = await wire.exchange(row.request());
  assert.deepEqual(statusesIn(text), [row.status], text.slice(0, 400));
  assert.doesNotMatch(text, row.never);
});

const floods: Record<string, (at: number) => Buffer> = {
  'streams that are reset at once': resetStream,
  'endless headers': at => (at === 0 ? frame(HEADERS, 0, 1, REQUEST) : frame(9, 0, 1, Buffer.alloc(1_000))),
  pings: () => frame(6, 0, 0, '12345678'),
  settings: () => frame(4, 0, 0, '\0\x03\0\0\0\x64'),
  'empty data frames': at => (at === 0 ? frame(HEADERS, 0x4, 1, REQUEST) : frame(0, 0, 1)),
  priorities: at => frame(2, 0, streamId(at), '\0\0\0\0\x10'),
  'more streams than allowed': at => frame(HEADERS, 0x4, streamId(at), REQUEST),
  'windows of size zero': at => frame(8, 0, at === 0 ? 0 : streamId(at), '\0\0\0\0'),
  'headers that decompress to a large size': at =>
    frame(
      HEADERS,
      0x5,
      streamId(at),
      Buffer.concat([REQUEST, Buffer.from([0x40, 1, 0x61, 0x7f, 0x81, 0x1e]), Buffer.alloc(4_000, 0xbe)]),
    ),
  'frames of an unknown type': () => frame(0xee, 0, 0, Buffer.alloc(500)),
  'frames that are too long': () => frame(0, 0, 1, Buffer.alloc(65_535)),
};
attacks(
  'a flood of frames over one connection is bounded, and others are served meanwhile',
  floods,
  async make => {
    const before = residentBytes(app.pid);
    const socket = await wire.open(['h2']);
    assert.equal(socket.alpnProtocol, 'h2');
    socket.resume();
    socket.write(PREFACE);
    for (let at = 0, bytes = 0; at < 10_000 && bytes < 8 << 20 && socket.writable; at += 500) {
      const burst = Buffer.concat(Array.from({ length: 500 }, (_, n) => make(at + n)));
      bytes += burst.length;
      if (!socket.write(burst)) await drained(socket);
      if (at % 5_000 === 0) await alive(app);
    }
    await alive(app);
    socket.destroy();
    const grownBytes = residentBytes(app.pid) - before;
    assert.ok(grownBytes < 256 << 20, `${grownBytes >> 20} MiB`);
  },
);

function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

function drained(socket: Socket): Promise<void> {
  return new Promise(resolve => {
    const go = () => {
      socket.off('drain', go).off('close', go);
      resolve();
    };
    socket.on('drain', go).on('close', go);
  });
}

const crowds: Record<string, () => Promise<Socket>> = {
  'without a TLS handshake': async () => connectPlain(Number(new URL(app.url).port), '127.0.0.1'),
  'with half a header': async () => {
    const socket = await wire.open();
    socket.write('GET /ping HTTP/1.1\r\nHost: x\r\nX-Slow:');
    return socket;
  },
  'that announce a body and send none of it': async () => {
    const socket = await wire.open();
    socket.write(
      `POST /projects HTTP/1.1\r\nHost: x\r\nAuthorization: ${app.people.owner.as}\r\nContent-Length: 1000\r\n\r\n`,
    );
    return socket;
  },
  'that request much and read nothing': async () => {
    const socket = await wire.open();
    socket.pause();
    socket.write('GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(8));
    return socket;
  },
};
attacks('a hundred connections do not delay other clients', crowds, async open => {
  const sockets = await Promise.all(Array.from({ length: 100 }, open));
  for (const socket of sockets) socket.on('error', () => {});
  const beganAt = performance.now();
  for (let n = 0; n < 20; n += 1) await alive(app);
  const tookMs = performance.now() - beganAt;
  for (const socket of sockets) socket.destroy();
  assert.ok(tookMs < 12_000, `${tookMs} ms`);
});

const headers2: Record<string, Record<string, string>> = {
  'a header that belongs to HTTP/1.1': { 'transfer-encoding': 'chunked' },
  'a connection header': { connection: 'close' },
  'a path with a second request in it': { ':path': '/ping HTTP/1.1\r\nHost: x\r\n\r\nGET /whoami' },
  'a folded path': { ':path': '/projects/../ping' },
  'a method with a line break': { ':method': 'GET\r\nX: y' },
  'an authority with credentials': { ':authority': 'evil@x' },
};
attacks('the same over HTTP/2 is refused', headers2, async hostile => {
  const session = connect2(app.url, { ca: app.client.ca });
  session.on('error', () => {});
  try {
    const stream = session.request({ ':path': '/nothing', ...hostile });
    const [answer] = (await Promise.race([once(stream, 'response'), once(stream, 'error')])) as [
      Record<string, unknown> | Error,
    ];
    if (!(answer instanceof Error)) assert.equal(answer[':status'], 400);
  } catch (error) {
    // The client itself may refuse to send it.
    assert.match((error as NodeJS.ErrnoException).code ?? '', /^ERR_(HTTP2|INVALID)/);
  } finally {
    session.destroy();
  }
  await alive(app);
});
