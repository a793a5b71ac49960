// Signatures of webhooks, compared with a public implementation of Standard Webhooks.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { newSigningSecret, sign } from '../../../src/domain/webhook/signature.ts';

const body = JSON.stringify({ type: 'build.finished', id: 1, note: 'ä😀\n' });

test('a public implementation of Standard Webhooks verifies the signature', () => {
  const secret = newSigningSecret();
  const id = '9007199254740993123';
  const timestamp = Math.floor(Date.now() / 1_000);
  const headers = {
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': sign({ id, timestamp, body, secret }),
  };
  assert.deepEqual(new Webhook(secret).verify(body, headers), JSON.parse(body));
  assert.throws(() => new Webhook(secret).verify(`${body} `, headers));
  assert.throws(() => new Webhook(secret).verify(body, { ...headers, 'webhook-id': '1' }));
  assert.throws(() => new Webhook(newSigningSecret()).verify(body, headers));
});

test('bytes and text of the same body have the same signature, equal to that of a public implementation', () => {
  const secret = newSigningSecret();
  const at = new Date(1_700_000_000_000);
  const expected = new Webhook(secret).sign('msg_1', at, body);
  assert.equal(sign({ id: 'msg_1', timestamp: 1_700_000_000, body, secret }), expected);
  assert.equal(sign({ id: 'msg_1', timestamp: 1_700_000_000, body: Buffer.from(body), secret }), expected);
});

test('a secret has 256 random bits after its prefix', () => {
  const secret = newSigningSecret();
  assert.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  assert.notEqual(secret, newSigningSecret());
});
