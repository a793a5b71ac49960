// Behind a reverse proxy: which address counts, and where plain HTTP redirects.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from '../../../src/domain/secret.ts';
import { parseCidrs } from '../../../src/domain/webhook/address.ts';
import { setPassword } from '../../../src/store/accounts.ts';
import { openWire, type Wire } from '../../attacks/wire.ts';
import { bootApp, type TestApp } from '../../support/app.ts';

const PASSWORD = 'correct horse battery';

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

test('a page that was requested from a trusted proxy over plain HTTP redirects to BASE_URL', async () => {
  const plain = { 'x-forwarded-proto': 'http' };
  assert.deepEqual(await get('/ui/sign-in?next=%2Fui', plain), [303, `${app.url}/ui/sign-in?next=%2Fui`]);
  assert.deepEqual(await get('/ui/sign-in', { 'x-forwarded-proto': 'https' }), [200, undefined]);
  assert.deepEqual(await get('/ui/sign-in', {}), [200, undefined]);
});

test('the metrics are not open to callers that a proxy on the same server forwards', async () => {
  assert.equal((await get('/metrics', { 'x-forwarded-for': '192.0.2.1' }))[0], 401);
  assert.equal((await get('/metrics', {}))[0], 200);
});

test('a user can sign in while others guess passwords through the same proxy', async () => {
  const { email } = app.people.owner.account;
  setPassword(app.db, app.people.owner.account.id, await hashPassword(PASSWORD));
  const many = openWire(app, 85);
  const signIn = (through: Wire, from: string, password: string) =>
    through.ask('POST', '/ui/sign-in', {
      headers: { origin: wire.origin, 'x-forwarded-for': from },
      form: { email, password },
    });
  let checked = 0;
  const isFull = Promise.withResolvers<void>();
  const strangers = Array.from({ length: 85 }, async (_, at) => {
    const { status } = await signIn(many, `198.51.100.${at % 15}`, 'a guess');
    if (status === 422) checked += 1;
    else assert.equal(status, 429);
    if (status === 429) isFull.resolve();
  });
  await isFull.promise;
  const before = checked;
  assert.equal((await signIn(wire, '203.0.113.7', PASSWORD)).status, 303);
  // At most one turn for each stranger, and not one for each of the fifty waiting guesses.
  assert.ok(checked - before <= 20, `${checked - before} guesses were checked first`);
  await Promise.all(strangers);
  many.close();
});
