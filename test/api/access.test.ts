// Access and scopes: calls every endpoint as every kind of caller.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { endpoints } from '../../src/api/endpoints.ts';
import type { Scope } from '../../src/domain/access.ts';
import { allScopes, bootApp, hookSecretOf, type Person, type Planted, type TestApp } from '../support/app.ts';
import { type Answer, basic, errors } from '../support/client.ts';
import { contract, ofRow, pathOf, type Row } from './contract.ts';
import { compileAll, makeInvited } from './states.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

const unauthorized = { status: 401, body: errors('generic', 'unauthorized') };
const suspended = { status: 401, body: errors('generic', 'account_suspended') };
const unpaid = { status: 402, body: errors('generic', 'payment_required') };
const notFound = { status: 404, body: errors('generic', 'not_found') };
type Expected = { status: number; body?: unknown };
type Caller =
  | 'nobody'
  | 'wrong key'
  | 'owner'
  | 'collaborator'
  | 'stranger'
  | 'collaborator-kind account'
  | 'suspended'
  | 'unpaid'
  | 'unpaid as a collaborator';

/** The expected response for each caller, by access rule. `yes` is the success of the row. */
const verdicts: Record<Row['who'], Record<Caller, Expected | 'yes'>> = {
  none: everyone('yes'),
  // All callers of these tests are on loopback.
  loopback: everyone('yes'),
  'signed in': {
    ...everyone('yes'),
    nobody: unauthorized,
    'wrong key': unauthorized,
    suspended,
  },
  users: {
    ...everyone('yes'),
    nobody: unauthorized,
    'wrong key': unauthorized,
    'collaborator-kind account': unauthorized,
    suspended,
    unpaid,
    'unpaid as a collaborator': unpaid,
  },
  both: {
    ...everyone('yes'),
    nobody: unauthorized,
    'wrong key': unauthorized,
    stranger: notFound,
    suspended,
    unpaid,
  },
  owner: {
    ...everyone(unauthorized),
    owner: 'yes',
    stranger: notFound,
    suspended,
    unpaid,
  },
  sees: {
    ...everyone(notFound),
    nobody: unauthorized,
    'wrong key': unauthorized,
    owner: 'yes',
    suspended,
    unpaid,
  },
  dependency: {
    ...everyone(notFound),
    nobody: unauthorized,
    'wrong key': unauthorized,
    owner: 'yes',
    suspended,
    unpaid,
  },
};

function everyone(expected: Expected | 'yes'): Record<Caller, Expected | 'yes'> {
  return {
    nobody: expected,
    'wrong key': expected,
    owner: expected,
    collaborator: expected,
    stranger: expected,
    'collaborator-kind account': expected,
    suspended: expected,
    unpaid: expected,
    'unpaid as a collaborator': expected,
  };
}

function credentials(caller: Caller): string | undefined {
  const { people } = app;
  switch (caller) {
    case 'nobody':
      return undefined;
    case 'wrong key':
      return basic(people.owner.account.email, people.stranger.key);
    case 'collaborator-kind account':
      return people.guest.as;
    case 'unpaid as a collaborator':
      return people.unpaid.as;
    default:
      return people[caller].as;
  }
}

/** Records that no row changes are created once for each owner. */
const kept = new Map<Person, Planted>();

function keep(owner: Person): Planted {
  const planted = kept.get(owner) ?? app.plant(owner);
  kept.set(owner, planted);
  return planted;
}

/** A record on which the row can succeed. */
function prepare(row: Row, owner: Person): Planted {
  const planted = row.method === 'GET' ? keep(owner) : app.plant(owner);
  if (/\/(share|compile|files|artifact)$/.test(row.path)) compileAll(app.db, planted.free_dependency_id);
  if (row.path.endsWith('/invitation')) makeInvited(app.db, planted.collaborator_id, owner.account.id);
  if (row.path.endsWith('badge.svg'))
    app.db.write(() =>
      app.db.sqlite.prepare('UPDATE projects SET badge = 1 WHERE id = ?').run(planted.project_id),
    );
  return planted;
}

function call(row: Row, planted: Planted, as: string | undefined): Promise<Answer> {
  return app.client.call(row.method, pathOf(row, planted), {
    as,
    ...(row.form && { form: row.form(planted) }),
    ...(row.archive && { body: row.archive }),
    ...(row.hook && { headers: { 'x-assay-token': hookSecretOf(app.db, planted) } }),
  });
}

function expect(answer: Answer, row: Row, expected: Expected | 'yes'): void {
  if (expected === 'yes') {
    assert.equal(answer.status, row.status, answer.text);
    return;
  }
  assert.equal(answer.status, expected.status, answer.text);
  assert.deepEqual(answer.json, expected.body);
}

test('the program has exactly the endpoints of the contract', () => {
  assert.deepEqual(
    endpoints.map(({ method, path }) => `${method} ${path}`).sort(),
    contract.map(ofRow).sort(),
  );
});

describe('each endpoint answers each caller as the contract says', () => {
  for (const row of contract)
    test(ofRow(row), async () => {
      let planted: Partial<Record<'unpaid' | 'owner', Planted>> = {};
      for (const [caller, expected] of Object.entries(verdicts[row.who]) as [Caller, Expected | 'yes'][]) {
        const owner = caller === 'unpaid' ? 'unpaid' : 'owner';
        const there = planted[owner] ?? prepare(row, app.people[owner]);
        planted[owner] = there;
        const before = app.changes();
        const answer = await call(row, there, credentials(caller));
        try {
          expect(answer, row, expected);
          if (expected !== 'yes') assert.equal(app.changes(), before, 'something changed');
        } catch (error) {
          throw new Error(`${caller}: ${(error as Error).message}`, { cause: error });
        }
        if (expected === 'yes' && row.method !== 'GET') planted = {};
      }
    });
});

describe('a token gives access to the endpoints of its scopes and nothing else', () => {
  for (const row of contract)
    test(ofRow(row), async () => {
      const { scope } = row;
      const owner = app.people.owner;
      const planted = prepare(row, owner);
      if (scope === undefined) {
        expect(await call(row, planted, app.token(owner, 'user')), row, 'yes');
        return;
      }
      const others = allScopes.filter(one => one !== scope);
      const wrong: Scope[][] = [...others.map(one => [one]), others, []];
      const answers = await Promise.all(
        wrong.map(granted => call(row, planted, app.token(owner, ...granted))),
      );
      for (const answer of answers) expect(answer, row, unauthorized);
      expect(await call(row, planted, app.token(owner, scope)), row, 'yes');
    });
});

describe('an unknown record is not found', () => {
  const strange = [
    '0',
    '1',
    '9223372036854775807',
    '9223372036854775808',
    '-1',
    '1.0',
    '0x1',
    'abc',
    '%20',
    '1%00',
    "1'--",
    '%EF%BC%91',
    '%E0%A4%A',
    '__proto__',
  ];
  for (const row of contract.filter(row => row.path.includes(':') && row.who !== 'none'))
    test(ofRow(row), async () => {
      const planted = keep(app.people.owner);
      const other = keep(app.people.collaborator);
      const before = app.changes();
      const names = [...row.path.matchAll(/:(\w+)/g)].map(match => match[1] as string);
      for (const name of names)
        for (const id of strange) {
          const path = pathOf({ ...row, path: row.path.replace(`:${name}`, id) }, planted);
          const answer = await app.client.call(row.method, path, {
            as: app.people.owner.as,
            ...(row.form && { form: row.form(planted) }),
          });
          assert.deepEqual([answer.status, answer.json], [404, notFound.body], path);
        }
      // A record of the other project is not found in this one.
      if (names.length > 1 && names[0] === 'project_id') {
        const path = pathOf(
          { ...row, path: row.path.replace(':project_id', String(planted.project_id)) },
          other,
        );
        const answer = await app.client.call(row.method, path, {
          as: app.people.owner.as,
          ...(row.form && { form: row.form(other) }),
        });
        assert.deepEqual([answer.status, answer.json], [404, notFound.body], path);
      }
      assert.equal(app.changes(), before);
    });
});
