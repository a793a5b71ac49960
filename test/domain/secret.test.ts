// Secrets: how they are generated and hashed, and passwords.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import {
  digestOf,
  hashPassword,
  newReadableSecret,
  newSecret,
  sameDigest,
  verifyPassword,
} from '../../src/domain/secret.ts';

test('a secret has 256 random bits after its prefix, and is unique', () => {
  const secrets = new Set(Array.from({ length: 1000 }, () => newSecret('assay')));
  assert.equal(secrets.size, 1000);
  for (const secret of secrets) assert.match(secret, /^assay_[A-Za-z0-9_-]{43}$/);
});

for (const secret of ['', 'a', 'assay_x', 'pässwörd', '\u{1f511}'.repeat(50)])
  test(`the stored digest of ${JSON.stringify(secret.slice(0, 10))} is its SHA-256`, () => {
    assert.deepEqual(digestOf(secret), createHash('sha256').update(secret).digest());
  });

test('digests are equal only if every byte and the length are equal', () => {
  const digest = digestOf('a');
  assert.ok(sameDigest(digest, Buffer.from(digest)));
  assert.ok(!sameDigest(digest, digestOf('b')));
  assert.ok(!sameDigest(digest, digest.subarray(1)));
  assert.ok(!sameDigest(digest, Buffer.alloc(0)));
});

test('a readable secret comes in groups, of characters that are easy to tell apart', () => {
  assert.match(newReadableSecret(2), /^[a-z2-9]{4}-[a-z2-9]{4}$/);
  const many = Array.from({ length: 500 }, () => newReadableSecret(4, 5)).join('');
  assert.doesNotMatch(many, /[ilo01]/);
  // 10,000 draws from 31 characters: a missing one would reveal a biased generator.
  assert.equal(new Set(many.replaceAll('-', '')).size, 31);
});

test('a password is verified by its hash, and others are not', async () => {
  const hash = await hashPassword('correct horse');
  assert.ok(await verifyPassword('correct horse', hash));
  for (const wrong of ['', 'correct hors', 'correct horse ', 'Correct horse'])
    assert.ok(!(await verifyPassword(wrong, hash)), wrong);
});

test('the hash of a password is memory-hard, salted, and does not show it', async () => {
  const [one, other] = await Promise.all([hashPassword('secret-word'), hashPassword('secret-word')]);
  assert.notEqual(one, other);
  assert.ok(!one.includes('secret-word'));
  const [algorithm, memory] = one.split('$');
  assert.equal(algorithm, 'argon2id');
  assert.ok(Number(memory) >= 19_456, 'KiB, as OWASP asks');
});

test('a hash with other parameters is still verified by its own', async () => {
  const { argon2Sync } = await import('node:crypto');
  const nonce = Buffer.alloc(16, 1);
  const tag = argon2Sync('argon2id', {
    message: Buffer.from('old'),
    nonce,
    memory: 8192,
    passes: 1,
    parallelism: 1,
    tagLength: 16,
  });
  const hash = `argon2id$8192$1$1$${nonce.toString('base64url')}$${tag.toString('base64url')}`;
  assert.ok(await verifyPassword('old', hash));
  assert.ok(!(await verifyPassword('new', hash)));
});

for (const broken of ['', 'x', 'bcrypt$1$2$3$4$5', 'argon2id$19456$2$1'])
  test(`nothing is the password of the hash ${JSON.stringify(broken)}`, async () => {
    assert.equal(await verifyPassword('x', broken), false);
  });

test('many concurrent hashes leave threads for files: a file is read long before they finish', async () => {
  let done = 0;
  const hashes = Array.from({ length: 16 }, (_, at) => hashPassword(`password ${at}`).then(() => ++done));
  await readFile(import.meta.filename);
  assert.ok(done < 8, `${done} of 16 were done first`);
  assert.equal((await Promise.all(hashes)).length, 16);
});
