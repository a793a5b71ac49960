// Accounts and applications have no API endpoint: the pages and the command line refuse the same values with the same
// texts.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { accountCommands } from '../../../src/cli/accounts.ts';
import { UsageError } from '../../../src/command/command.ts';
import { errorMessage } from '../../../src/contract/error-text.ts';
import { createSession, listAccounts } from '../../../src/store/accounts.ts';
import { listApplications } from '../../../src/store/applications.ts';
import { openData } from '../../../src/store/data/data.ts';
import { formTokenOf } from '../../attacks/wire.ts';
import { runAssay, temporaryDirectory } from '../../cli/program.ts';
import { type OAuthFixture, openOAuthFixture } from './oauth-fixture.ts';

const TAKEN = 'ada@example.org';
const LONG = 'x'.repeat(256);

describe('invalid accounts and applications', () => {
  let fixture: OAuthFixture;
  const place = temporaryDirectory();
  const data = join(place.path, 'data');
  let post: (path: string, form: Record<string, string>) => Promise<{ status: number; text: string }>;
  before(async () => {
    fixture = await openOAuthFixture();
    assert.equal((await runAssay(['user', 'add', TAKEN, '--data', data])).status, 0);
    const session = createSession(fixture.db, fixture.people.admin.account.id);
    const csrf = formTokenOf(session);
    post = async (path, form) => {
      const answer = await fixture.fetch(path, {
        method: 'POST',
        headers: {
          cookie: `__Host-assay-session=${session}`,
          'content-type': 'application/x-www-form-urlencoded',
        },
        body: new URLSearchParams({ csrf, ...form }),
      });
      return { status: answer.status, text: await answer.text() };
    };
    const made = await post('/ui/admin/accounts', { email: TAKEN, kind: 'user' });
    assert.equal(made.status, 200, made.text);
  });
  after(async () => {
    await fixture?.close();
    place[Symbol.dispose]();
  });

  /** What the command prints when it refuses. */
  async function refusedBy(name: string, positionals: string[], flags: Record<string, string>) {
    const command = accountCommands.find(one => one.name === name);
    assert.ok(command, name);
    const given = new Map(Object.entries({ '--data': data, ...flags }));
    const cause = await command.run({ flags: given, positionals, environment: {} }).then(
      () => assert.fail('the command line took it'),
      (one: unknown) => one,
    );
    assert.ok(cause instanceof UsageError, String(cause));
    return cause.message;
  }
  const count = () => {
    const db = openData(data, {});
    const [owner] = listAccounts(db);
    const counts = [
      ...listAccounts(fixture.db).map(({ standing, kind }) => `${standing} ${kind}`),
      ...listAccounts(db).map(({ standing, kind }) => `${standing} ${kind}`),
      listApplications(fixture.db, fixture.people.admin.account.id).length,
      owner && listApplications(db, owner.id).length,
    ];
    db.close();
    return counts;
  };
  async function same(page: { path: string; form: Record<string, string> }, output: string, words: string) {
    const shown = await post(page.path, page.form);
    assert.equal(shown.status, 422);
    assert.ok(shown.text.includes(words.replaceAll("'", '&#39;')), `the page does not say: ${words}`);
    assert.ok(output.endsWith(`: ${words}`), output);
    assert.ok(!output.includes('\n'));
  }

  const applications: [field: 'name' | 'redirect_uri', value: string, code: 'is_blank' | 'invalid_format'][] =
    [
      ...['', '  '].map(value => ['name', value, 'is_blank'] as ['name', string, 'is_blank']),
      ...['two\nlines', 'bell\u0007', 'next\u0085line', LONG, 'é'.repeat(128)].map(
        value => ['name', value, 'invalid_format'] as ['name', string, 'invalid_format'],
      ),
      ['redirect_uri', '', 'is_blank'],
      ...['javascript:alert(1)', 'data:,x', '/back', 'https://x.example/#y', 'https:x', 'urn:x'].map(
        value => ['redirect_uri', value, 'invalid_format'] as ['redirect_uri', string, 'invalid_format'],
      ),
    ];
  for (const [field, value, code] of applications)
    it(`an application with ${field} ${JSON.stringify(value.slice(0, 30))}: ${code}`, async () => {
      const before = count();
      const fields = { name: 'Dashboard', redirect_uri: 'https://app.example.org/back', [field]: value };
      const output = await refusedBy('app add', [fields.name], {
        '--owner': TAKEN,
        '--redirect-uri': fields.redirect_uri,
      });
      await same({ path: '/ui/applications/new', form: fields }, output, errorMessage(field, code));
      assert.deepEqual(count(), before);
    });

  const accounts: [
    field: 'email' | 'kind',
    value: string,
    code: 'is_blank' | 'invalid_format' | 'already_exists',
  ][] = [
    ['email', '', 'is_blank'],
    ['email', ' ', 'is_blank'],
    ['email', TAKEN, 'already_exists'],
    ['email', ` ${TAKEN.toUpperCase()} `, 'already_exists'],
    ...[
      'nobody',
      'a b@example.org',
      'a:b@example.org',
      'a@',
      '@example.org',
      'a@b@c',
      `${LONG}@example.org`,
    ].map(value => ['email', value, 'invalid_format'] as ['email', string, 'invalid_format']),
    ...['', 'owner', 'User', 'admin'].map(
      value => ['kind', value, 'invalid_format'] as ['kind', string, 'invalid_format'],
    ),
  ];
  for (const [field, value, code] of accounts)
    it(`an account with ${field} ${JSON.stringify(value.slice(0, 30))}: ${code}`, async () => {
      const before = count();
      const fields = { email: 'new@example.org', kind: 'user', [field]: value };
      const output = await refusedBy('user add', [fields.email], { '--kind': fields.kind });
      await same({ path: '/ui/admin/accounts', form: fields }, output, errorMessage(field, code));
      assert.deepEqual(count(), before);
    });

  const changes: [field: 'standing' | 'kind' | 'trial_ends', value: string][] = [
    ...['', 'gone', 'Active'].map(value => ['standing', value] as ['standing', string]),
    ...['', 'owner'].map(value => ['kind', value] as ['kind', string]),
    ...['soon', '2027', '2027-02-30', '31.1.2027'].map(
      value => ['trial_ends', value] as ['trial_ends', string],
    ),
  ];
  for (const [field, value] of changes)
    it(`a change of ${field} to ${JSON.stringify(value)}: invalid_format`, async () => {
      const before = count();
      const fields = {
        standing: 'suspended',
        kind: 'collaborator',
        trial_ends: '2027-01-31',
        [field]: value,
      };
      const output = await refusedBy('user set', [TAKEN], {
        '--standing': fields.standing,
        '--kind': fields.kind,
        '--trial-ends': fields.trial_ends,
      });
      const { stranger } = fixture.people;
      const page = { path: `/ui/admin/accounts/${stranger.account.id}`, form: fields };
      await same(page, output, errorMessage(field, 'invalid_format'));
      assert.deepEqual(count(), before);
    });
});
