// Attacks on OAuth: other redirect URIs, codes that are reused or stolen, missing challenges, hostile states, and
// consent without the user.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before } from 'node:test';
import { createApplication } from '../../src/store/applications.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { openWire, type Visitor, visitorFor, type Wire } from './wire.ts';

const REDIRECT = 'https://app.example/callback?kept=1';
const VERIFIER = 'v'.repeat(43);
const CHALLENGE = createHash('sha256').update(VERIFIER).digest('base64url');

let app: ServedApp;
let wire: Wire;
let visitor: Visitor;
type Client = { id: string; secret: string };
let client: Client;
let other: Client;
let open: Client;
before(async () => {
  app = await serveApp();
  wire = openWire(app);
  visitor = visitorFor(app, app.people.owner);
  const register = (name: string, isPublic = false): Client => {
    const { application, clientSecret } = app.db.write(() =>
      createApplication(app.db, {
        ownerId: app.people.admin.account.id,
        name,
        redirectUri: REDIRECT,
        isPublic,
      }),
    );
    return { id: application.clientId, secret: clientSecret ?? '' };
  };
  client = register('<b>Honest</b>');
  other = register('Other');
  open = register('Public', true);
});
after(async () => {
  wire.close();
  await app.close();
});

type Query = Record<string, string>;
const request = (changed: Query = {}): Query => ({
  client_id: client.id,
  redirect_uri: REDIRECT,
  scope: 'projects',
  state: 's',
  ...changed,
});
const authorize = (query: Query | string) =>
  wire.ask('GET', `/oauth2/authorize?${new URLSearchParams(query)}`, { headers: { cookie: visitor.cookie } });
const approve = (query: Query | string, changed: { csrf?: string; cookie?: string } = {}) =>
  wire.ask('POST', '/oauth2/authorize', {
    headers: {
      cookie: visitor.cookie,
      origin: wire.origin,
      ...(changed.cookie && { cookie: changed.cookie }),
    },
    form: {
      csrf: changed.csrf ?? visitor.csrf,
      request: `?${new URLSearchParams(query)}`,
      decision: 'approve',
    },
  });
async function codeFor(query: Query = request()): Promise<string> {
  const reply = await approve(query);
  const code = new URL(String(reply.headers.location)).searchParams.get('code');
  assert.ok(code, `${reply.status} ${reply.headers.location}`);
  return code;
}
const redeem = (changed: Record<string, string | undefined>) => {
  const fields = {
    grant_type: 'authorization_code',
    client_id: client.id,
    client_secret: client.secret,
    redirect_uri: REDIRECT,
    ...changed,
  };
  const form = Object.fromEntries(
    Object.entries(fields).filter((pair): pair is [string, string] => pair[1] !== undefined),
  );
  return wire.ask('POST', '/oauth2/access_token', { form });
};
const works = async (token: string) => (await app.client.get('/projects', `Bearer ${token}`)).status === 200;

const redirects = [
  'https://evil.example/',
  'https://app.example/callback',
  'https://app.example/callback?kept=1&x=y',
  'https://app.example/callback?kept=1#x',
  'https://app.example/callback?kept=2',
  'https://app.example/callback/?kept=1',
  'https://app.example/Callback?kept=1',
  'HTTPS://app.example/callback?kept=1',
  'https://APP.example/callback?kept=1',
  'http://app.example/callback?kept=1',
  'https://app.example:443/callback?kept=1',
  'https://app.example.evil.example/callback?kept=1',
  'https://app.example@evil.example/callback?kept=1',
  'https://evil.example/https://app.example/callback?kept=1',
  'https://app.example/callback%3fkept=1',
  'https://app.example/x/../callback?kept=1',
  'https://app.example\\@evil.example/callback?kept=1',
  'https://app.example/callback?kept=1%0d%0aX:y',
  'https://app.example/callback?kept=1 ',
  ' https://app.example/callback?kept=1',
  'https://app.example/callback?kept=1\n',
  '//app.example/callback?kept=1',
  'javascript:alert(1)//',
  'data:text/html,x',
  'urn:ietf:wg:oauth:2.0:oob',
  'urn:ietf:wg:oauth:2.0:oob:auto',
  '',
  'null',
  '/callback?kept=1',
];
attacks('a redirect URI that differs in one character is refused', redirects, async redirect_uri => {
  for (const response_type of ['code', 'token']) {
    const query = request({ redirect_uri, response_type });
    for (const reply of [await authorize(query), await approve(query)]) {
      assert.equal(reply.status, 400);
      assert.equal(reply.headers.location, undefined);
    }
  }
  const refused = JSON.parse((await redeem({ code: await codeFor(), redirect_uri })).text);
  assert.equal(refused.error, 'invalid_grant');
});

/** A request of the command line, whose redirect URI may have any port of this machine. */
const commandLine = (redirect_uri: string): Query =>
  request({
    client_id: 'assay-cli',
    redirect_uri,
    code_challenge: CHALLENGE,
    code_challenge_method: 'S256',
  });

attacks(
  'the command line gets its code on a port of this machine only',
  [
    'http://127.0.0.1:0/signed-in',
    'http://127.0.0.1:65536/signed-in',
    'http://127.0.0.1:99999/signed-in',
    'http://127.0.0.1:080/signed-in',
    'http://127.0.0.1:/signed-in',
    'http://127.0.0.1:-1/signed-in',
    'http://127.0.0.1:80 /signed-in',
    'http://127.0.0.1:4000/signed-in\n',
    'https://127.0.0.1:4000/signed-in',
    'http://127.0.0.2:4000/signed-in',
    'http://127.1:4000/signed-in',
    'http://2130706433:4000/signed-in',
    'http://0.0.0.0:4000/signed-in',
    'http://localhost:4000/signed-in',
    'http://[::]:4000/signed-in',
    'http://[::ffff:127.0.0.1]:4000/signed-in',
    'http://[0:0:0:0:0:0:0:1]:4000/signed-in',
    'http://evil.example:4000/signed-in',
    'http://127.0.0.1.evil.example:4000/signed-in',
    'http://127.0.0.1:4000@evil.example/signed-in',
    'http://x@127.0.0.1:4000/signed-in',
    'http://127.0.0.1:4000/',
    'http://127.0.0.1:4000/signed-in/',
    'http://127.0.0.1:4000/Signed-in',
    'http://127.0.0.1:4000/x/../signed-in',
    'http://127.0.0.1:4000/signed-in?x=y',
    'http://127.0.0.1:4000/signed-in#x',
    'http://127.0.0.1:4000/%73igned-in',
    'http://[::1]/signed-in',
    'urn:ietf:wg:oauth:2.0:oob',
    '',
  ],
  async redirect_uri => {
    for (const reply of [
      await authorize(commandLine(redirect_uri)),
      await approve(commandLine(redirect_uri)),
    ])
      assert.deepEqual([reply.status, reply.headers.location], [400, undefined]);
  },
);

attacks(
  'no other application gets its code on another port of this machine',
  ['http://127.0.0.1:4000/signed-in', 'http://[::1]:4000/signed-in', 'http://127.0.0.1/signed-in'],
  async redirect_uri => {
    for (const client_id of [client.id, open.id]) {
      const reply = await approve({ ...commandLine(redirect_uri), client_id });
      assert.deepEqual([reply.status, reply.headers.location], [400, undefined]);
    }
  },
);

attacks(
  'the command line must prove who started the sign-in',
  {
    'no challenge': { code_challenge: '' },
    'a plain challenge': { code_challenge_method: 'plain' },
    'the implicit flow': { response_type: 'token' },
  },
  async changed => {
    const reply = await approve({ ...commandLine('http://127.0.0.1:4000/signed-in'), ...changed });
    assert.match(String(reply.headers.location), /error=(invalid_request|unauthorized_client)/);
  },
);

attacks(
  'a code of the command line is for one port and one verifier',
  {
    'another port': { redirect_uri: 'http://127.0.0.1:4001/signed-in' },
    'the other loopback address': { redirect_uri: 'http://[::1]:4000/signed-in' },
    'the registered address': { redirect_uri: 'http://127.0.0.1/signed-in' },
    'another verifier': { code_verifier: 'w'.repeat(43) },
    'no verifier': { code_verifier: undefined },
  },
  async changed => {
    const redirect_uri = 'http://127.0.0.1:4000/signed-in';
    const code = await codeFor(commandLine(redirect_uri));
    const own = { client_id: 'assay-cli', client_secret: undefined, redirect_uri, code_verifier: VERIFIER };
    assert.equal(JSON.parse((await redeem({ ...own, code, ...changed })).text).error, 'invalid_grant');
    assert.equal((await redeem({ ...own, code })).status, 200, 'the right one still works');
  },
);

attacks(
  'duplicate parameters are refused',
  ['redirect_uri', 'client_id', 'scope', 'state', 'response_type', 'code_challenge'],
  async name => {
    const query = new URLSearchParams(request({ response_type: 'code', code_challenge: CHALLENGE }));
    query.append(name, name === 'redirect_uri' ? 'https://evil.example/' : 'x');
    const reply = await authorize(query.toString());
    assert.notEqual(reply.status, 200);
    if (reply.status === 303) {
      assert.match(
        String(reply.headers.location),
        /^https:\/\/app\.example\/callback\?kept=1&error=invalid_request/,
      );
    }
  },
);

const states = [
  '"><script>alert(1)</script>',
  '\r\nSet-Cookie: a=b',
  '#access_token=x',
  '&code=x',
  '%0d%0a',
  '../..',
  'javascript:alert(1)',
  '\u2028',
  '😀',
  '+ &=?/',
  'x'.repeat(2_000),
];
attacks('a state is returned unchanged, and breaks out of nothing', states, async state => {
  const shown = await authorize(request({ state }));
  assert.equal(shown.status, 200);
  assert.ok(!/<script>|<b>Honest/.test(shown.text), 'markup in the state');
  const location = new URL(String((await approve(request({ state }))).headers.location));
  assert.equal(location.origin, 'https://app.example');
  assert.deepEqual([...location.searchParams.keys()].sort(), ['code', 'kept', 'state']);
  assert.equal(location.searchParams.get('state'), state);
  assert.equal(location.hash, '');
  const implicit = await approve(request({ state, response_type: 'token' }));
  const fragment = new URLSearchParams(new URL(String(implicit.headers.location)).hash.slice(1));
  assert.deepEqual([...fragment.keys()].sort(), ['access_token', 'scope', 'state', 'token_type']);
  assert.equal(fragment.get('state'), state);
});

const thefts: Record<
  string,
  { code: () => Promise<string>; changed?: () => Record<string, string | undefined>; error: string }
> = {
  'without the secret': {
    code: () => codeFor(),
    changed: () => ({ client_secret: undefined }),
    error: 'invalid_client',
  },
  'with a wrong secret': {
    code: () => codeFor(),
    changed: () => ({ client_secret: other.secret }),
    error: 'invalid_client',
  },
  'with an empty secret': {
    code: () => codeFor(),
    changed: () => ({ client_secret: '' }),
    error: 'invalid_client',
  },
  'by another application': {
    code: () => codeFor(),
    changed: () => ({ client_id: other.id, client_secret: other.secret }),
    error: 'invalid_grant',
  },
  'by a public application': {
    code: () => codeFor(),
    changed: () => ({ client_id: open.id, client_secret: undefined }),
    error: 'invalid_grant',
  },
  'without a redirect URI': {
    code: () => codeFor(),
    changed: () => ({ redirect_uri: undefined }),
    error: 'invalid_grant',
  },
  'without the verifier of its challenge': {
    code: () => codeFor(request({ code_challenge: CHALLENGE, code_challenge_method: 'S256' })),
    error: 'invalid_grant',
  },
  'with the challenge as verifier': {
    code: () => codeFor(request({ code_challenge: CHALLENGE, code_challenge_method: 'S256' })),
    changed: () => ({ code_verifier: CHALLENGE }),
    error: 'invalid_grant',
  },
  'with a verifier although there was no challenge': {
    code: () => codeFor(),
    changed: () => ({ code_verifier: VERIFIER }),
    error: 'invalid_grant',
  },
  'with an empty verifier': {
    code: () => codeFor(request({ code_challenge: CHALLENGE, code_challenge_method: 'S256' })),
    changed: () => ({ code_verifier: '' }),
    error: 'invalid_grant',
  },
  'a guessed code': { code: async () => 'code_guessed', error: 'invalid_grant' },
  'an empty code': { code: async () => '', error: 'invalid_grant' },
  'a token instead of a code': {
    code: async () => app.token(app.people.owner, 'projects').slice('Bearer '.length),
    error: 'invalid_grant',
  },
  'another grant type': {
    code: () => codeFor(),
    changed: () => ({ grant_type: 'password' }),
    error: 'unsupported_grant_type',
  },
  'the client credentials grant': {
    code: () => codeFor(),
    changed: () => ({ grant_type: 'client_credentials' }),
    error: 'unsupported_grant_type',
  },
  'the refresh token grant': {
    code: () => codeFor(),
    changed: () => ({ grant_type: 'refresh_token' }),
    error: 'unsupported_grant_type',
  },
};
attacks('a code is refused', thefts, async ({ code, changed, error }) => {
  const secret = await code();
  const reply = await redeem({ code: secret, ...changed?.() });
  assert.equal(JSON.parse(reply.text).error, error, reply.text);
  assert.ok(reply.status === 400 || reply.status === 401);
  assert.equal(reply.headers['cache-control'], 'no-store');
});

const downgrades: Record<string, Query> = {
  'no challenge': {},
  'a plain challenge': { code_challenge: VERIFIER, code_challenge_method: 'plain' },
  'a challenge without a method': { code_challenge: CHALLENGE },
  'an empty challenge': { code_challenge: '', code_challenge_method: 'S256' },
  'a challenge that is too short': { code_challenge: 'abc', code_challenge_method: 'S256' },
  'a method in lower case': { code_challenge: CHALLENGE, code_challenge_method: 's256' },
  'a token in the fragment': {
    response_type: 'token',
    code_challenge: CHALLENGE,
    code_challenge_method: 'S256',
  },
};
attacks('a public application gets no token with', downgrades, async changed => {
  for (const reply of [
    await authorize(request({ client_id: open.id, ...changed })),
    await approve(request({ client_id: open.id, ...changed })),
  ]) {
    assert.equal(reply.status, 303);
    assert.match(String(reply.headers.location), /[?&#]error=(invalid_request|unauthorized_client)/);
    assert.doesNotMatch(String(reply.headers.location), /code=|access_token=/);
  }
});

const others: Record<string, () => Promise<void>> = {
  'a code that is used twice revokes its token': async () => {
    const code = await codeFor();
    const token = JSON.parse((await redeem({ code })).text).access_token as string;
    assert.equal(await works(token), true);
    assert.equal(JSON.parse((await redeem({ code })).text).error, 'invalid_grant');
    assert.equal(await works(token), false);
  },
  'of ten simultaneous uses of a code at most one succeeds, and its token is revoked': async () => {
    const code = await codeFor();
    const replies = await Promise.all(Array.from({ length: 10 }, () => redeem({ code })));
    const tokens = replies.flatMap(({ text }) => JSON.parse(text).access_token ?? []) as string[];
    assert.equal(tokens.length, 1);
    assert.equal(await works(tokens[0] as string), false);
  },
  'consent without the form’s token is refused': async () => {
    const reply = await approve(request(), { csrf: 'x' });
    assert.deepEqual([reply.status, reply.headers.location], [403, undefined]);
  },
  'consent without a signed-in user is refused': async () => {
    const reply = await approve(request(), { cookie: '__Host-assay-session=none' });
    assert.match(String(reply.headers.location), /^\/ui\/sign-in/);
  },
  'an unknown scope is not granted': async () => {
    for (const scope of ['admin', 'projects,admin', '*', '', 'PROJECTS', 'projects user root'])
      assert.match(String((await approve(request({ scope }))).headers.location), /error=invalid_scope/);
  },
  'a token grants nothing beyond its scope': async () => {
    const token = JSON.parse((await redeem({ code: await codeFor() })).text).access_token as string;
    for (const path of ['/whoami', '/dependencies'])
      assert.equal((await app.client.get(path, `Bearer ${token}`)).status, 401);
  },
  'secrets in the URL are refused': async () => {
    const code = await codeFor();
    const reply = await wire.ask('POST', `/oauth2/access_token?code=${code}&client_secret=${client.secret}`, {
      form: {},
    });
    assert.equal(JSON.parse(reply.text).error, 'invalid_request');
  },
  'an application cannot revoke a token of another one': async () => {
    const token = JSON.parse((await redeem({ code: await codeFor() })).text).access_token as string;
    const reply = await wire.ask('POST', '/oauth2/revoke', {
      form: { token, client_id: other.id, client_secret: other.secret },
    });
    assert.equal(reply.status, 200);
    assert.equal(await works(token), true);
  },
  'a token in two places is refused': async () => {
    const token = JSON.parse((await redeem({ code: await codeFor() })).text).access_token as string;
    assert.equal((await app.client.get(`/projects?oauth_token=${token}`, `Bearer ${token}`)).status, 401);
  },
  'a consent page cannot be framed, and can redirect only to the application': async () => {
    const policy = String((await authorize(request())).headers['content-security-policy']);
    assert.match(policy, /form-action 'self' https:\/\/app\.example;/);
    assert.match(policy, /frame-ancestors 'none'/);
  },
};
attacks('reused codes, forged consent and missing scopes', others, attack => attack());
