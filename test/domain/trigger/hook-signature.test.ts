// Who is believed to have sent a hook.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { createHookVerifier, newHookSecret } from '../../../src/domain/trigger/hook-signature.ts';
import { type Envelope, forgeNames, forges, hashOf, postReceive, signed } from '../../support/forge-hooks.ts';

const secret = newHookSecret();
const other = newHookSecret();
const change = { ref: 'refs/heads/main', before: hashOf(1), after: hashOf(2) };
const now = () => Date.now();

function verify(hook: Envelope, secrets = [secret], at = now(), pieces = 11): boolean {
  const verifier = createHookVerifier(new Headers(hook.headers), secrets, at);
  const body = Buffer.from(hook.body);
  for (let start = 0; start < body.length; start += pieces)
    verifier?.update(body.subarray(start, start + pieces));
  return verifier?.verify() ?? false;
}

const hex = (key: string, text: string, algorithm = 'sha256') =>
  createHmac(algorithm, key).update(text).digest('hex');

for (const forge of forgeNames) {
  const hook = forges[forge].push('team/app', change, 'ada');
  test(`${forge}: the right secret verifies, as JSON and as a form, and another one does not`, () => {
    for (const form of [false, true]) {
      for (const pieces of [1, 7, 64, 100_000])
        assert.ok(verify(signed(forge, hook, secret, { form }), [secret], now(), pieces), `${pieces}`);
      assert.ok(!verify(signed(forge, hook, other, { form })));
      assert.ok(!verify(signed(forge, hook, '', { form })));
    }
  });

  test(`${forge}: after a rotation the old and the new secret verify, and no third one`, () => {
    for (const current of [secret, other]) assert.ok(verify(signed(forge, hook, current), [secret, other]));
    assert.ok(!verify(signed(forge, hook, newHookSecret()), [secret, other]));
    assert.ok(!verify(signed(forge, hook, secret), []));
    // An empty secret is no key that anybody could sign with.
    assert.ok(!verify(signed(forge, hook, ''), ['']));
  });

  if (forge !== 'gitlab')
    test(`${forge}: a body that was changed does not verify`, () => {
      for (const form of [false, true]) {
        const sent = signed(forge, hook, secret, { form });
        assert.ok(!verify({ ...sent, body: sent.body.replace('main', 'evil') }));
        assert.ok(!verify({ ...sent, body: `${sent.body} ` }));
        assert.ok(!verify({ ...sent, body: sent.body.slice(1) }));
        assert.ok(!verify({ ...sent, body: '' }));
      }
    });
}

test('the token of a post-receive hook verifies whatever the body is', () => {
  assert.ok(verify(postReceive([change], secret)));
  assert.ok(verify(postReceive([], secret)));
  for (const token of ['', other, secret.slice(0, -1), `${secret}x`, secret.toLowerCase(), 'whsec_'])
    assert.ok(!verify(postReceive([change], token)), token);
});

test('GitHub signs a form as it is sent, Gitea the JSON text inside: both verify under either header', () => {
  const hook = forges.github.push('team/app', change, 'ada');
  const form = `payload=${encodeURIComponent(hook.body)}`;
  for (const [header, prefix] of [
    ['x-hub-signature-256', 'sha256='],
    ['x-gitea-signature', ''],
    ['x-hub-signature', 'sha256='],
  ] as const)
    for (const text of [form, hook.body]) {
      const headers = { 'x-github-event': 'push', [header]: prefix + hex(secret, text) };
      assert.ok(verify({ headers, body: form }), header);
    }
});

test('the signature of an empty body is not that of a body which is no form', () => {
  const headers = { 'x-hub-signature-256': `sha256=${hex(secret, '')}` };
  assert.ok(verify({ headers, body: '' }));
  for (const text of ['{}', 'p', 'payloa', 'other=1&payload='])
    assert.ok(!verify({ headers, body: text }), text);
});

const body = '{"ref":"refs/heads/main"}';
const good = hex(secret, body);
const seconds = Math.floor(now() / 1_000);
const standard = (headers: Record<string, string>, signedAt = seconds) => ({
  'webhook-id': 'msg_1',
  'webhook-timestamp': String(signedAt),
  'webhook-signature': new Webhook(secret).sign('msg_1', new Date(signedAt * 1_000), body),
  ...headers,
});

const refused: Record<string, Record<string, string>> = {
  'no signature at all': {},
  'an unknown header': { 'x-signature': good },
  'an empty signature of GitHub': { 'x-hub-signature-256': '' },
  'the empty signature that Gitea sends without a secret': { 'x-hub-signature-256': 'sha256=' },
  'an empty signature of Gitea': { 'x-gitea-signature': '' },
  'an empty token': { 'x-gitlab-token': '' },
  'SHA-1 under its own name': { 'x-hub-signature': `sha1=${hex(secret, body, 'sha1')}` },
  'SHA-1 under the name of SHA-256': { 'x-hub-signature-256': `sha256=${hex(secret, body, 'sha1')}` },
  'no prefix where there must be one': { 'x-hub-signature-256': good },
  'a prefix where there must be none': { 'x-gitea-signature': `sha256=${good}` },
  'a signature that is cut': { 'x-hub-signature-256': `sha256=${good.slice(0, 62)}` },
  'a signature that is longer': { 'x-hub-signature-256': `sha256=${good}00` },
  'a signature with other characters': { 'x-hub-signature-256': `sha256=${good.slice(0, 63)}g` },
  'two signatures in one header': { 'x-hub-signature-256': `sha256=${good}, sha256=${good}` },
  'the signature of another body': { 'x-hub-signature-256': `sha256=${hex(secret, `${body} `)}` },
  'a bad signature beside a good weaker one': {
    'x-hub-signature-256': `sha256=${'0'.repeat(64)}`,
    'x-gitea-signature': good,
    'x-hub-signature': `sha256=${good}`,
    'x-gitlab-token': secret,
    'x-assay-token': secret,
  },
  'an empty signature beside a good token': { 'x-gitea-signature': '', 'x-assay-token': secret },
  'SHA-1 beside a good token': {
    'x-hub-signature': `sha1=${hex(secret, body, 'sha1')}`,
    'x-assay-token': secret,
  },
  'a stale timestamp beside a good signature of GitHub': {
    ...standard({}, seconds - 360),
    'x-hub-signature-256': `sha256=${good}`,
  },
  'a timestamp of 6 minutes ago': standard({}, seconds - 360),
  'a timestamp 6 minutes ahead': standard({}, seconds + 360),
  'another timestamp than was signed': standard({ 'webhook-timestamp': String(seconds - 1) }),
  'a timestamp that is no number': standard({ 'webhook-timestamp': `${seconds}.0` }),
  'no timestamp': standard({ 'webhook-timestamp': '' }),
  'no id': standard({ 'webhook-id': '' }),
  'another id than was signed': standard({ 'webhook-id': 'msg_2' }),
  'a signature of another version': standard({
    'webhook-signature': standard({})['webhook-signature'].replace('v1,', 'v2,'),
  }),
  'an empty Standard Webhooks signature': standard({ 'webhook-signature': '' }),
  'a version without a signature': standard({ 'webhook-signature': 'v1,' }),
  'a Standard Webhooks signature by the text of the secret': standard({
    'webhook-signature': `v1,${createHmac('sha256', secret).update(`msg_1.${seconds}.${body}`).digest('base64')}`,
  }),
};

for (const [name, headers] of Object.entries(refused))
  test(`a hook with ${name} is refused`, () => {
    assert.ok(!verify({ headers, body }));
  });

test('Standard Webhooks: 4 minutes of difference and a list with the right signature are accepted', () => {
  for (const skew of [-240, 0, 240]) assert.ok(verify({ headers: standard({}, seconds + skew), body }));
  const valid = standard({})['webhook-signature'];
  const wrong = `v1,${Buffer.alloc(32).toString('base64')}`;
  for (const list of [`${wrong} ${valid}`, `v1a,xyz ${valid} ${wrong}`])
    assert.ok(verify({ headers: standard({ 'webhook-signature': list }), body }));
});

test('a hook whose headers cannot verify is refused before its body is read', () => {
  const cases: [string, string][][] = [[], [['x-hub-signature-256', 'sha256=']], [['x-gitlab-token', other]]];
  for (const headers of cases)
    assert.equal(createHookVerifier(new Headers(headers), [secret], now()), undefined);
});

test('a secret has 256 random bits, in the form that Standard Webhooks demands', () => {
  assert.match(newHookSecret(), /^whsec_[A-Za-z0-9+/]{43}=$/);
  assert.notEqual(newHookSecret(), newHookSecret());
});
