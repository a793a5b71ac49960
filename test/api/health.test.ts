// Health and metrics: healthy while the database answers and is in place, and metrics for those who may see them.
import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import type { Services } from '../../src/api/endpoint.ts';
import { operations } from '../../src/api/identity.ts';
import { createMetrics } from '../../src/api/metrics.ts';
import { createRouter } from '../../src/api/router.ts';
import { parseCidrs } from '../../src/domain/webhook/address.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { databasePath } from '../../src/store/data/paths.ts';
import { type Trigger, updateTrigger } from '../../src/store/trigger/triggers.ts';
import { addProject } from '../store/fixture.ts';
import { bootApp, type People } from '../support/app.ts';
import { errors } from '../support/client.ts';
import { addTrigger } from '../support/watch-fixture.ts';

test('a server whose database was removed reports that it is unhealthy, and recovers', async t => {
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

type Ask = (
  remoteAddress: string,
  headers?: Record<string, string>,
) => Promise<readonly [status: number, text: string]>;

async function openFigures(
  trustedProxies: string,
  t: TestContext,
): Promise<{ ask: Ask; people: People } & Pick<Services, 'db' | 'metrics'>> {
  const { db, people, close } = await bootApp();
  t.after(close);
  const metrics = createMetrics();
  const vitals = () => ({ slots: 3, slotsUsed: 0, compileSlots: 2, compilesRunning: 1, freeDiskBytes: 1 });
  const services = {
    db,
    live: createLive(),
    log: createLog(),
    metrics,
    vitals,
    trustedProxies: parseCidrs(trustedProxies),
  } as unknown as Services;
  const router = createRouter(services, [operations.metrics]);
  const ask: Ask = async (remoteAddress, headers = {}) => {
    const outgoing = { req: { socket: { remoteAddress }, headers } };
    const answer = await router.request('https://assay.test/metrics', { headers }, { outgoing });
    return [answer.status, await answer.text()];
  };
  return { ask, people, db, metrics };
}

const refused = [401, JSON.stringify(errors('generic', 'unauthorized'))];

test('the metrics are for loopback and administrators only', async t => {
  const { ask, people } = await openFigures('', t);
  // Only the address of the connection counts, not what the request claims.
  const forwarded = { 'x-forwarded-for': '127.0.0.1' };
  for (const near of ['127.0.0.1', '127.8.9.10', '::1', '::ffff:127.0.0.1']) {
    const [status, text] = await ask(near, forwarded);
    assert.equal(status, 200, near);
    assert.match(text, /^assay_slots 3$/m);
    assert.match(text, /^assay_compile_slots 2$/m);
    assert.match(text, /^assay_compile_slots_used 1$/m);
  }
  for (const far of ['192.0.2.7', '2001:db8::7', '::ffff:192.0.2.7', '::']) {
    assert.equal((await ask(far, { ...forwarded, authorization: people.admin.as }))[0], 200, far);
    for (const authorization of ['', 'Basic nonsense', people.owner.as, people.guest.as])
      assert.deepEqual(await ask(far, { ...forwarded, authorization }), refused, `${far} ${authorization}`);
  }
});

test('behind a trusted proxy on the same server, the forwarded address counts', async t => {
  const { ask, people } = await openFigures('127.0.0.1, ::1', t);
  for (const proxy of ['127.0.0.1', '::1', '::ffff:127.0.0.1']) {
    const from = (address: string, authorization = '') =>
      ask(proxy, { 'x-forwarded-for': address, authorization });
    // The last two: a caller that forged the left part, and a proxy that hides the caller.
    for (const far of ['192.0.2.7', '2001:db8::7', '127.0.0.1, 192.0.2.7', 'unknown'])
      assert.deepEqual(await from(far), refused, far);
    assert.equal((await from('192.0.2.7', people.admin.as))[0], 200);
    assert.equal((await from('127.0.0.1'))[0], 200);
    assert.equal((await ask(proxy))[0], 200);
  }
  assert.deepEqual(await ask('192.0.2.7', { 'x-forwarded-for': '127.0.0.1' }), refused);
});

test('the metrics show triggers by type and state, looks, firings and what is late', async t => {
  const { ask, db, metrics } = await openFigures('', t);
  const project = addProject(db);
  const [polled, late] = ['a', 'b', 'c'].map(branches =>
    addTrigger(db, addProject(db), 'poll', { branches }),
  );
  addTrigger(db, project, 'push');
  updateTrigger(db, polled as Trigger, { enabled: false });
  updateTrigger(db, late as Trigger, { nextAt: db.now() - 61_000 });
  metrics.countLook('failed');
  metrics.countFiring('requested');
  const [, text] = await ask('127.0.0.1');
  for (const line of [
    'assay_triggers{type="poll",state="disabled"} 1',
    'assay_triggers{type="poll",state="new"} 2',
    'assay_triggers{type="push",state="new"} 1',
    'assay_looks_late 1',
    'assay_looks_total{outcome="failed"} 1',
    'assay_firings_total{outcome="requested"} 1',
  ])
    assert.ok(text.split('\n').includes(line), `${line}\n${text}`);
});
