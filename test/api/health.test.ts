// What monitoring is told: well while the database answers and is where the next server would look for it;
// figures for whoever may see them.
import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { test } from 'node:test';
import type { Services } from '../../src/api/endpoint.ts';
import { operations } from '../../src/api/identity.ts';
import { createMetrics } from '../../src/api/metrics.ts';
import { createRouter } from '../../src/api/router.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { databasePath } from '../../src/store/paths.ts';
import { bootApp } from '../support/app.ts';
import { errors } from '../support/client.ts';

test('an appliance whose database was taken away says that it is not well, and recovers', async t => {
  const app = await bootApp();
  t.after(() => app.close());
  const path = databasePath(app.data);
  const ask = async () => {
    const { status, text } = await app.client.get('/healthz');
    return [status, text];
  };
  assert.deepEqual(await ask(), [200, '{"response":"ok"}']);
  renameSync(path, `${path}.away`);
  assert.deepEqual(await ask(), [500, '{"error":{"generic":[]}}']);
  renameSync(`${path}.away`, path);
  assert.deepEqual(await ask(), [200, '{"response":"ok"}']);
});

test('the figures are for loopback and for administrators, and for nobody else', async t => {
  const { db, people, close } = await bootApp();
  t.after(close);
  const metrics = createMetrics();
  const vitals = () => ({ slots: 1, slotsUsed: 0, freeDiskBytes: 1 });
  const services = { db, live: createLive(), vitals } as unknown as Services;
  const router = createRouter(services, operations(metrics, Object), { log: createLog(), metrics });
  // The address is that of the connection: what a request says about it is not looked at.
  const ask = async (remoteAddress: string, authorization = '') => {
    const headers = { authorization, 'x-forwarded-for': '127.0.0.1' };
    const outgoing = { req: { socket: { remoteAddress } } };
    const answer = await router.request('https://assay.test/metrics', { headers }, { outgoing });
    return [answer.status, await answer.text()] as const;
  };
  for (const near of ['127.0.0.1', '127.8.9.10', '::1', '::ffff:127.0.0.1']) {
    const [status, text] = await ask(near);
    assert.equal(status, 200, near);
    assert.match(text, /^assay_slots 1$/m);
  }
  for (const far of ['192.0.2.7', '2001:db8::7', '::ffff:192.0.2.7', '::']) {
    assert.equal((await ask(far, people.admin.as))[0], 200, far);
    for (const authorization of ['', 'Basic nonsense', people.owner.as, people.guest.as]) {
      const expected = [401, JSON.stringify(errors('generic', 'unauthorized'))];
      assert.deepEqual(await ask(far, authorization), expected, `${far} ${authorization}`);
    }
  }
});
