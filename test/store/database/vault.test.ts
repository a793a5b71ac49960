// The vault: an encrypted value can be decrypted only unchanged, in its own cell and with its key, and is not readable
// on disk.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { keyComment, withComment } from '../../../src/domain/ssh-key.ts';
import { type Cell, createVault } from '../../../src/store/database/vault.ts';
import { createNotification, signingSecretOf } from '../../../src/store/notifications.ts';
import { findProject, privateKeyOf, publicKeyOf } from '../../../src/store/projects.ts';
import { createVariable, listAllVariables, updateVariable } from '../../../src/store/suites.ts';
import { addProject, addSuite, keyPair, openFixture } from '../fixture.ts';

const key = Buffer.alloc(32, 1);
const vault = createVault(key);
const cell: Cell = { table: 'projects', column: 'ssh_private_key', row: 1n };

for (const plain of ['', 'x', 'a'.repeat(16), 'ä€𝄞', 'line\nline\0line', 'long'.repeat(100_000)])
  test(`${JSON.stringify(plain.slice(0, 12))} is decrypted unchanged`, () => {
    assert.equal(vault.open(vault.seal(plain, cell), cell), plain);
  });

test('the same value is encrypted differently each time', () => {
  assert.notDeepEqual(vault.seal('same', cell), vault.seal('same', cell));
});

test('a change of any single byte is detected', () => {
  const sealed = vault.seal('a secret of some length', cell);
  for (let at = 0; at < sealed.length; at += 1) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] as number) ^ 1;
    assert.throws(() => vault.open(changed, cell), /was changed or moved/, `byte ${at}`);
  }
});

test('a value that is truncated, empty or too long is detected', () => {
  const sealed = vault.seal('a secret', cell);
  for (let length = 0; length < sealed.length; length += 1)
    assert.throws(() => vault.open(sealed.subarray(0, length), cell), /was changed or moved/);
  assert.throws(() => vault.open(Buffer.concat([sealed, Buffer.alloc(1)]), cell), /was changed or moved/);
});

const moved: Record<string, Cell> = {
  'another table': { ...cell, table: 'suites' },
  'another column': { ...cell, column: 'ssh_public_key' },
  'another row': { ...cell, row: 2n },
  'a cell that spells alike': { table: 'projects\0ssh_private_key', column: '', row: 1n },
};
for (const [where, other] of Object.entries(moved))
  test(`a value that was moved to ${where} is detected`, () => {
    const sealed = vault.seal('a secret', cell);
    assert.throws(() => vault.open(sealed, other), /was changed or moved/);
  });

test('another key decrypts nothing, and the error reveals nothing', () => {
  const sealed = vault.seal('a secret', cell);
  assert.throws(
    () => createVault(Buffer.alloc(32, 2)).open(sealed, cell),
    (error: Error) => /was changed or moved/.test(error.message) && !error.message.includes('a secret'),
  );
});

test('a key of another length is refused', () => {
  for (const length of [0, 16, 31, 33])
    assert.throws(() => createVault(Buffer.alloc(length)), /must have 32 bytes/);
});

test('keys, variables and signing secrets are read back from the database, and none is readable in its files', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  const variable = createVariable(db, suite.id, 'TOKEN', 'plain-variable-content');
  updateVariable(db, variable.id, { name: undefined, content: 'changed-variable-content' });
  const notification = createNotification(db, {
    projectId: project.id,
    name: 'n',
    notifiableType: 'build',
    url: 'https://example.com',
    signingSecret: 'whsec_plain-signing-secret',
  });
  assert.equal(publicKeyOf(db, project), withComment(keyPair.publicKey, keyComment(project, '')));
  assert.equal(privateKeyOf(db, project), keyPair.privateKey);
  assert.deepEqual(listAllVariables(db, suite.id), [
    { id: variable.id, name: 'TOKEN', content: 'changed-variable-content' },
  ]);
  assert.equal(signingSecretOf(db, notification), 'whsec_plain-signing-secret');

  const inWal = readFileSync(`${fixture.path}-wal`);
  db.sqlite.pragma('wal_checkpoint(TRUNCATE)');
  const everything = Buffer.concat([inWal, readFileSync(fixture.path)]);
  assert.ok(everything.includes('TOKEN'), 'names are readable, so the search does find');
  for (const secret of [
    'plain-variable-content',
    'changed-variable-content',
    'plain-signing-secret',
    keyPair.privateKey,
    keyPair.publicKey,
  ])
    assert.ok(!everything.includes(secret), secret);
});

test('a value that was swapped between two rows fails for both, even if it was read before', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [one, other] = [addProject(db), addProject(db)];
  publicKeyOf(db, one);
  db.write(() =>
    db.sqlite
      .prepare('UPDATE projects SET ssh_public_key = ?, ssh_private_key = ? WHERE id = ?')
      .run(
        other.sshPublicKey,
        db.sqlite.prepare('SELECT ssh_private_key FROM projects WHERE id = ?').pluck().get(other.id),
        one.id,
      ),
  );
  const swapped = findProject(db, one.id);
  assert.ok(swapped);
  assert.throws(() => publicKeyOf(db, swapped), /was changed or moved/);
  assert.throws(() => privateKeyOf(db, swapped), /was changed or moved/);
  assert.equal(publicKeyOf(db, other), withComment(keyPair.publicKey, keyComment(other, '')));
});
