// The registry endpoint that the nodes of a swarm pull from: credentials, digests, ranges, and clients that go away.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:http2';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { registryOf } from '../../src/domain/swarm.ts';
import { imagesDirectory } from '../../src/store/data/paths.ts';
import { NODE_USER, nodePasswordOf, registryAuthOf } from '../../src/store/node-credentials.ts';
import { pollUntil } from '../drill/support/poll.ts';
import {
  blobOf,
  createStoreFixture,
  digestIn,
  manifestOf,
  readAll,
  type StoreFixture,
} from '../engine/swarm/fixture.ts';
import { bootApp, type TestApp } from '../support/app.ts';
import { basic } from '../support/client.ts';
import { collectGarbage } from '../support/garbage.ts';

const WAIT_MS = 20_000;
const LARGE_BYTES = 96 << 20;

let app: TestApp;
let shared: string;
let images: StoreFixture;
let node: string;
let manifest: string;
let layers: { digest: string; size: number }[];
let artifactFile: string;

before(async () => {
  shared = await mkdtemp(join(tmpdir(), 'assay-shared-'));
  app = await bootApp({ engine: 'swarm', shared });
  images = createStoreFixture(imagesDirectory(app.data));
  await images.addImage([
    { name: 'etc/', type: 'directory' },
    { name: 'etc/name', content: 'base' },
  ]);
  const artifact = await images.artifact('/opt/x', [
    { path: '', type: 'directory' },
    { path: 'large', content: Buffer.alloc(LARGE_BYTES).fill(randomBytes(4 << 20)) },
  ]);
  artifactFile = artifact.file;
  const reference = await images.store.compose('base', [artifact]);
  manifest = digestIn(reference);
  ({ layers } = await manifestOf(images.store, reference));
  node = basic(NODE_USER, nodePasswordOf(app.db));
});
after(async () => {
  images?.close();
  await app?.close();
  await rm(shared, { recursive: true, force: true });
});

const agent = new Agent({ keepAlive: true });
after(() => agent.destroy());

type Options = { method?: string; as?: string | undefined; headers?: Record<string, string> };

/** Resolves with the headers. The body has to be read or destroyed. */
async function open(path: string, { method = 'GET', as, headers }: Options = {}): Promise<IncomingMessage> {
  const outgoing = request(app.url + path, {
    method,
    ca: app.client.ca,
    agent,
    headers: { ...(as && { authorization: as }), ...headers },
  });
  outgoing.end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  return incoming;
}

async function call(path: string, options: Options = {}) {
  const incoming = await open(path, options);
  const body = await readAll(incoming);
  const { statusCode: status, headers } = incoming;
  const error = () => (JSON.parse(body.toString()) as { errors: { code: string }[] }).errors[0]?.code;
  return { status, headers, body, error };
}

const blobPath = (digest: string) => `/v2/assay/image/blobs/${digest}`;
const manifestPath = (digest: string) => `/v2/assay/image/manifests/${digest}`;

test('without the credentials of the nodes, every path is refused with a challenge', async () => {
  const { owner, admin } = app.people;
  const wrong = [
    undefined,
    basic(NODE_USER, 'wrong'),
    basic('', ''),
    owner.as,
    admin.as,
    'Basic',
    `Bearer ${node.slice(6)}`,
  ];
  for (const as of wrong)
    for (const path of ['/v2/', manifestPath(manifest), blobPath(layers[0]?.digest as string), '/v2/other'])
      for (const method of ['GET', 'HEAD']) {
        const { status, headers, error } = await call(path, { as, method });
        assert.equal(status, 401, `${as} ${path}`);
        assert.match(headers['www-authenticate'] ?? '', /^Basic /);
        assert.equal(headers['docker-distribution-api-version'], 'registry/2.0');
        if (method === 'GET') assert.equal(error(), 'UNAUTHORIZED');
      }
});

test('wrong credentials are logged, but no credentials are, and not each time', () => {
  const lines = app.logged.filter(line => line.includes('wrong credentials'));
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? '', /127\.0\.0\.1/);
  for (const secret of [nodePasswordOf(app.db), node.slice(6), app.people.owner.key])
    assert.ok(app.logged.every(line => !line.includes(secret)));
});

test('the credentials of the nodes open nothing else, and stay the same', async () => {
  assert.equal((await call('/v2/', { as: node })).status, 200);
  for (const path of ['/projects', '/accounts', '/firehose'])
    assert.notEqual((await call(path, { as: node })).status, 200);
  assert.equal((await call('/projects', { as: node })).status, 401);
  assert.deepEqual(registryAuthOf(app.db, 'a:1'), {
    username: 'assay-node',
    password: nodePasswordOf(app.db),
    serveraddress: 'a:1',
  });
  const stored = app.db.sqlite.prepare("SELECT value FROM facts WHERE name = 'node_password'").pluck().get();
  assert.ok(typeof stored === 'string' && !stored.includes(nodePasswordOf(app.db)));
});

test('a manifest has its digest, its type and its length', async () => {
  for (const digest of [manifest, manifest.replace(':', '%3A')]) {
    const { status, headers, body } = await call(manifestPath(digest), { as: node });
    assert.equal(status, 200);
    assert.equal(headers['content-type'], 'application/vnd.docker.distribution.manifest.v2+json');
    assert.equal(headers['docker-content-digest'], manifest);
    assert.equal(headers['content-length'], String(body.length));
    assert.equal(`sha256:${createHash('sha256').update(body).digest('hex')}`, manifest);
    const head = await call(manifestPath(digest), { as: node, method: 'HEAD' });
    assert.deepEqual([head.status, head.body.length], [200, 0]);
    assert.equal(head.headers['content-length'], String(body.length));
    assert.equal(head.headers['docker-content-digest'], manifest);
  }
});

test('tags, unknown digests and other names are not found', async () => {
  const unknown = `sha256:${'0'.repeat(64)}`;
  for (const [path, code] of [
    [manifestPath('latest'), 'MANIFEST_UNKNOWN'],
    [manifestPath(unknown), 'MANIFEST_UNKNOWN'],
    [manifestPath(layers[0]?.digest as string), 'MANIFEST_UNKNOWN'],
    [manifestPath(layers[1]?.digest as string), 'MANIFEST_UNKNOWN'],
    [blobPath(unknown), 'BLOB_UNKNOWN'],
    [blobPath('..%2f..%2fassay.db'), 'BLOB_UNKNOWN'],
    [`/v2/other/image/blobs/${layers[0]?.digest}`, 'NAME_UNKNOWN'],
    ['/v2/assay/image/tags/list', 'NAME_UNKNOWN'],
    ['/v2/_catalog', 'NAME_UNKNOWN'],
  ] as const) {
    const { status, error } = await call(path, { as: node });
    assert.deepEqual([status, error()], [404, code], path);
  }
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'])
    assert.equal((await call('/v2/assay/image/blobs/uploads/', { as: node, method })).status, 400);
});

test('a layer has its length and digest, and parts of it can be requested', async () => {
  for (const { digest, size } of layers) {
    const head = await call(blobPath(digest), { as: node, method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(head.headers['content-length'], String(size));
    assert.equal(head.headers['docker-content-digest'], digest);
    const incoming = await open(blobPath(digest), { as: node });
    assert.equal(incoming.statusCode, 200);
    assert.equal(incoming.headers['content-length'], String(size));
    const sha256 = createHash('sha256');
    for await (const chunk of incoming) sha256.update(chunk);
    assert.equal(`sha256:${sha256.digest('hex')}`, digest);
    // What Docker sends to resume.
    const start = size - 1_000;
    const rest = await call(blobPath(digest), { as: node, headers: { range: `bytes=${start}-` } });
    assert.equal(rest.status, 206);
    assert.equal(rest.headers['content-range'], `bytes ${start}-${size - 1}/${size}`);
    assert.equal(rest.headers['docker-content-digest'], digest);
    const whole = await blobOf(images.store, digest);
    assert.ok(rest.body.equals(whole.subarray(start)));
    const beyond = await call(blobPath(digest), { as: node, headers: { range: `bytes=${size}-` } });
    assert.equal(beyond.status, 416);
  }
});

test('a layer is sent over HTTP/2 as well', async () => {
  const session = connect(app.url, { ca: app.client.ca });
  try {
    for (const { digest } of layers) {
      const stream = session.request({ ':path': blobPath(digest), authorization: node });
      const [headers] = (await once(stream, 'response')) as [Record<string, string>];
      assert.equal(headers['docker-content-digest'], digest);
      const sha256 = createHash('sha256');
      for await (const chunk of stream) sha256.update(chunk);
      assert.equal(`sha256:${sha256.digest('hex')}`, digest);
    }
  } finally {
    session.close();
  }
});

const isArtifactOpen = () =>
  readdirSync('/proc/self/fd').some(name => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`) === artifactFile;
    } catch {
      return false;
    }
  });

test('a slow client does not make a layer gather in memory, and one that goes away ends it', async () => {
  const { digest } = layers[1] as { digest: string };
  const bytes = () => {
    collectGarbage();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const beforeBytes = bytes();
  const incoming = await open(blobPath(digest), { as: node });
  incoming.on('error', () => {});
  // Node reads ahead a little, then the connection is full.
  incoming.pause();
  assert.ok(isArtifactOpen());
  let last = -1;
  const isFull = () => {
    const { bytesRead } = incoming.socket;
    const isQuiet = bytesRead === last;
    last = bytesRead;
    return isQuiet;
  };
  assert.ok(await pollUntil(WAIT_MS, isFull, Boolean));
  // V8 frees buffers in the background, so right after a collection they may still be counted.
  const isSmall = () => bytes() - beforeBytes < 12 << 20;
  assert.ok(await pollUntil(WAIT_MS, isSmall, Boolean), `${bytes() - beforeBytes} bytes`);
  incoming.destroy();
  assert.ok(await pollUntil(WAIT_MS, () => !isArtifactOpen(), Boolean));
  const { status } = await call('/v2/', { as: node });
  assert.equal(status, 200);
  assert.ok(
    app.logged.every(line => !line.includes(' error ')),
    app.logged.join('\n'),
  );
});

test('without ENGINE=swarm there is no registry', async () => {
  const other = await bootApp();
  try {
    const { status, json } = await other.client.call('GET', '/v2/', { as: node });
    assert.deepEqual([status, json], [400, { error: { generic: ['api_does_not_exists'] } }]);
  } finally {
    await other.close();
  }
});

test('the name of the registry always has a port, and an address that Docker cannot name is refused', () => {
  assert.equal(registryOf('https://assay.example.org'), 'assay.example.org:443');
  assert.equal(registryOf('https://ci'), 'ci:443');
  assert.equal(registryOf('https://10.0.0.1:8443'), '10.0.0.1:8443');
  assert.equal(registryOf('http://localhost:80'), 'localhost:80');
  for (const address of ['https://[::1]:8443', 'https://ci_server', 'https://-ci'])
    assert.throws(() => registryOf(address), /BASE_URL must have a host name/);
});
