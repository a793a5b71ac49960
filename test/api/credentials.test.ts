// Credentials: which ones are accepted, and that they are checked before anything else.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { connect } from 'node:tls';
import { createSession, replaceApiKey, updateAccount } from '../../src/store/accounts.ts';
import { deleteToken, listTokens } from '../../src/store/applications.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { basic, bearer, type CallOptions, errors } from '../support/client.ts';
import { compileAll } from './states.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const whoami = (options: CallOptions = {}, query = '') => app.client.call('GET', `/whoami${query}`, options);
const unauthorized = errors('generic', 'unauthorized');

async function expectRefused(options: CallOptions, query = ''): Promise<void> {
  const answer = await whoami(options, query);
  assert.deepEqual([answer.status, answer.json], [401, unauthorized], JSON.stringify([options, query]));
}

async function expectOwner(options: CallOptions, query = ''): Promise<void> {
  const answer = await whoami(options, query);
  assert.deepEqual([answer.status, answer.text], [200, '{"response":{"email":"owner@example.org"}}']);
}

test('Basic, Bearer and oauth_token are accepted, with any case of scheme and email address', async () => {
  const { owner } = app.people;
  const token = app.token(owner, 'user').slice('Bearer '.length);
  await expectOwner({ as: owner.as });
  await expectOwner({ as: owner.as.replace('Basic', 'bASIC') });
  await expectOwner({ as: basic('OWNER@Example.ORG', owner.key) });
  await expectOwner({ as: bearer(token) });
  await expectOwner({ as: `bearer ${token}` });
  await expectOwner({}, `?oauth_token=${token}`);
});

describe('anything else is unauthorized', () => {
  const code = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
  const wrong: Record<string, () => CallOptions> = {
    'no credentials': () => ({}),
    'an empty header': () => ({ as: '' }),
    'a scheme alone': () => ({ as: 'Basic' }),
    'another scheme': () => ({ as: 'Digest username="owner@example.org"' }),
    'no colon': () => ({ as: code('owner@example.org') }),
    'no key': () => ({ as: code('owner@example.org:') }),
    'no address': () => ({ as: code(`:${app.people.owner.key}`) }),
    'no base64': () => ({ as: 'Basic %%%' }),
    'a part of the key': () => ({ as: basic('owner@example.org', app.people.owner.key.slice(0, -1)) }),
    "someone else's key": () => ({ as: basic('owner@example.org', app.people.stranger.key) }),
    'an unknown address': () => ({ as: basic('nobody@example.org', app.people.owner.key) }),
    injection: () => ({ as: basic("' OR 1=1 --", 'x') }),
    'a token as a key': () => ({
      as: basic('owner@example.org', app.token(app.people.owner, 'user').slice(7)),
    }),
    'a key as a token': () => ({ as: bearer(app.people.owner.key) }),
    'a token that was never given': () => ({ as: bearer('token_x') }),
    'an empty token': () => ({ as: 'Bearer ' }),
  };
  for (const [name, options] of Object.entries(wrong)) test(name, () => expectRefused(options()));

  test('an empty or unknown oauth_token', async () => {
    await expectRefused({}, '?oauth_token=');
    await expectRefused({}, '?oauth_token=x');
  });

  test('a token or key in the body', async () => {
    const token = app.token(app.people.owner, 'projects').slice('Bearer '.length);
    const answer = await app.client.call('POST', '/projects', { form: { oauth_token: token, name: 'x' } });
    assert.deepEqual([answer.status, answer.json], [401, unauthorized]);
  });
});

test('two kinds of credentials are refused, even if both are valid', async () => {
  const { owner } = app.people;
  const token = app.token(owner, 'user').slice('Bearer '.length);
  await expectRefused({ as: owner.as }, `?oauth_token=${token}`);
  await expectRefused({ as: bearer(token) }, `?oauth_token=${token}`);
  await expectRefused({}, `?oauth_token=${token}&oauth_token=${token}`);
  await expectRefused({ as: owner.as }, '?oauth_token=');
  await expectRefused({ headers: { authorization: [owner.as, bearer(token)] } });
  await expectRefused({ headers: { authorization: [owner.as, owner.as] } });
});

test('401 names the accepted schemes to a client without credentials, but not to a browser, which would show a dialog', async () => {
  const challenge = 'Basic realm="assay", charset="UTF-8", Bearer realm="assay"';
  for (const path of ['/whoami', `/projects/${planted.project_id}/firehose`, '/projects?callback=f']) {
    const answer = await app.client.get(path);
    assert.deepEqual([answer.status, answer.headers['www-authenticate']], [401, challenge], path);
  }
  const browser = await app.client.call('GET', '/whoami', { headers: { 'sec-fetch-mode': 'no-cors' } });
  assert.deepEqual([browser.status, browser.headers['www-authenticate']], [401, undefined]);
  const wrong = await app.client.get('/whoami', bearer('nobody'));
  assert.deepEqual([wrong.status, wrong.headers['www-authenticate']], [401, undefined]);
  const missing = await app.client.get('/projects/1', app.people.owner.as);
  assert.deepEqual([missing.status, missing.headers['www-authenticate']], [404, undefined]);
});

test('cookies are never credentials', async () => {
  const session = createSession(app.db, app.people.owner.account.id);
  for (const name of [
    'session',
    'assay_session',
    '__Host-session',
    '__Host-assay',
    '__Secure-assay',
    'oauth_token',
  ])
    await expectRefused({ headers: { cookie: `${name}=${session}` } });
});

test('Basic credentials that a browser adds to a cross-site request are refused, tokens are not', async () => {
  const { owner } = app.people;
  await expectRefused({ as: owner.as, headers: { 'sec-fetch-site': 'cross-site' } });
  // A request without them comes first: its cached result must not help.
  await expectOwner({ as: owner.as });
  await expectRefused({ as: owner.as, headers: { 'sec-fetch-site': 'cross-site' } });
  for (const site of ['same-origin', 'same-site', 'none'])
    await expectOwner({ as: owner.as, headers: { 'sec-fetch-site': site } });
  await expectOwner({ as: app.token(owner, 'user'), headers: { 'sec-fetch-site': 'cross-site' } });
});

test('a new key, a revoked token and a new standing take effect with the next request', async () => {
  const { account, key } = app.people.stranger;
  assert.equal((await whoami({ as: basic(account.email, key) })).status, 200);
  const next = replaceApiKey(app.db, account.id);
  await expectRefused({ as: basic(account.email, key) });
  const as = basic(account.email, next);
  assert.equal((await whoami({ as })).status, 200);

  const token = app.token(app.people.stranger, 'user');
  assert.equal((await whoami({ as: token })).status, 200);
  const [granted] = listTokens(app.db, account.id);
  assert(granted);
  deleteToken(app.db, account.id, granted.token.id);
  await expectRefused({ as: token });

  updateAccount(app.db, account.id, { standing: 'suspended' });
  assert.deepEqual((await whoami({ as })).json, errors('generic', 'account_suspended'));
  updateAccount(app.db, account.id, { standing: 'active' });
  const status = async () => (await app.client.get('/dependencies', as)).status;
  assert.equal(await status(), 200);
  updateAccount(app.db, account.id, { trialEndsAt: Date.now() - 1 });
  assert.equal(await status(), 402);
  assert.equal((await whoami({ as })).status, 200);
  updateAccount(app.db, account.id, { trialEndsAt: Date.now() + 60_000 });
  assert.equal(await status(), 200);
  updateAccount(app.db, account.id, { kind: 'collaborator' });
  assert.equal(await status(), 401);
});

test('the checks have a fixed order', async () => {
  const path = `/projects/${planted.project_id}`;
  const { people } = app;
  const call = async (method: string, target: string, as: string | undefined, form = {}) => {
    const answer = await app.client.call(method, target, { as, form });
    return `${answer.status} ${Object.values(answer.json.error as Record<string, string[]>)[0]}`;
  };
  // An unknown endpoint comes before credentials, then standing, scope and the record.
  assert.equal(await call('POST', '/nothing', undefined), '400 api_does_not_exists');
  assert.equal(await call('PUT', '/projects/1', undefined), '401 unauthorized');
  assert.equal(await call('PUT', '/projects/1', people.suspended.as), '401 account_suspended');
  const suspended = app.token(people.suspended, 'user');
  assert.equal(await call('PUT', '/projects/1', suspended), '401 account_suspended');
  assert.equal(await call('PUT', '/projects/1', app.token(people.owner, 'user')), '401 unauthorized');
  // The record comes before access, then payment and fields.
  assert.equal(await call('PUT', '/projects/1', people.guest.as), '404 not_found');
  assert.equal(await call('PUT', path, people.guest.as, { name: '' }), '401 unauthorized');
  assert.equal(await call('PUT', path, people.unpaid.as, { name: '' }), '401 unauthorized');
  assert.equal(await call('POST', '/projects', people.unpaid.as), '402 payment_required');
  assert.equal(await call('PUT', path, people.owner.as, { name: '' }), '403 is_blank');
});

test('anyone can fetch a shared dependency, but only its owner can see its compile', async () => {
  const there = app.plant();
  const path = `/dependencies/${there.free_dependency_id}`;
  compileAll(app.db, there.free_dependency_id);
  assert.equal((await app.client.call('POST', `${path}/share`, { as: app.people.owner.as })).status, 200);
  for (const { as } of [app.people.collaborator, app.people.guest, app.people.unpaid]) {
    assert.equal((await app.client.get(path, as)).status, 200);
    for (const hidden of ['/log', '/firehose'])
      assert.equal((await app.client.get(`${path}${hidden}`, as)).status, 404, hidden);
    for (const [method, target] of [
      ['PUT', path],
      ['DELETE', path],
      ['POST', `${path}/archive`],
      ['POST', `${path}/unshare`],
      ['POST', `${path}/cancel`],
    ] as const) {
      const answer = await app.client.call(method, target, { as, form: {} });
      assert.deepEqual([answer.status, answer.json], [401, unauthorized], `${method} ${target}`);
    }
  }
});

test('each request on a connection is authenticated by its own credentials', async () => {
  const { owner, admin } = app.people;
  const socket = connect({ port: Number(new URL(app.url).port), host: '127.0.0.1', ca: app.client.ca });
  await once(socket, 'secureConnect');
  const wrong = basic('owner@example.org', 'wrong');
  const sent = [owner.as, owner.as, admin.as, wrong, wrong, owner.as];
  const requests = sent.map(
    as => `GET /projects/${planted.project_id} HTTP/1.1\r\nHost: x\r\nAuthorization: ${as}`,
  );
  socket.write(`${requests.join('\r\n\r\n')}\r\nConnection: close\r\n\r\n`);
  let text = '';
  for await (const chunk of socket) text += chunk;
  const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
  assert.deepEqual(statuses, ['200', '200', '404', '401', '401', '200']);
});

describe('credentials are checked before a body is read', () => {
  for (const length of ['Content-Length: 5368709120', 'Transfer-Encoding: chunked'])
    test(`an upload with ${length} and a wrong key is answered before it is sent`, async () => {
      const socket = connect({ port: Number(new URL(app.url).port), host: '127.0.0.1', ca: app.client.ca });
      await once(socket, 'secureConnect');
      const path = `/dependencies/${planted.free_dependency_id}/archive`;
      socket.write(
        `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: ${basic('owner@example.org', 'wrong')}\r\n${length}\r\n\r\n`,
      );
      let text = '';
      for await (const chunk of socket) {
        text += chunk;
        if (text.includes('unauthorized')) break;
      }
      socket.destroy();
      assert.match(text, /^HTTP\/1\.1 401 /);
      assert.match(text, /connection: close/i);
      assert.match(text, /\{"error":\{"generic":\["unauthorized"\]\}\}/);
    });
});
