// Standing, scopes, access and payment as tables. Their order in a request is tested in test/api.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Access,
  type AccountKind,
  admit,
  authorize,
  type Caller,
  type Standing,
  scopes,
  standingOf,
} from '../../src/domain/access.ts';
import { Refusal } from '../../src/domain/refusal.ts';

const NOW = 1_000_000;

const standings: [standing: Standing, trialEndsAt: number | null, effective: Standing][] = [
  ['active', null, 'active'],
  ['active', NOW + 1, 'active'],
  ['active', NOW, 'payment_required'],
  ['active', NOW - 1, 'payment_required'],
  ['payment_required', null, 'payment_required'],
  ['payment_required', NOW + 1, 'payment_required'],
  ['suspended', null, 'suspended'],
  ['suspended', NOW - 1, 'suspended'],
];
for (const [standing, trialEndsAt, effective] of standings)
  test(`an account set ${standing} with a trial that ends ${trialEndsAt === null ? 'never' : `${trialEndsAt - NOW} ms from now`} is ${effective}`, () => {
    assert.equal(standingOf({ standing, trialEndsAt }, NOW), effective);
  });

const caller = (changes: Partial<Caller> = {}): Caller => ({
  accountId: 1n,
  email: 'someone@example.com',
  kind: 'user',
  admin: false,
  standing: 'active',
  scopes: undefined,
  ...changes,
});

/** The error code of `act`, or 'ok'. */
function outcome(act: () => void): string {
  try {
    act();
    return 'ok';
  } catch (error) {
    assert.ok(error instanceof Refusal);
    return `${error.status} ${Object.values(error.errors).flat().join()}`;
  }
}

test('a suspended caller is refused before the scope is checked', () => {
  for (const scope of [...scopes, undefined])
    assert.equal(
      outcome(() => admit(caller({ standing: 'suspended', scopes: new Set() }), scope)),
      '401 account_suspended',
    );
});

test('an unpaid caller passes: the resource decides what it may do', () => {
  assert.equal(
    outcome(() => admit(caller({ standing: 'payment_required' }), 'projects')),
    'ok',
  );
});

test('Basic credentials have every scope', () => {
  for (const scope of scopes)
    assert.equal(
      outcome(() => admit(caller(), scope)),
      'ok',
    );
});

test('a token has exactly its scopes', () => {
  for (const granted of scopes)
    for (const wanted of scopes)
      assert.equal(
        outcome(() => admit(caller({ scopes: new Set([granted]) }), wanted)),
        granted === wanted ? 'ok' : '401 unauthorized',
        `${granted} for ${wanted}`,
      );
});

type Owner = 'self' | 'other' | 'nobody';
const ownerIds: Record<Owner, bigint | undefined> = { self: 1n, other: 2n, nobody: undefined };

const rules: [access: Access, kind: AccountKind, standing: Standing, owner: Owner, expected: string][] = [
  ['users', 'user', 'active', 'self', 'ok'],
  ['users', 'user', 'active', 'nobody', 'ok'],
  ['users', 'user', 'active', 'other', '401 unauthorized'],
  ['users', 'collaborator', 'active', 'self', '401 unauthorized'],
  ['users', 'collaborator', 'active', 'other', '401 unauthorized'],
  ['users', 'collaborator', 'active', 'nobody', '401 unauthorized'],
  ['users', 'user', 'payment_required', 'self', '402 payment_required'],
  ['users', 'user', 'payment_required', 'nobody', '402 payment_required'],
  ['users', 'user', 'payment_required', 'other', '401 unauthorized'],
  ['users', 'collaborator', 'payment_required', 'nobody', '401 unauthorized'],
  ['sees', 'user', 'active', 'self', 'ok'],
  ['sees', 'user', 'active', 'other', 'ok'],
  ['sees', 'collaborator', 'active', 'other', 'ok'],
  ['sees', 'user', 'payment_required', 'self', '402 payment_required'],
  ['sees', 'user', 'payment_required', 'other', 'ok'],
  ['sees', 'collaborator', 'payment_required', 'other', 'ok'],
  ['signed in', 'user', 'active', 'nobody', 'ok'],
  ['signed in', 'collaborator', 'active', 'nobody', 'ok'],
  ['signed in', 'user', 'payment_required', 'nobody', '402 payment_required'],
];
for (const [access, kind, standing, owner, expected] of rules)
  test(`${access}: a ${standing} ${kind}, owner ${owner}: ${expected}`, () => {
    const who = caller({ kind, standing });
    assert.equal(
      outcome(() => authorize(who, access, ownerIds[owner], 'refused')),
      expected,
    );
    assert.equal(
      outcome(() => authorize(who, access, ownerIds[owner], 'allowed')),
      expected === '402 payment_required' ? 'ok' : expected,
    );
  });
