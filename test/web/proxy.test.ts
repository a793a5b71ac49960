// Behind a reverse proxy: whose address counts, and where plain HTTP leads.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { parseCidrs } from '../../src/domain/address.ts';
import { openWire, type Wire } from '../attacks/wire.ts';
import { bootApp, type TestApp } from '../support/app.ts';

let app: TestApp;
let wire: Wire;
before(async () => {
  app = await bootApp({ trustedProxies: parseCidrs('127.0.0.1') });
  wire = openWire(app);
});
after(async () => {
  wire.close();
  await app.close();
});

const get = async (path: string, headers: Record<string, string>) => {
  const { status, headers: answered } = await wire.ask('GET', path, { headers });
  return [status, answered.location];
};

test('a page that a browser asked a trusted proxy for over plain HTTP leads to the same page at BASE_URL', async () => {
  const plain = { 'x-forwarded-proto': 'http' };
  assert.deepEqual(await get('/ui/sign-in?next=%2Fui', plain), [303, `${app.url}/ui/sign-in?next=%2Fui`]);
  assert.deepEqual(await get('/ui/sign-in', { 'x-forwarded-proto': 'https' }), [200, undefined]);
  assert.deepEqual(await get('/ui/sign-in', {}), [200, undefined]);
});

test('the figures are not open to whom a proxy on the same server forwards', async () => {
  assert.equal((await get('/metrics', { 'x-forwarded-for': '192.0.2.1' }))[0], 401);
  assert.equal((await get('/metrics', {}))[0], 200);
});
