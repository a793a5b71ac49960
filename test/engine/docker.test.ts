// What the engine's answers mean for the work: to wait for it, or to take its no for an answer.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createEngine } from '../../src/engine/container.ts';
import { EngineRefused, EngineUnavailable } from '../../src/engine/docker.ts';

/** An engine that answers everything with this. */
async function answering(status: number, message: string) {
  const server = createServer((_, response) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ message }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    engine: createEngine({ dockerHost: `tcp://127.0.0.1:${port}` }),
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
  test(`an engine that is going down is waited for: ${message}`, async () => {
    using room = await answering(500, message);
    await assert.rejects(room.engine.stopContainer('assay-build-1'), EngineUnavailable);
  });

test('what the engine refuses for a reason of its own is a no', async () => {
  using room = await answering(500, 'mkdir /var/lib/docker/overlay2/x: no space left on device');
  await assert.rejects(room.engine.stopContainer('assay-build-1'), (error: unknown) => {
    assert.ok(error instanceof EngineRefused);
    assert.match(error.message, /no space left on device/);
    return true;
  });
});
