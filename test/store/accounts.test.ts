// Sessions and sign-in links: how long they last, and what ends them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Account,
  claimSignInLink,
  createAccount,
  createSession,
  createSignInLink,
  findAccount,
  findSession,
  findSignInLink,
  setPassword,
} from '../../src/store/accounts.ts';
import {
  createApplication,
  createAuthorizationCode,
  createToken,
  findAuthorizationCode,
  findToken,
} from '../../src/store/applications.ts';
import { changeAccount } from '../../src/store/registration.ts';
import { addAccount, openFixture } from './fixture.ts';

const DAY_MS = 24 * 3600_000;

test('a sign-in link works for a week, once', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const { id } = addAccount(db);
  const link = createSignInLink(db, id);
  now.ms += 7 * DAY_MS - 1;
  assert.equal(findSignInLink(db, link)?.id, id);
  now.ms += 1;
  assert.equal(findSignInLink(db, link), undefined);
  const next = createSignInLink(db, id);
  assert.equal(claimSignInLink(db, next)?.id, id);
  assert.equal(claimSignInLink(db, next), undefined);
});

test('a newer sign-in link ends the older ones of the account and removes expired ones of others', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const [one, other] = [addAccount(db), addAccount(db)];
  const older = createSignInLink(db, one.id);
  const others = createSignInLink(db, other.id);
  const newer = createSignInLink(db, one.id);
  assert.deepEqual(
    [older, newer, others].map(link => findSignInLink(db, link)?.id),
    [undefined, one.id, other.id],
  );
  now.ms += 7 * DAY_MS;
  createSignInLink(db, one.id);
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM sign_in_links').pluck().get(), 1n);
});

test('setting a password ends the links, sessions, OAuth tokens and codes of only that account', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [one, other] = [addAccount(db), addAccount(db)];
  const { application } = createApplication(db, {
    ownerId: other.id,
    name: 'Chat',
    redirectUri: 'https://chat.example.org/back',
    isPublic: false,
  });
  const enter = ({ id: accountId }: Account) => {
    const grant = { accountId, applicationId: application.id, scopes: ['user'] };
    return {
      link: createSignInLink(db, accountId),
      session: createSession(db, accountId),
      token: createToken(db, grant).token,
      code: createAuthorizationCode(db, {
        ...grant,
        redirectUri: application.redirectUri,
        codeChallenge: null,
        lifetimeMs: DAY_MS,
      }),
    };
  };
  const working = ({ link, session, token, code }: ReturnType<typeof enter>) => [
    findSignInLink(db, link) !== undefined,
    findSession(db, session) !== undefined,
    findToken(db, token) !== undefined,
    findAuthorizationCode(db, code) !== undefined,
  ];
  const [ones, others] = [enter(one), enter(other)];
  setPassword(db, one.id, 'a hash');
  assert.deepEqual(working(ones), [false, false, false, false]);
  assert.deepEqual(working(others), [true, true, true, true]);
  assert.equal(findAccount(db, one.id)?.passwordHash, 'a hash');
});

test('no sign-in link works for an account that has a password', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { id } = addAccount(db);
  setPassword(db, id, 'a hash');
  const link = createSignInLink(db, id);
  assert.equal(findSignInLink(db, link), undefined);
  assert.equal(claimSignInLink(db, link), undefined);
});

for (const [promotion, change] of [
  ['an administrator', { admin: true }],
  ['a user', { kind: 'user' }],
] as const)
  test(`making an invited account ${promotion} ends its link and the invitation`, () => {
    using fixture = openFixture();
    const { db } = fixture;
    const invitedById = addAccount(db).id;
    const invited = createAccount(db, {
      email: 'invited@example.com',
      kind: 'collaborator',
      admin: false,
      passwordHash: null,
      apiKey: null,
      invitedById,
    });
    const link = createSignInLink(db, invited.id);
    changeAccount(db, invited, { standing: 'active', admin: false, kind: 'collaborator' });
    assert.equal(findSignInLink(db, link)?.invitedById, invitedById);
    changeAccount(db, invited, change);
    assert.equal(findSignInLink(db, link), undefined);
    assert.equal(findAccount(db, invited.id)?.invitedById, null);
  });

test('a session lasts thirty days, and the next one removes those that ended', () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  const { id } = addAccount(db);
  const token = createSession(db, id);
  now.ms += 30 * DAY_MS - 1;
  assert.equal(findSession(db, token)?.id, id);
  now.ms += 1;
  assert.equal(findSession(db, token), undefined);
  createSession(db, id);
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM sessions').pluck().get(), 1n);
});
