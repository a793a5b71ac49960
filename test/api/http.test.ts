// HTTP itself: both versions, unknown methods and paths, and requests that are malformed, oversized or slow, which
// affect nobody else.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connect2 } from 'node:http2';
import { connect as connectPlain } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { errors } from '../support/client.ts';
import { contract, pathOf, suiteForm } from './contract.ts';

let app: TestApp;
let planted: Planted;
let slow: Promise<{ text: string; tookMs: number }>;
before(async () => {
  app = await bootApp();
  planted = app.plant();
  // The slowest test runs concurrently with the others.
  slow = sendSlowly();
});
after(() => app.close());

const unknown = errors('generic', 'api_does_not_exists');
const port = () => Number(new URL(app.url).port);

async function open(protocols?: string[]): Promise<TLSSocket> {
  const socket = connect({
    port: port(),
    host: '127.0.0.1',
    ca: app.client.ca,
    ...(protocols && { ALPNProtocols: protocols }),
  });
  await once(socket, 'secureConnect');
  // The server may close the connection before anybody reads.
  socket.on('error', () => socket.destroy());
  return socket;
}

/** Everything that is received until the connection ends. */
async function read(socket: TLSSocket): Promise<string> {
  let text = '';
  try {
    for await (const chunk of socket) text += chunk.toString('latin1');
  } catch (error) {
    assert.match((error as NodeJS.ErrnoException).code ?? '', /^(ECONNRESET|EPIPE)$/);
  }
  return text;
}

async function exchange(request: string | Buffer): Promise<string> {
  const socket = await open();
  socket.end(request);
  return read(socket);
}

async function sendSlowly(): Promise<{ text: string; tookMs: number }> {
  const socket = await open();
  const beganAt = Date.now();
  socket.write('GET /ping HTTP/1.1\r\nHost: x\r\n');
  const drip = setInterval(() => socket.write('X-Slow: 1\r\n'), 1000);
  const text = await read(socket);
  clearInterval(drip);
  return { text, tookMs: Date.now() - beganAt };
}

type Answer2 = { status: number; headers: Record<string, unknown>; text: string };

async function call2(headers: Record<string, string>, body?: string | Buffer): Promise<Answer2> {
  const session = connect2(app.url, { ca: app.client.ca });
  try {
    const stream = session.request(headers);
    stream.end(body);
    const [answered] = await once(stream, 'response');
    let text = '';
    for await (const chunk of stream) text += chunk;
    return { status: answered[':status'], headers: answered, text };
  } finally {
    session.close();
  }
}

test('HTTP/1.1 and HTTP/2 are served on the same port', async () => {
  for (const [protocols, agreed] of [
    [['h2', 'http/1.1'], 'h2'],
    [['http/1.1'], 'http/1.1'],
  ] as const) {
    const socket = await open([...protocols]);
    assert.equal(socket.alpnProtocol, agreed);
    socket.destroy();
  }
  const bare = await exchange('GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  assert.match(bare, /^HTTP\/1\.1 200 OK\r\n/);
  assert(bare.endsWith('{"response":"pong"}'), bare);
});

test('HTTP/2 answers like HTTP/1.1: records, forms, refusals, uploads', async () => {
  const authorization = app.people.owner.as;
  const ping = await call2({ ':path': '/ping' });
  assert.deepEqual([ping.status, ping.text], [200, '{"response":"pong"}']);
  assert(!('connection' in ping.headers));
  const form = new URLSearchParams(suiteForm() as Record<string, string>).toString();
  const created = await call2(
    {
      ':path': `/projects/${planted.project_id}/suites`,
      ':method': 'POST',
      authorization,
      'content-type': 'application/x-www-form-urlencoded',
    },
    form,
  );
  assert.equal(created.status, 201, created.text);
  const refused = await call2(
    { ':path': `/dependencies/${planted.free_dependency_id}/archive`, ':method': 'POST' },
    Buffer.alloc(100_000),
  );
  assert.deepEqual([refused.status, JSON.parse(refused.text)], [401, errors('generic', 'unauthorized')]);
  const uploaded = await call2(
    { ':path': `/dependencies/${planted.free_dependency_id}/archive`, ':method': 'POST', authorization },
    Buffer.concat([Buffer.from('1f8b08', 'hex'), Buffer.alloc(300_000)]),
  );
  assert.equal(uploaded.status, 202, uploaded.text);
  assert.equal((await call2({ ':path': '/projects/../ping' })).status, 400);
  assert.equal((await call2({ ':path': '/ping', ':method': 'OPTIONS' })).status, 400);
  assert.equal((await call2({ ':path': '/ping', ':method': 'INVENTED' })).status, 400);
  const head = await call2({ ':path': '/ping', ':method': 'HEAD' });
  assert.deepEqual([head.status, head.text], [200, '']);
});

test('streams of one HTTP/2 connection are answered concurrently', async () => {
  const session = connect2(app.url, { ca: app.client.ca });
  const path = `/projects/${planted.project_id}`;
  const texts = await Promise.all(
    Array.from({ length: 60 }, async () => {
      const stream = session.request({ ':path': path, authorization: app.people.owner.as });
      let text = '';
      for await (const chunk of stream) text += chunk;
      return text;
    }),
  );
  session.close();
  assert.equal(new Set(texts).size, 1);
  assert(texts[0]?.includes(String(planted.project_id)));
});

test('HEAD answers like GET, without a body', async () => {
  await app.writeLog(planted.build_id, 'hello\n');
  for (const row of contract.filter(one => one.method === 'GET')) {
    if (row.path.endsWith('badge.svg')) continue;
    const path = pathOf(row, planted);
    const [get, head] = await Promise.all(
      ['GET', 'HEAD'].map(method => app.client.call(method, path, { as: app.people.owner.as })),
    );
    assert.equal(head?.status, get?.status, path);
    assert.equal(head?.headers['content-type'], get?.headers['content-type'], path);
    assert.equal(head?.text, '', path);
    assert.equal(
      (await app.client.call('HEAD', path)).status,
      ['none', 'loopback'].includes(row.who) ? 200 : 401,
      path,
    );
  }
  assert.equal((await app.client.call('HEAD', '/nothing')).status, 400);
  assert.equal(app.logged.filter(line => line.includes(' error ')).length, 0, app.logged.join(''));
});

describe('a method that a path does not have is an unknown endpoint', () => {
  const paths = [...new Set(contract.map(one => one.path))];
  for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND', 'QUERY'])
    test(method, async () => {
      for (const path of paths) {
        const known = contract.filter(one => one.path === path).map(one => one.method as string);
        if (known.includes(method)) continue;
        const concrete = pathOf({ method: 'GET', path, who: 'none', status: 200 }, planted);
        for (const as of [undefined, app.people.owner.as]) {
          const answer = await app.client.call(method, concrete, { as });
          assert.deepEqual([answer.status, answer.json], [400, unknown], `${method} ${path}`);
        }
      }
    });
});

describe('a path is not normalized', () => {
  const paths = [
    '/nothing',
    '/Ping',
    '/ping/',
    '/ping/x',
    '//ping',
    '/./ping',
    '/x/../ping',
    '/projects/%2e%2e/ping',
    '/projects/%2E%2E/ping',
    '/projects/.%2e/ping',
    '/%2e/ping',
    '/projects\\..\\ping',
    '/projects/',
    '/projects//suites',
    '/pi%6eg%00',
    '/ping%2f',
    '/%70%69%6e%67%2e',
    '/__proto__',
    '/constructor',
    '/etc/passwd',
    '/..',
    "/projects/1'%20OR%20'1'='1/x",
  ];
  for (const path of paths)
    test(path, async () => {
      const answer = await app.client.get(path, app.people.owner.as);
      assert.deepEqual([answer.status, answer.json], [400, unknown]);
    });
});

describe('a page with a trailing slash redirects to the page', () => {
  for (const [path, page] of [
    ['/ui/', '/ui'],
    ['/ui/sign-in/', '/ui/sign-in'],
    ['/ui/projects/?a=%2F/', '/ui/projects?a=%2F/'],
    ['/ui/projects/1/suites/', '/ui/projects/1/suites'],
    ['/oauth2/authorize/?client_id=x', '/oauth2/authorize?client_id=x'],
  ])
    test(`${path}`, async () => {
      for (const method of ['GET', 'POST']) {
        const text = await exchange(`${method} ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
        assert.match(text, /^HTTP\/1\.1 308 /);
        assert.equal(/^location: (.*)$/im.exec(text)?.[1], page);
      }
    });
});

describe('an absolute request target', () => {
  const ask = (target: string, ...headers: string[]) =>
    exchange(
      `GET ${target} HTTP/1.1\r\n${headers.map(header => `${header}\r\n`).join('')}Connection: close\r\n\r\n`,
    );

  test('is answered like its path', async () => {
    const authorization = `Authorization: ${app.people.owner.as}`;
    for (const host of ['localhost', 'localhost:1', '127.0.0.1', '[::1]:8443', 'Ci.Example.org'])
      for (const scheme of ['https', 'HTTPS']) {
        const text = await ask(`${scheme}://${host}/whoami?a=b`, 'Host: localhost', authorization);
        assert.match(text, /^HTTP\/1\.1 200 /, text);
        assert.match(text, /"owner@example\.org"/);
      }
    assert.match(await ask('https://localhost', 'Host: localhost'), /^HTTP\/1\.1 302 /);
    assert.match(await ask('https://localhost?a', 'Host: localhost'), /^HTTP\/1\.1 302 /);
  });

  for (const target of [
    'http://localhost/ping',
    'ftp://localhost/ping',
    'https:///ping',
    'https:/ping',
    'https:ping',
    'https://user@localhost/ping',
    'https://user:word@localhost/ping',
    'https://local host/ping',
    'https://localhost\\@x/ping',
    'https://localhost:99999/ping',
    'https://localhost:/ping',
    'https://[::1/ping',
    'https://%6cocalhost/ping',
    'https://localhost//ping',
    'https://localhost/x/../ping',
    'https://localhost/x/%2e%2e/ping',
    'https://localhost/ping/',
    'https://localhost/https://localhost/ping',
  ])
    test(`is refused as ${target}`, async () => {
      const text = await ask(target, 'Host: localhost');
      assert.match(text, /^HTTP\/1\.1 400 /, text);
      assert.doesNotMatch(text, /pong/);
    });

  test('still needs a Host header, and does not exist in HTTP/2', async () => {
    assert.match(await ask('https://localhost/ping'), /^HTTP\/1\.1 400 /);
    await assert.rejects(call2({ ':path': 'https://localhost/ping' }), /NGHTTP2_PROTOCOL_ERROR/);
  });
});

describe('a client that waits for 100 Continue before it sends a body', () => {
  const head = (method: string, path: string, ...headers: string[]) =>
    [
      `${method} ${path} HTTP/1.1`,
      'Host: localhost',
      'Expect: 100-continue',
      ...headers,
      'Connection: close',
      '\r\n',
    ].join('\r\n');
  const archive = () => `/dependencies/${planted.free_dependency_id}/archive`;
  const owner = () => `Authorization: ${app.people.owner.as}`;

  const refused: Record<string, () => [status: number, request: string]> = {
    'an upload without credentials': () => [401, head('POST', archive(), 'Content-Length: 5000000000')],
    'an upload with a wrong key': () => [
      401,
      head('POST', archive(), 'Authorization: Basic eDp5', 'Content-Length: 10'),
    ],
    'a form without credentials': () => [
      401,
      head('POST', '/projects', 'Content-Type: application/x-www-form-urlencoded', 'Content-Length: 10'),
    ],
    'a form in chunks': () => [401, head('POST', '/projects', 'Transfer-Encoding: chunked')],
    'a form of an account that may not': () => [
      401,
      head(
        'PUT',
        `/projects/${planted.project_id}`,
        `Authorization: ${app.people.guest.as}`,
        'Content-Length: 9',
      ),
    ],
    'an upload to an unknown record': () => [
      404,
      head('POST', '/dependencies/1/archive', owner(), 'Content-Length: 10'),
    ],
    'an unknown endpoint': () => [400, head('POST', '/nothing', owner(), 'Content-Length: 10')],
    'a folded path': () => [400, head('POST', '/x/../projects', owner(), 'Content-Length: 10')],
    'a form of a page without a session': () => [303, head('POST', '/ui/sign-out', 'Content-Length: 10')],
    'a sign-in from another site': () => [
      403,
      head('POST', '/ui/sign-in', 'Origin: https://evil.example', 'Content-Length: 10'),
    ],
  };
  for (const [name, request] of Object.entries(refused))
    test(`gets the refusal instead: ${name}`, async () => {
      const [status, bytes] = request();
      const socket = await open();
      socket.write(bytes);
      // It ends although no byte of the body was sent.
      const text = await read(socket);
      assert.deepEqual(
        [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, found]) => Number(found)),
        [status],
      );
    });

  test('gets 100 Continue for a form and for an upload that are allowed', async () => {
    const gzip = Buffer.concat([Buffer.from('1f8b08', 'hex'), Buffer.alloc(200_000)]);
    const form = new URLSearchParams(suiteForm() as Record<string, string>).toString();
    for (const [path, type, body, status] of [
      [`/projects/${planted.project_id}/suites`, 'application/x-www-form-urlencoded', form, 201],
      [archive(), 'application/gzip', gzip, 202],
    ] as const) {
      const socket = await open();
      socket.write(
        head('POST', path, owner(), `Content-Type: ${type}`, `Content-Length: ${Buffer.byteLength(body)}`),
      );
      const [first] = (await once(socket, 'data')) as [Buffer];
      assert.equal(first.toString(), 'HTTP/1.1 100 Continue\r\n\r\n');
      socket.write(body);
      assert.match(await read(socket), new RegExp(`^HTTP/1\\.1 ${status} `));
    }
  });

  test('gets it over HTTP/2 too', async () => {
    const session = connect2(app.url, { ca: app.client.ca });
    const ask = async (headers: Record<string, string>) => {
      const stream = session.request({
        ':method': 'POST',
        ':path': archive(),
        expect: '100-continue',
        ...headers,
      });
      let continued = false;
      stream.on('continue', () => {
        continued = true;
        stream.end(Buffer.concat([Buffer.from('1f8b08', 'hex'), Buffer.alloc(1000)]));
      });
      const [answered] = await once(stream, 'response');
      stream.resume();
      stream.end();
      await new Promise(resolve => stream.once('close', resolve));
      return { status: answered[':status'], continued };
    };
    assert.deepEqual(await ask({}), { status: 401, continued: false });
    assert.deepEqual(await ask({ authorization: app.people.owner.as }), { status: 202, continued: true });
    session.close();
  });
});

test('plain HTTP on the port is closed without a response', async () => {
  const socket = connectPlain(port(), '127.0.0.1');
  socket.write('GET /ping HTTP/1.1\r\nHost: x\r\n\r\n');
  let bytes = 0;
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  socket.on('error', () => {});
  await new Promise(resolve => socket.once('close', resolve));
  assert.equal(bytes, 0);
});

describe('malformed requests are closed or get an unknown endpoint, and affect nobody else', () => {
  const requests: Record<string, string | Buffer> = {
    'no HTTP at all': 'hello\r\n\r\n',
    'random bytes': Buffer.from(Array.from({ length: 512 }, (_, at) => (at * 37) % 256)),
    'no host': 'GET /ping HTTP/1.1\r\n\r\n',
    'two hosts': 'GET /ping HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n',
    'a host that is none': 'GET /ping HTTP/1.1\r\nHost: a b/../c\r\nConnection: close\r\n\r\n',
    'an unknown method': 'BREW /ping HTTP/1.1\r\nHost: x\r\n\r\n',
    'a version that is none': 'GET /ping HTTP/9.9\r\nHost: x\r\n\r\n',
    'headers that are too large': `GET /ping HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(200_000)}\r\n\r\n`,
    'a path that is too long': `GET /${'a'.repeat(200_000)} HTTP/1.1\r\nHost: x\r\n\r\n`,
    'a header without a name': 'GET /ping HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n',
    'a length and chunks':
      'POST /projects HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'a length that is none': 'POST /projects HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n',
    'chunks that are none': 'POST /projects HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    'all of the server': 'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    'a tunnel': 'CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n',
    'a trace': 'TRACE /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
  };
  for (const [name, request] of Object.entries(requests))
    test(name, async () => {
      const text = await exchange(request);
      if (text !== '') {
        const [head = '', body] = text.split('\r\n\r\n');
        const known = /^HTTP\/1\.1 (400|401) /.exec(head);
        assert(known || name === 'two hosts' || name === 'a host that is none', text);
        if (known?.[1] === '400' && body) assert.deepEqual(JSON.parse(body), unknown);
      }
      assert.equal((await app.client.get('/ping')).status, 200);
    });

  test('an unknown expectation is not an error', async () => {
    const text = await exchange('GET /ping HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nConnection: close\r\n\r\n');
    assert.match(text, /^HTTP\/1\.1 200 /);
  });

  test('broken HTTP/2', async () => {
    const socket = await open(['h2']);
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame at all, is it? '.repeat(20));
    await read(socket);
    const session = connect2(app.url, { ca: app.client.ca });
    const stream = session.request({ ':path': '/ping', 'x-large': 'a'.repeat(100_000) });
    stream.on('error', () => {});
    await new Promise(resolve => stream.on('close', resolve));
    session.destroy();
    assert.equal((await app.client.get('/ping')).status, 200);
  });
});

test('every response has its own request ID', async () => {
  const seen = new Set<string>();
  const project = `/projects/${planted.project_id}`;
  const paths = [
    '/ping',
    '/nothing',
    '/whoami',
    '/projects',
    `${project}/builds/${planted.build_id}/log`,
    `${project}/events`,
    '/healthz',
    '/openapi.json',
  ];
  for (const path of paths) {
    const id = (await app.client.get(path, app.people.owner.as)).headers['x-request-id'];
    assert(id, `${path} has none`);
    seen.add(id);
  }
  assert.equal(seen.size, paths.length);
});

test('healthz and metrics answer without credentials from loopback', async () => {
  assert.equal((await app.client.get('/healthz')).text, '{"response":"ok"}');
  const { text } = await app.client.get('/metrics');
  assert.match(text, /^assay_requests_total\{method="GET",route="\/ping",status="200"\} \d+$/m);
  assert(!text.includes(String(planted.project_id)), 'an id became a label');
  assert(!text.includes('INVENTED'), 'whatever a stranger calls a method became a label');
  assert.match(text, /^assay_requests_total\{method="other",route="unknown",status="400"\} \d+$/m);
});

test('headers that arrive too slowly are cut off after 15 s, while others are served', async () => {
  const { text, tookMs } = await slow;
  assert(tookMs > 14_000 && tookMs < 40_000, `${tookMs} ms`);
  if (text !== '') assert.match(text, /^HTTP\/1\.1 400 /);
});
