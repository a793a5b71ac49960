// Details of RFC 6749: empty parameters, the empty secret of a public client, and the response to a defect.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { scopes } from '../../src/domain/access.ts';
import { createSession, updateAccount } from '../../src/store/accounts.ts';
import {
  createAuthorizationCode,
  findApplicationByClientId,
  findOwnApplication,
  listTokens,
} from '../../src/store/applications.ts';
import { resetAccount } from '../../src/store/registration.ts';
import { visitorFor } from '../attacks/wire.ts';
import { basic } from '../support/client.ts';
import { type OAuthFixture, openOAuthFixture, type Registered } from '../web/account/oauth-fixture.ts';

// The example of RFC 7636, appendix B.
const verifier = 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk';
const challenge = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM';

let fixture: OAuthFixture;
let confidential: Registered;
let open: Registered;
before(async () => {
  fixture = await openOAuthFixture();
  confidential = fixture.register();
  open = fixture.register({ isPublic: true });
});
after(() => fixture.close());

function codeFor({ clientId }: Registered, codeChallenge: string | null): string {
  const application = findApplicationByClientId(fixture.db, clientId);
  assert(application);
  return createAuthorizationCode(fixture.db, {
    applicationId: application.id,
    accountId: fixture.people.owner.account.id,
    redirectUri: fixture.callback,
    scopes: ['user'],
    codeChallenge,
    lifetimeMs: 60_000,
  });
}

async function redeem(fields: Record<string, string>, as?: string) {
  const form = { grant_type: 'authorization_code', redirect_uri: fixture.callback, ...fields };
  const answer = await fixture.fetch('/oauth2/access_token', {
    method: 'POST',
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      ...(as !== undefined && { authorization: as }),
    },
    body: new URLSearchParams(form),
  });
  return {
    status: answer.status,
    requestId: answer.headers.get('x-request-id'),
    json: (await answer.json()) as { error?: unknown },
  };
}

const shown = () => ({
  client_id: confidential.clientId,
  client_secret: confidential.clientSecret ?? '',
});

test('an empty parameter of an authorization request counts as missing', async () => {
  const ask = async (changed: Record<string, string>) => {
    const { clientId } = confidential;
    const fields = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user', ...changed };
    const answer = await fixture.fetch(fixture.authorizeUrl(fields));
    return new URL(answer.headers.get('location') ?? 'about:blank', fixture.url);
  };
  const blank = { response_type: '', state: '', code_challenge: '', code_challenge_method: '' };
  assert.equal((await ask(blank)).pathname, '/ui/sign-in', 'it is a good request');
  const refused = await ask({ ...blank, scope: 'nothing' });
  assert.equal(refused.searchParams.get('error'), 'invalid_scope');
  assert(!refused.searchParams.has('state'));
});

test('a secret in the query of an authorization request is refused, and not redirected', async () => {
  const { clientId, clientSecret = '' } = confidential;
  const fields = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user', state: 's' };
  for (const [name, secret] of [
    ['client_secret', clientSecret],
    ['code_verifier', verifier],
  ] as const) {
    const ask = (changed: Record<string, string>) =>
      fixture.fetch(fixture.authorizeUrl({ ...fields, ...changed, [name]: secret }));
    const back = new URL((await ask({})).headers.get('location') ?? 'about:blank');
    assert.equal(`${back.origin}${back.pathname}`, fixture.callback);
    assert.deepEqual(
      [back.searchParams.get('error'), back.searchParams.get('state')],
      ['invalid_request', 's'],
    );
    assert(!back.href.includes(secret), back.href);
    const implicit = (await ask({ response_type: 'token' })).headers.get('location') ?? '';
    assert.match(implicit, /#error=invalid_request&/);
    assert(!implicit.includes(secret), implicit);
    for (const nowhere of [{ client_id: 'nobody' }, { redirect_uri: 'https://evil.example/' }]) {
      const page = await ask(nowhere);
      assert.deepEqual([page.status, page.headers.get('location')], [400, null]);
      assert(!(await page.text()).includes(secret));
    }
    assert(!fixture.logged.some(line => line.includes(secret)), 'nor into the log');
  }
});

test('an empty field of a token request counts as missing', async () => {
  for (const [field, status, code] of [
    ['grant_type', 400, 'invalid_request'],
    ['code', 400, 'invalid_grant'],
    ['redirect_uri', 400, 'invalid_grant'],
    ['client_id', 401, 'invalid_client'],
    ['client_secret', 401, 'invalid_client'],
  ] as const) {
    const answer = await redeem({ ...shown(), code: codeFor(confidential, null), [field]: '' });
    assert.deepEqual([answer.status, answer.json.error], [status, code], field);
  }
  const granted = await redeem({ ...shown(), code: codeFor(confidential, null), code_verifier: '' });
  assert.equal(granted.status, 200);
});

test('a public client can send an empty secret, in the body or with Basic, but no other', async () => {
  const proven = () => ({ code: codeFor(open, challenge), code_verifier: verifier });
  const inBody = await redeem({ ...proven(), client_id: open.clientId, client_secret: '' });
  assert.equal(inBody.status, 200);
  assert.equal((await redeem(proven(), basic(open.clientId, ''))).status, 200);
  const wrong = await redeem({ ...proven(), client_id: open.clientId, client_secret: 'x' });
  assert.deepEqual([wrong.status, wrong.json.error], [401, 'invalid_client']);
  const confidentialWithout = await redeem({ code: 'x' }, basic(confidential.clientId, ''));
  assert.deepEqual([confidentialWithout.status, confidentialWithout.json.error], [401, 'invalid_client']);
});

test('the command line is an application that nobody owns, whose access can be revoked like any other', async () => {
  const { owner, admin } = fixture.people;
  const { cookie, csrf } = visitorFor(fixture, owner);
  const headers = { cookie, origin: fixture.url };
  const post = (path: string, fields: Record<string, string>) =>
    fixture.fetch(path, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ csrf, ...fields }),
    });
  const tokens: string[] = [];
  for (const redirect_uri of [
    'http://127.0.0.1:1/signed-in',
    'http://127.0.0.1:65535/signed-in',
    'http://[::1]:50001/signed-in',
  ]) {
    const request = fixture.authorizeUrl({
      client_id: 'assay-cli',
      redirect_uri,
      scope: scopes.join(' '),
      state: 's',
      code_challenge: challenge,
      code_challenge_method: 'S256',
    });
    const page = await fixture.fetch(request, { headers });
    assert.match(await page.text(), /Assay on the command line<\/strong>, included with this server/);
    const approved = await post('/oauth2/authorize', {
      decision: 'approve',
      request: request.slice(request.indexOf('?')),
    });
    const back = new URL(approved.headers.get('location') ?? '');
    assert.equal(`${back.origin}${back.pathname}`, redirect_uri);
    const code = back.searchParams.get('code') ?? '';
    const redeemed = await redeem({ client_id: 'assay-cli', redirect_uri, code, code_verifier: verifier });
    assert.equal(redeemed.status, 200);
    tokens.push((redeemed.json as { access_token: string }).access_token);
  }
  const whoami = async (one: string | undefined) =>
    (await fixture.client.get('/whoami', `Bearer ${one}`)).status;
  assert.equal(await whoami(tokens[0]), 200);

  const listed = listTokens(fixture.db, owner.account.id).filter(
    ({ application }) => application.clientId === 'assay-cli',
  );
  assert.equal(listed.length, 3);
  assert.match(
    await (await fixture.fetch('/ui/applications', { headers })).text(),
    /Assay on the command line/,
  );
  const { id } = listed[0]?.application ?? assert.fail();
  for (const { account } of [owner, admin])
    assert.deepEqual(findOwnApplication(fixture.db, account.id, id), undefined);
  for (const action of ['delete', 'secret'])
    assert.equal((await post(`/ui/applications/${id}/${action}`, {})).status, 404);
  const newest = listed[0]?.token.id;
  assert.equal((await post(`/ui/applications/tokens/${newest}/revoke`, {})).status, 303);
  assert.deepEqual([await whoami(tokens[2]), await whoami(tokens[1])], [401, 200]);
  const revoked = await fixture.fetch('/oauth2/revoke', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ client_id: 'assay-cli', token: tokens[1] ?? '' }),
  });
  assert.equal(revoked.status, 200);
  assert.deepEqual([await whoami(tokens[1]), await whoami(tokens[0])], [401, 200]);
  await resetAccount(fixture.db, owner.account);
  assert.equal(await whoami(tokens[0]), 401, 'a reset of the account ends it');
});

test('every response has a request ID; that of a defect leads to its cause in the log', async () => {
  assert((await redeem({})).requestId);
  const code = codeFor(confidential, null);
  fixture.db.sqlite.exec('ALTER TABLE authorization_codes RENAME TO mislaid');
  const answer = await redeem({ ...shown(), code });
  fixture.db.sqlite.exec('ALTER TABLE mislaid RENAME TO authorization_codes');
  assert.deepEqual([answer.status, answer.json], [500, { error: { generic: [] } }]);
  const line = fixture.logged.find(one => one.includes(answer.requestId ?? '-'));
  assert(line?.includes('authorization_codes'), line ?? 'nothing was logged');
});

type Described = {
  description: string;
  $ref?: string;
  headers?: Record<string, unknown>;
  content?: Record<string, { schema: object }>;
};
type Operation = {
  parameters: { name: string }[];
  requestBody?: { content: Record<string, { schema: { properties: object } }> };
  responses: Record<string, Described>;
};

test('every response of the OAuth endpoints matches the OpenAPI document', async () => {
  const document = (await (await fixture.fetch('/openapi.json')).json()) as {
    paths: Record<string, Record<string, Operation>>;
    components: { responses: Record<string, Described> };
  };
  const ajv = new Ajv2020({ strict: false });
  formats.default(ajv);
  ajv.addSchema({ ...document, $id: 'assay' });
  const ask = async (
    method: 'GET' | 'POST',
    url: string,
    form?: Record<string, string>,
    headers: Record<string, string> = {},
  ) => {
    const answer = await fixture.fetch(url, {
      method,
      headers: { ...(form && { 'content-type': 'application/x-www-form-urlencoded' }), ...headers },
      ...(form && { body: new URLSearchParams(form) }),
    });
    const operation = document.paths[url.split('?')[0] ?? '']?.[method.toLowerCase()];
    assert(operation, `${method} ${url}`);
    const taken = Object.keys(
      operation.requestBody?.content['application/x-www-form-urlencoded']?.schema.properties ?? {},
    );
    for (const name of Object.keys(form ?? {})) assert(taken.includes(name), `${url} takes ${name}`);
    const output = operation.responses[answer.status];
    const response = output?.$ref
      ? document.components.responses[output.$ref.split('/').at(-1) ?? '']
      : output;
    assert(response, `${url} answered ${answer.status}, which is not in the document`);
    const body = await answer.text();
    const type = answer.headers.get('content-type')?.split(';')[0];
    if (type === undefined) {
      assert.equal(body, '');
      assert.equal(response.content, undefined);
      assert(response.headers?.Location && answer.headers.has('location'));
    } else {
      const media = response.content?.[type];
      assert(media, `${url} answered ${answer.status} ${type}`);
      const schema = JSON.parse(JSON.stringify(media.schema).replaceAll('"#/', '"assay#/'));
      const value = type === 'application/json' ? JSON.parse(body) : body;
      assert(ajv.validate(schema, value), `${url} ${body.slice(0, 200)}: ${ajv.errorsText()}`);
    }
    return answer.status;
  };
  const { clientId } = confidential;
  const right = { client_id: clientId, redirect_uri: fixture.callback, scope: 'user' };
  assert.equal(await ask('GET', fixture.authorizeUrl(right)), 303);
  assert.equal(await ask('GET', fixture.authorizeUrl({ ...right, scope: 'nothing' })), 303);
  assert.equal(await ask('GET', fixture.authorizeUrl({ ...right, client_id: 'nobody' })), 400);
  const { account } = fixture.people.owner;
  const cookie = `__Host-assay-session=${createSession(fixture.db, account.id)}`;
  assert.equal(await ask('GET', fixture.authorizeUrl(right), undefined, { cookie }), 200);
  updateAccount(fixture.db, account.id, { standing: 'suspended' });
  assert.equal(await ask('GET', fixture.authorizeUrl(right), undefined, { cookie }), 403);
  updateAccount(fixture.db, account.id, { standing: 'active' });

  const token = '/oauth2/access_token';
  const grant = { grant_type: 'authorization_code', redirect_uri: fixture.callback };
  const code = codeFor(confidential, null);
  assert.equal(await ask('POST', token, { ...grant, ...shown(), code }), 200);
  assert.equal(await ask('POST', token, { ...grant, ...shown(), code }), 400);
  assert.equal(await ask('POST', token, { ...shown(), grant_type: 'password' }), 400);
  assert.equal(await ask('POST', token, {}), 401);
  assert.equal(await ask('POST', token, {}, { authorization: basic(clientId, 'x') }), 401);
  assert.equal(await ask('POST', '/oauth2/revoke', { ...shown(), token: 'x' }), 200);
  assert.equal(await ask('POST', '/oauth2/revoke', shown()), 400);
  assert.equal(await ask('POST', '/oauth2/revoke', { token: 'x' }), 401);
  assert.equal(await ask('GET', '/.well-known/oauth-authorization-server'), 200);
  assert.deepEqual(document.paths['/oauth2/authorize']?.get?.parameters.map(({ name }) => name).sort(), [
    'client_id',
    'code_challenge',
    'code_challenge_method',
    'redirect_uri',
    'response_type',
    'scope',
    'state',
  ]);
  fixture.db.sqlite.exec('ALTER TABLE applications RENAME TO mislaid');
  const broken = [
    await ask('GET', fixture.authorizeUrl(right)),
    await ask('POST', token, { ...grant, ...shown(), code }),
    await ask('POST', '/oauth2/revoke', { ...shown(), token: 'x' }),
  ];
  fixture.db.sqlite.exec('ALTER TABLE mislaid RENAME TO applications');
  assert.deepEqual(broken, [500, 500, 500]);
});
