// Stopping the server: streams end, idle connections are closed, and running requests finish.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { test } from 'node:test';
import { bootApp } from '../support/app.ts';

test('a stopping server ends streams and idle connections at once', async () => {
  const app = await bootApp();
  const { project_id } = app.plant();
  await app.client.get('/ping');
  const ca = await readFile(join(app.data, 'tls', 'ca.pem'));
  const outgoing = request(new URL(`/projects/${project_id}/firehose`, app.url), {
    ca,
    headers: { authorization: app.people.owner.as },
  });
  outgoing.end();
  const [incoming] = await once(outgoing, 'response');
  await once(incoming, 'data');
  incoming.resume();
  const began = performance.now();
  const ended = once(incoming, 'end').then(() => performance.now() - began);
  await app.close();
  assert.ok((await ended) < 4_500, 'the stop waited for a reader');
});
