// Tokens of applications: found by their hash, with the time of their last use.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createApplication, createToken, findToken } from '../../src/store/applications.ts';
import { addAccount, openFixture } from './fixture.ts';

test('the use of a token is recorded, and works even if that cannot be written', () => {
  const now = { ms: Date.UTC(2026, 5, 1) };
  using fixture = openFixture(now);
  const { db } = fixture;
  const ownerId = addAccount(db).id;
  const { application } = createApplication(db, {
    ownerId,
    name: 'Reader',
    redirectUri: 'https://reader.example/',
    isPublic: false,
  });
  const { token } = createToken(db, { accountId: ownerId, applicationId: application.id, scopes: ['user'] });
  assert.equal(findToken(db, token)?.token.lastUsedAt, null);
  assert.equal(findToken(db, token)?.token.lastUsedAt, now.ms);
  const noted = now.ms;
  now.ms += 24 * 3600_000;
  // As on a full disk: every write fails.
  db.sqlite.pragma('query_only = ON');
  assert.equal(findToken(db, token)?.token.lastUsedAt, noted);
  assert.equal(findToken(db, token)?.account.id, ownerId);
  db.sqlite.pragma('query_only = OFF');
});
