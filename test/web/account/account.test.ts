// The account page without a browser: password, sessions, theme and time zone. account-page.test.ts uses a browser.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { hashPassword } from '../../../src/domain/secret.ts';
import { createSession, findAccount, listSessions, setPassword } from '../../../src/store/accounts.ts';
import { createApplication } from '../../../src/store/applications.ts';
import { createWallLink } from '../../../src/store/wall-links.ts';
import { browserName } from '../../../src/web/account/browser-name.ts';
import { openWire, SESSION_COOKIE, type Visitor, visitorFor, type Wire } from '../../attacks/wire.ts';
import { bootApp, type Person, type TestApp } from '../../support/app.ts';
import type { Fields } from '../../support/client.ts';
import { PASSWORD } from '../signed-in.ts';

const NEW_PASSWORD = 'a longer sentence';
const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0';

describe('requests to the account page', { timeout: 600_000 }, () => {
  let app: TestApp;
  let wire: Wire;
  before(async () => {
    app = await bootApp();
    const passwordHash = await hashPassword(PASSWORD);
    for (const { account } of Object.values(app.people)) setPassword(app.db, account.id, passwordHash);
    wire = openWire(app, 40);
  });
  after(async () => {
    wire?.close();
    await app?.close();
  });

  const send = ({ cookie, csrf }: Visitor, path: string, form: Fields = {}) =>
    wire.ask('POST', `/ui/account/${path}`, {
      headers: { cookie, origin: wire.origin },
      form: { csrf, ...form },
    });
  const show = async ({ cookie }: Pick<Visitor, 'cookie'>, path = '/ui/account') =>
    wire.ask('GET', path, { headers: { cookie } });
  const isSignedIn = async (visitor: Visitor) => (await show(visitor)).status === 200;
  const signIn = async (person: Person, password: string, userAgent = FIREFOX) =>
    wire.ask('POST', '/ui/sign-in', {
      headers: { origin: wire.origin, 'user-agent': userAgent },
      form: { email: person.account.email, password },
    });
  const sessionsOf = (person: Person) => listSessions(app.db, person.account.id, '', 100);

  it('changes the password: other sessions and OAuth tokens end, this session gets a new token', async () => {
    const { owner } = app.people;
    const [mine, other] = [visitorFor(app, owner), visitorFor(app, owner)];
    const token = app.token(owner, 'user');
    assert.equal((await app.client.get('/whoami', token)).status, 200);
    const reply = await send(mine, 'password', { current_password: PASSWORD, password: NEW_PASSWORD });
    assert.equal(reply.status, 303);
    const cookie = (reply.headers['set-cookie'] as string[])
      .find(one => one.startsWith(SESSION_COOKIE))
      ?.split(';')[0] as string;
    assert.notEqual(cookie, mine.cookie);
    assert.equal((await show({ cookie })).status, 200, 'this browser stays signed in');
    assert.deepEqual([await isSignedIn(mine), await isSignedIn(other)], [false, false]);
    assert.equal((await app.client.get('/whoami', token)).status, 401);
    assert.equal((await app.client.get('/whoami', owner.as)).status, 200, 'the API key keeps working');
    assert.equal((await signIn(owner, PASSWORD)).status, 422);
    assert.equal((await signIn(owner, NEW_PASSWORD)).status, 303);
  });

  it('changes nothing without the right current password, a long enough new one, and the form token', async () => {
    const { collaborator } = app.people;
    const mine = visitorFor(app, collaborator);
    const before = app.changes();
    for (const [form, text] of [
      [{ current_password: 'wrong', password: NEW_PASSWORD }, 'This is not your current password.'],
      [{ current_password: '', password: NEW_PASSWORD }, 'This field is required.'],
      [{ current_password: PASSWORD, password: 'short' }, 'Use at least 8 characters.'],
      [{ current_password: PASSWORD, password: '' }, 'This field is required.'],
    ] as const) {
      const { status, text: shown } = await send(mine, 'password', form);
      assert.equal(status, 422, text);
      assert.ok(shown.includes(text), text);
      assert.ok(!shown.includes(PASSWORD), 'a password is never sent back');
    }
    for (const path of ['display', 'password', 'api-key', 'sessions/end-others']) {
      const forged = await send({ ...mine, csrf: 'forged' }, path, {
        current_password: PASSWORD,
        password: NEW_PASSWORD,
        theme: 'dark',
      });
      assert.equal(forged.status, 403, path);
      const foreign = await wire.ask('POST', `/ui/account/${path}`, {
        headers: { cookie: mine.cookie, origin: 'https://elsewhere.example.org' },
        form: { csrf: mine.csrf },
      });
      assert.equal(foreign.status, 403, path);
    }
    assert.equal(app.changes(), before);
  });

  it('throttles guesses at the current password like sign-in attempts', async () => {
    const mine = visitorFor(app, app.people.stranger);
    const guesses = openWire(app, 40);
    const refused = Promise.any(
      Array.from({ length: 30 }, async () => {
        const reply = await guesses.ask('POST', '/ui/account/password', {
          headers: { cookie: mine.cookie, origin: wire.origin },
          form: { csrf: mine.csrf, current_password: 'wrong', password: NEW_PASSWORD },
        });
        assert.equal(reply.status, 429);
        return reply.text;
      }),
    );
    assert.match(await refused, /password was not checked/);
    guesses.close();
  });

  it('lets an account without a password set one', async () => {
    const { admin } = app.people;
    app.db.sqlite.prepare('UPDATE accounts SET password_hash = NULL WHERE id = ?').run(admin.account.id);
    const mine = visitorFor(app, admin);
    const { text } = await show(mine);
    assert.ok(text.includes('You have no password yet') && !text.includes('current_password'));
    assert.equal((await send(mine, 'password', { password: PASSWORD })).status, 303);
    assert.equal((await signIn(admin, PASSWORD)).status, 303);
  });

  it('records browser and address at sign-in, and the last use at most once in five minutes', async () => {
    const { guest } = app.people;
    const reply = await signIn(guest, PASSWORD, `${FIREFOX} ${'x'.repeat(500)}`);
    const cookie = (reply.headers['set-cookie'] as string[])[0]?.split(';')[0] as string;
    const [session] = sessionsOf(guest);
    assert.deepEqual([session?.userAgent.length, session?.address], [300, '127.0.0.1']);
    const before = app.changes();
    await show({ cookie });
    assert.equal(app.changes(), before, 'no write for each request');
    app.db.sqlite
      .prepare('UPDATE sessions SET used_at = used_at - 400000 WHERE account_id = ?')
      .run(guest.account.id);
    const { text } = await show({ cookie });
    assert.match(text, /Firefox on Linux <span class="tag">this session/);
    assert.ok(text.includes('<code>127.0.0.1</code>'));
    assert.ok((sessionsOf(guest)[0]?.usedAt ?? 0) >= (session?.usedAt ?? 0));
  });

  it('ends one session or all others, and nobody else’s', async () => {
    const { owner, guest } = app.people;
    const [mine, second, third, foreign] = [owner, owner, owner, guest].map(one => visitorFor(app, one)) as [
      Visitor,
      Visitor,
      Visitor,
      Visitor,
    ];
    const keyOf = (person: Person, { cookie }: Visitor) =>
      listSessions(app.db, person.account.id, cookie.split('=')[1] as string, 1)[0]?.key;
    assert.equal((await send(mine, `sessions/${keyOf(guest, foreign)}/end`)).status, 404);
    assert.equal((await send(mine, `sessions/${keyOf(owner, second)}/end`)).status, 303);
    assert.deepEqual([await isSignedIn(second), await isSignedIn(third)], [false, true]);
    const { text } = await show(mine);
    assert.equal(text.match(/this session/g)?.length, 1);
    assert.equal((await send(mine, 'sessions/end-others')).status, 303);
    assert.deepEqual(await Promise.all([mine, second, third, foreign].map(isSignedIn)), [
      true,
      false,
      false,
      true,
    ]);
    assert.equal(sessionsOf(owner).length, 1);
  });

  it('shows at most fifty sessions, the current one among them', async () => {
    const { unpaid } = app.people;
    const mine = visitorFor(app, unpaid);
    app.db.sqlite.prepare('UPDATE sessions SET used_at = 1 WHERE account_id = ?').run(unpaid.account.id);
    app.db.write(() => {
      for (let at = 0; at < 60; at += 1) createSession(app.db, unpaid.account.id);
    });
    const { text } = await show(mine);
    assert.equal(text.match(/<tr role="row"><th role="rowheader"/g)?.length, 50);
    assert.equal(text.match(/this session/g)?.length, 1);
  });

  it('refuses an unknown theme or time zone, and keeps what was chosen', async () => {
    const { guest } = app.people;
    const mine = visitorFor(app, guest);
    const display = (theme: string, time_zone: string) => send(mine, 'display', { theme, time_zone });
    assert.equal((await display('dark', ' Asia/Kolkata ')).status, 303);
    for (const [theme, zone, text] of [
      ['blue', 'UTC', 'Choose system, light or dark.'],
      ['light', 'Mars/Olympus', 'Enter the name of a time zone'],
      ['light', '+05:30', 'Enter the name of a time zone'],
    ] as const) {
      const { status, text: shown } = await display(theme, zone);
      assert.equal(status, 422, zone);
      assert.ok(shown.includes(text), text);
    }
    const account = findAccount(app.db, guest.account.id);
    assert.deepEqual([account?.theme, account?.timeZone], ['dark', 'Asia/Kolkata']);
    const { text } = await show(mine, '/ui/projects');
    assert.match(text, /<html lang="en" data-theme="dark" data-time-zone="Asia\/Kolkata">/);
    assert.match(text, /<meta name="color-scheme" content="dark">/);
    const { text: gate } = await wire.ask('GET', '/ui/sign-in');
    assert.match(gate, /<html lang="en">/);
  });

  it('names browsers and systems in plain words', () => {
    const webkit = 'AppleWebKit/537.36 (KHTML, like Gecko)';
    for (const [userAgent, name] of [
      [FIREFOX, 'Firefox on Linux'],
      [
        `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/140.0.0.0 Safari/537.36`,
        'Chrome on Windows',
      ],
      [
        `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/140.0.0.0 Safari/537.36 Edg/140.0`,
        'Edge on Windows',
      ],
      [
        'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15',
        'Safari on macOS',
      ],
      [
        'Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1',
        'Safari on iPhone',
      ],
      [
        `Mozilla/5.0 (Linux; Android 10; K) ${webkit} Chrome/140.0.0.0 Mobile Safari/537.36`,
        'Chrome on Android',
      ],
      ['curl/8.5.0', 'curl'],
      ['<script>', 'Unknown browser'],
      ['', 'Unknown browser'],
    ] as const)
      assert.equal(browserName(userAgent), name, userAgent);
  });

  it('names the applications that have access, and counts the links to the wall screen', async () => {
    const { guest, admin } = app.people;
    const mine = visitorFor(app, guest);
    assert.match((await show(mine)).text, /No application has access/);
    createApplication(app.db, {
      ownerId: admin.account.id,
      name: 'Unused',
      redirectUri: 'https://app.example.org/',
      isPublic: true,
    });
    app.token(guest, 'user');
    app.token(guest, 'projects');
    createWallLink(app.db, guest.account.id, 'Kitchen');
    const { text } = await show(mine);
    assert.match(text, /One application has access to your account: Tests\./);
    assert.match(text, /1 link shows your wall screen/);
  });
});
