// How responses of the engine are classified: wait for the engine, or accept its refusal.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { pack } from 'tar-stream';
import { ensureCertificate } from '../../../src/engine/certificate.ts';
import { openDocker } from '../../../src/engine/docker/client.ts';
import { createDockerEngine } from '../../../src/engine/docker/docker-engine.ts';
import { EngineRefused, EngineUnavailable } from '../../../src/engine/engine.ts';
import { RUN_AS } from './fixture.ts';

const OPTIONS = { instance: 'test', runAs: RUN_AS, network: 'none' };

/** An engine that gives this response to every request. */
async function answering(status: number, message: string) {
  const server = createServer((_, response) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ message }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    engine: createDockerEngine({ ...OPTIONS, dockerHost: `tcp://127.0.0.1:${port}` }),
    [Symbol.dispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

for (const message of [
  'transport is closing: unavailable',
  'get assay-1-cache-2: database not open',
  'grpc: the client connection is closing: unknown',
  'connection error: desc = "transport: error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused"',
])
  test(`an engine that is shutting down is waited for: ${message}`, async () => {
    using fixture = await answering(500, message);
    await assert.rejects(fixture.engine.stopContainer('assay-build-1'), EngineUnavailable);
  });

test('a refusal with a reason of the engine is final', async () => {
  using fixture = await answering(500, 'mkdir /var/lib/docker/overlay2/x: no space left on device');
  await assert.rejects(fixture.engine.stopContainer('assay-build-1'), (error: unknown) => {
    assert.ok(error instanceof EngineRefused);
    assert.match(error.message, /no space left on device/);
    return true;
  });
});

/** An engine with one image, whose files are returned by `answer`. */
async function withImage(answer: (response: ServerResponse) => void, deadlineMs = 1_000) {
  const removed: string[] = [];
  const json = (response: ServerResponse, status: number, body: unknown) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  const server = createServer((request, response) => {
    const { method, url = '' } = request;
    if (method === 'DELETE') {
      removed.push(url.replace(/\?.*/, ''));
      response.writeHead(204).end();
    } else if (url.includes('/archive')) answer(response);
    else if (url === '/images/tools/json') json(response, 200, { Id: 'sha256:1', Config: {} });
    else if (url.startsWith('/containers/create')) json(response, 201, { Id: 'c1' });
    else json(response, 404, { message: 'no such image' });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const engine = createDockerEngine({ ...OPTIONS, dockerHost: `tcp://127.0.0.1:${port}`, deadlineMs });
  return {
    prepare: () => engine.prepareImage('tools'),
    removed,
    [Symbol.dispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** The header of a file of 8 GiB in a tar. */
async function beginTar(): Promise<Buffer> {
  const tar = pack();
  tar.entry({ name: 'passwd', size: 8 * 1024 ** 3 });
  for await (const chunk of tar) return chunk as Buffer;
  throw new Error('a tar without a header');
}
const head = await beginTar();

test('an engine that stalls in the middle of a file does not block the image for ever', {
  timeout: 10_000,
}, async () => {
  using fixture = await withImage(response => response.writeHead(200).write(head));
  await assert.rejects(fixture.prepare(), EngineUnavailable);
  assert.deepEqual(fixture.removed, ['/containers/c1']);
});

test('an engine that disconnects in the middle of a file does not end the program', {
  timeout: 10_000,
}, async () => {
  using fixture = await withImage(response => {
    response.writeHead(200).write(head, () => response.destroy());
  });
  await assert.rejects(fixture.prepare(), EngineUnavailable);
});

test('an image with an endless list of users is refused', { timeout: 20_000 }, async () => {
  const some = Buffer.alloc(1024 ** 2, 'x');
  using fixture = await withImage(response => {
    const more = () => {
      while (response.write(some));
      response.once('drain', more);
    };
    response.writeHead(200).write(head);
    more();
  }, 15_000);
  await assert.rejects(fixture.prepare(), /passwd .* too large/);
});

test('missing certificates are named until they exist, and then used', async () => {
  const place = mkdtempSync(join(tmpdir(), 'assay-test-'));
  const { cert, key } = await ensureCertificate({ directory: join(place, 'tls'), hosts: ['127.0.0.1'] });
  const server = createSecureServer({ cert, key }, (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"Version":"1"}');
  });
  try {
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const { call } = openDocker({
      dockerHost: `tcp://127.0.0.1:${port}`,
      environment: { DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: place },
    });
    const ask = () => call('version', docker => docker.version());
    await assert.rejects(ask, (error: unknown) => {
      assert.ok(error instanceof EngineUnavailable && !error.reached);
      assert.ok(error.message.includes(join(place, 'ca.pem')), error.message);
      return true;
    });
    copyFileSync(join(place, 'tls/ca.pem'), join(place, 'ca.pem'));
    writeFileSync(join(place, 'cert.pem'), cert);
    writeFileSync(join(place, 'key.pem'), key);
    assert.equal((await ask()).Version, '1');
  } finally {
    server.close();
    server.closeAllConnections();
    rmSync(place, { recursive: true, force: true });
  }
});

test('the connections of the client are not formatted with every request', async () => {
  const { call, close } = openDocker({ dockerHost: 'unix:///nowhere/docker.sock' });
  const modem = await call('read the settings', async docker => docker.modem);
  const { agent } = modem as unknown as { agent: object };
  assert.equal(inspect({ agent }, { showHidden: true, depth: null }), '{ agent: Agent }');
  close();
});
