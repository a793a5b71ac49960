// `assay serve` as a process: its output, its signals, and other commands that run at the same time.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { ensureCertificate } from '../../src/engine/certificate.ts';
import { runAssay, serve, temporaryDirectory } from './program.ts';

test('a first start prints its address in one line, then the set-up code, until there is an account', async () => {
  using directory = temporaryDirectory();
  const first = await serve(directory.path);
  assert.deepEqual(await first.end('SIGTERM'), [0, null]);
  const [, code] =
    /^assay is serving https:\/\/127\.0\.0\.1:\d+\nset-up code: ([A-Z2-9]{4}-[A-Z2-9]{4})\n$/.exec(
      first.stdout(),
    ) ?? [];
  assert.ok(code, first.stdout());
  const second = await serve(directory.path);
  assert.deepEqual(await second.end('SIGINT'), [0, null]);
  assert.ok(second.stdout().includes(code), 'the same code until it is used');
  await runAssay(['user', 'add', 'ada@example.com', '--data', directory.path]);
  const third = await serve(directory.path);
  await third.end('SIGTERM');
  assert.doesNotMatch(third.stdout(), /set-up code/);
});

test('the start prints how to create an administrator while there is none', async () => {
  using directory = temporaryDirectory();
  const assay = (...args: string[]) => runAssay([...args, '--data', directory.path]);
  const start = async () => {
    const serving = await serve(directory.path);
    await serving.end('SIGTERM');
    return serving.stdout().replace(`${serving.port}`, 'PORT').split('\n').slice(1).join('\n');
  };
  await assay('user', 'add', 'ada@example.com');
  const hint = await start();
  const [, ...words] =
    /"assay (.+) --data .+"\n$/.exec(hint)?.[1]?.replace('EMAIL', 'ada@example.com').split(' ') ?? [];
  assert.deepEqual(words, ['set', 'ada@example.com', '--admin', '--standing', 'active'], hint);
  assert.equal((await assay('user', ...words)).status, 0);
  assert.match((await assay('user', 'list')).stdout, /ada@example\.com .* admin\n/);
  assert.equal(await start(), '');
  await assay('user', 'set', 'ada@example.com', '--standing', 'suspended');
  assert.equal(await start(), hint);
  assert.equal((await assay('user', 'set', 'ada@example.com', '--no-admin')).status, 0);
  assert.doesNotMatch((await assay('user', 'list')).stdout, /admin/);
  const both = await assay('user', 'set', 'ada@example.com', '--admin', '--no-admin');
  assert.deepEqual(
    [both.status, both.stderr],
    [2, 'assay: assay user set takes --admin or --no-admin, not both\n'],
  );
});

test('an unknown ASSAY_ variable causes a warning with its name, and the server starts', async () => {
  using directory = temporaryDirectory();
  const serving = await serve(directory.path, { env: { ASSAY_LISTN: 'x', ASSAY_BRANCH: 'main' } });
  assert.equal((await serving.ask('GET', '/ping')).text, '{"response":"pong"}');
  await serving.end('SIGTERM');
  assert.match(serving.stderr(), /warn unknown setting ASSAY_LISTN/);
  assert.doesNotMatch(serving.stderr(), /ASSAY_BRANCH/);
});

test('changes by another command take effect with the next request', async () => {
  using directory = temporaryDirectory();
  const assay = (...args: string[]) => runAssay([...args, '--data', directory.path]);
  const serving = await serve(directory.path);
  const added = JSON.parse((await assay('user', 'add', 'ada@example.com', '--json')).stdout);
  const auth = `ada@example.com:${added.api_key}`;
  const whoami = async (credentials = auth) =>
    (await serving.ask('GET', '/whoami', { auth: credentials })).status;
  assert.equal(await whoami(), 200);
  assert.equal(await whoami(), 200);
  await assay('user', 'set', 'ada@example.com', '--standing', 'suspended');
  assert.equal(await whoami(), 401);
  await assay('user', 'set', 'ada@example.com', '--standing', 'active');
  assert.equal(await whoami(), 200);
  const projects = async () => (await serving.ask('POST', '/projects', { auth, form: {} })).status;
  assert.equal(await projects(), 403);
  await assay('user', 'set', 'ada@example.com', '--trial-ends', '2020-01-01');
  assert.equal(await projects(), 402);
  await assay('user', 'set', 'ada@example.com', '--trial-ends', 'never', '--kind', 'collaborator');
  assert.equal(await projects(), 401);
  const reset = JSON.parse((await assay('user', 'reset', 'ada@example.com', '--json')).stdout);
  assert.equal(await whoami(), 401);
  assert.equal(await whoami(`ada@example.com:${reset.api_key}`), 200);
  assert.deepEqual(await serving.end('SIGTERM'), [0, null]);
});

test('a second server on the same data directory is refused in one line with its path; the first continues', async () => {
  using directory = temporaryDirectory();
  const first = await serve(directory.path);
  const { status, stderr, stdout } = await runAssay([
    'serve',
    '--listen',
    '127.0.0.1:1',
    '--data',
    directory.path,
  ]);
  assert.deepEqual([status, stdout], [1, '']);
  assert.match(stderr, /^assay: another assay serve is using [^\n]+\n$/);
  assert.ok(stderr.includes(directory.path));
  assert.equal((await first.ask('GET', '/ping')).status, 200);
  await first.end('SIGTERM');
});

test('a killed server leaves nothing behind that prevents the next start', async () => {
  using directory = temporaryDirectory();
  const first = await serve(directory.path);
  assert.deepEqual(await first.end('SIGKILL'), [null, 'SIGKILL']);
  const second = await serve(directory.path);
  assert.equal((await second.ask('GET', '/ping')).status, 200);
  assert.deepEqual(await second.end('SIGTERM'), [0, null]);
});

test('the server listens on a host name or an address', async () => {
  using directory = temporaryDirectory();
  for (const host of ['localhost', '127.0.0.1']) {
    const server = await serve(directory.path, { env: { ASSAY_LISTEN: `${host}:0` } });
    const socket = connect({ host, port: server.port, ca: readFileSync(join(directory.path, 'tls/ca.pem')) });
    await once(socket, 'secureConnect', { signal: AbortSignal.timeout(10_000) });
    socket.destroy();
    assert.deepEqual(await server.end('SIGTERM'), [0, null]);
  }
});

test('a start loads none of the modules of Node that only later work needs', async () => {
  using directory = temporaryDirectory();
  const reporter = join(directory.path, 'report.cjs');
  // The line of the address is printed as soon as the server listens.
  writeFileSync(
    reporter,
    `const { write } = process.stdout;
    process.stdout.write = (...args) => {
      process.stderr.write(\`modules: \${process.moduleLoadList.join()}\\n\`);
      process.stdout.write = write;
      return write.apply(process.stdout, args);
    };`,
  );
  const data = join(directory.path, 'data');
  // The first start makes a certificate, which needs more.
  await (await serve(data)).end('SIGTERM');
  const server = await serve(data, { env: { NODE_OPTIONS: `--require ${reporter}` } });
  await server.end('SIGTERM');
  const loaded = /^modules: (.*)$/m.exec(server.stderr())?.[1]?.split(',') ?? [];
  assert.ok(loaded.includes('NativeModule http2'), server.stderr());
  for (const name of ['zlib', 'dns', 'https', 'readline', 'readline/promises'])
    assert.ok(!loaded.includes(`NativeModule ${name}`), name);
});

test('a port in use is reported in one line, without a stack trace', async () => {
  using directory = temporaryDirectory();
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as { port: number };
  const { status, stderr } = await runAssay([
    'serve',
    '--listen',
    `127.0.0.1:${port}`,
    '--data',
    directory.path,
  ]);
  taken.close();
  assert.equal(status, 1);
  assert.match(stderr, new RegExp(`^assay: [^\\n]*127\\.0\\.0\\.1:${port}[^\\n]*--listen[^\\n]*\\n$`));
});

test('an empty database file, a missing certificate and unusable authorities are each reported in one line', async () => {
  using directory = temporaryDirectory();
  const data = join(directory.path, 'data');
  await runAssay(['user', 'add', 'ada@example.com', '--data', data]);
  const noCertificate = await runAssay([
    'serve',
    ...['--data', data, '--tls-cert', '/nowhere/cert.pem', '--tls-key', '/nowhere/key.pem'],
  ]);
  assert.equal(noCertificate.status, 1);
  assert.match(noCertificate.stderr, /^assay: [^\n]*\/nowhere\/[^\n]*\n$/);
  const notAuthorities = join(directory.path, 'words.pem');
  writeFileSync(notAuthorities, 'not a certificate\n');
  for (const [path, reason] of [
    ['/nowhere/ca.pem', 'cannot be read (ENOENT)'],
    [notAuthorities, 'does not contain certificates in PEM form'],
  ] as const) {
    const noAuthorities = await runAssay(['serve', '--data', data, '--ca-certs', path]);
    assert.deepEqual(
      [noAuthorities.status, noAuthorities.stderr],
      [1, `assay: CA_CERTS: ${path} ${reason}\n`],
    );
  }
  truncateSync(join(data, 'assay.db'), 0);
  for (const args of [['serve'], ['user', 'list']]) {
    const { status, stderr } = await runAssay([...args, '--data', data]);
    assert.equal(status, 1);
    assert.match(stderr, /^assay: [^\n]*assay\.db is empty[^\n]*assay restore[^\n]*\n$/);
  }
});

test('a data directory that cannot be created is reported in one line', async () => {
  using directory = temporaryDirectory();
  mkdirSync(join(directory.path, 'x'));
  writeFileSync(join(directory.path, 'x/file'), '');
  const { status, stderr } = await runAssay(['serve', '--data', join(directory.path, 'x/file/data')]);
  assert.equal(status, 1);
  assert.match(stderr, /^assay: the data directory [^\n]*--data[^\n]*\n$/);
});

/** The certificate that the server presents to a new connection. */
async function shownBy(port: number): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const { fingerprint256 } = socket.getPeerCertificate();
  socket.destroy();
  return fingerprint256;
}

test('SIGHUP reloads the certificate; if it cannot be read, the old one stays in use', async () => {
  using directory = temporaryDirectory();
  const [data, cert, key] = ['data', 'cert.pem', 'key.pem'].map(name => join(directory.path, name)) as [
    string,
    string,
    string,
  ];
  const install = async (name: string) => {
    const from = join(directory.path, name);
    await ensureCertificate({ directory: from, hosts: [] });
    copyFileSync(join(from, 'server.pem'), cert);
    copyFileSync(join(from, 'server.key'), key);
  };
  await install('first');
  await ensureCertificate({ directory: join(data, 'tls'), hosts: [] });
  const serving = await serve(data, { env: { ASSAY_TLS_CERT: cert, ASSAY_TLS_KEY: key } });
  const says = async (words: string) => {
    while (!serving.stderr().includes(words)) await once(serving.child.stderr as NodeJS.EventEmitter, 'data');
  };
  const first = await shownBy(serving.port);
  await install('second');
  assert.equal(await shownBy(serving.port), first, 'unchanged before SIGHUP');
  serving.child.kill('SIGHUP');
  await says('certificate reloaded');
  const second = await shownBy(serving.port);
  assert.notEqual(second, first);
  writeFileSync(cert, 'no certificate');
  serving.child.kill('SIGHUP');
  await says('certificate could not be reloaded');
  assert.equal(await shownBy(serving.port), second);
  assert.deepEqual(await serving.end('SIGTERM'), [0, null]);
});

test('SIGTERM stops the server within ten seconds while Docker accepts connections and never answers', {
  timeout: 60_000,
}, async () => {
  using directory = temporaryDirectory();
  const socket = join(directory.path, 'docker.sock');
  const connections = new Set<Socket>();
  const silent = createServer(connection => connections.add(connection.on('error', () => {}))).listen(socket);
  await once(silent, 'listening');
  const connected = once(silent, 'connection');
  const serving = await serve(join(directory.path, 'data'), { env: { DOCKER_HOST: `unix://${socket}` } });
  try {
    await connected;
    const startedAt = performance.now();
    const timer = setTimeout(() => serving.child.kill('SIGKILL'), 20_000);
    assert.deepEqual(await serving.end('SIGTERM'), [0, null]);
    clearTimeout(timer);
    assert.ok(performance.now() - startedAt < 10_000);
  } finally {
    serving.child.kill('SIGKILL');
    silent.close();
    for (const connection of connections) connection.destroy();
  }
});

test('under journald each line begins with its level and has no time', async () => {
  using directory = temporaryDirectory();
  const linesOf = async (env: Record<string, string>) => {
    const serving = await serve(directory.path, { env: { ASSAY_LISTN: 'x', ...env } });
    await serving.end('SIGTERM');
    return serving.stderr().trimEnd().split('\n');
  };
  for (const line of await linesOf({ JOURNAL_STREAM: '8:1234' })) assert.match(line, /^<[3-7]>\w/);
  for (const line of await linesOf({})) assert.match(line, /^\d{4}-\d\d-\d\dT[\d:.]+Z (info|warn|error) \w/);
});
