// Attacks on sessions: fixation, use after their end, and theft.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { hashPassword } from '../../src/domain/secret.ts';
import { setPassword, updateAccount } from '../../src/store/accounts.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { openWire, type Reply, SESSION_COOKIE, type Visitor, visitorFor, type Wire } from './wire.ts';

const PASSWORD = 'correct horse battery';

let app: ServedApp;
let wire: Wire;
let visitor: Visitor;
before(async () => {
  app = await serveApp();
  wire = openWire(app);
  setPassword(app.db, app.people.admin.account.id, await hashPassword(PASSWORD));
  visitor = visitorFor(app, app.people.admin);
});
after(async () => {
  wire.close();
  await app.close();
});

const signIn = (headers: Record<string, string> = {}) =>
  wire.ask('POST', '/ui/sign-in', {
    headers: { origin: wire.origin, ...headers },
    form: { email: app.people.admin.account.email, password: PASSWORD },
  });
const cookieOf = (reply: Reply) => String((reply.headers['set-cookie'] as string[])?.[0]);
const looksSignedIn = async (cookie: string) =>
  (await wire.ask('GET', '/ui/projects', { headers: { cookie } })).status === 200;

const sessions: Record<string, () => Promise<void>> = {
  'signing in does not accept a session that somebody else chose': async () => {
    const chosen = `${SESSION_COOKIE}=session_chosen-by-somebody-else`;
    const given = cookieOf(await signIn({ cookie: chosen }));
    assert.ok(!given.includes('chosen'));
    assert.equal(await looksSignedIn(chosen), false);
  },
  'signing in ends the previous session': async () => {
    const first = cookieOf(await signIn()).split(';')[0] as string;
    assert.equal(await looksSignedIn(first), true);
    const second = cookieOf(await signIn({ cookie: first })).split(';')[0] as string;
    assert.notEqual(first, second);
    assert.deepEqual([await looksSignedIn(first), await looksSignedIn(second)], [false, true]);
  },
  'the cookie cannot be read by scripts, sent without TLS, set by a sibling domain, or sent by another site':
    async () => {
      const flags = cookieOf(await signIn())
        .split('; ')
        .slice(1)
        .sort();
      assert.deepEqual(flags, ['HttpOnly', 'Max-Age=2592000', 'Path=/', 'SameSite=Lax', 'Secure']);
      assert.ok(SESSION_COOKIE.startsWith('__Host-'));
    },
  'signing out ends the session itself': async () => {
    const leaving = visitorFor(app, app.people.admin);
    const reply = await wire.ask('POST', '/ui/sign-out', {
      headers: { cookie: leaving.cookie, origin: wire.origin },
      form: { csrf: leaving.csrf },
    });
    assert.equal(reply.status, 303);
    assert.match(cookieOf(reply), new RegExp(`^${SESSION_COOKIE}=; .*Max-Age=0`));
    assert.equal(await looksSignedIn(leaving.cookie), false);
  },
  'the session of a suspended account stops working': async () => {
    const { stranger } = app.people;
    const theirs = visitorFor(app, stranger);
    app.db.write(() => updateAccount(app.db, stranger.account.id, { standing: 'suspended' }));
    assert.equal(await looksSignedIn(theirs.cookie), false);
    app.db.write(() => updateAccount(app.db, stranger.account.id, { standing: 'active' }));
  },
  'the digest in the database is not a session': async () => {
    const rows = app.db.sqlite.prepare('SELECT hex(token_digest) FROM sessions').pluck().all() as string[];
    for (const digest of rows.slice(0, 3))
      for (const form of [digest, digest.toLowerCase(), Buffer.from(digest, 'hex').toString('base64url')])
        assert.equal(await looksSignedIn(`${SESSION_COOKIE}=${form}`), false);
  },
  'a session is not accepted by the API': async () => {
    const reply = await wire.ask('GET', '/projects', { headers: { cookie: visitor.cookie } });
    assert.equal(reply.status, 401);
  },
  'an API key is neither a password nor a session': async () => {
    const { admin } = app.people;
    const reply = await wire.ask('POST', '/ui/sign-in', {
      headers: { origin: wire.origin },
      form: { email: admin.account.email, password: admin.key },
    });
    assert.equal(reply.status, 422);
    assert.equal(await looksSignedIn(`${SESSION_COOKIE}=${admin.key}`), false);
  },
  'an unknown email address gets the same response as a wrong password': async () => {
    const texts = await Promise.all(
      ['nobody@example.org', app.people.admin.account.email].map(async email => {
        const reply = await wire.ask('POST', '/ui/sign-in', {
          headers: { origin: wire.origin },
          form: { email, password: 'wrong' },
        });
        return reply.text.replaceAll(email, 'X');
      }),
    );
    assert.equal(texts[0], texts[1]);
  },
  'a forged message cookie is shown as text': async () => {
    const flash = Buffer.from('<script>alert(1)</script>').toString('base64url');
    const reply = await wire.ask('GET', '/ui/projects', {
      headers: { cookie: `${visitor.cookie}; __Host-assay-flash=${flash}` },
    });
    assert.ok(reply.text.includes('&lt;script&gt;alert(1)') && !reply.text.includes('<script>alert'));
  },
  'administration pages are hidden from others': async () => {
    const other = visitorFor(app, app.people.owner);
    for (const path of ['/ui/admin', `/ui/admin/accounts/${app.people.admin.account.id}`]) {
      const reply = await wire.ask('GET', path, { headers: { cookie: other.cookie } });
      assert.ok([401, 403, 404].includes(reply.status), `${path} ${reply.status}`);
    }
    const before = app.changes();
    const reset = await wire.ask('POST', `/ui/admin/accounts/${app.people.admin.account.id}/reset`, {
      headers: { cookie: other.cookie, origin: wire.origin },
      form: { csrf: other.csrf },
    });
    assert.ok([401, 403, 404].includes(reset.status), String(reset.status));
    assert.equal(app.changes(), before);
  },
};
attacks('a session belongs to its owner, and ends for good', sessions, attack => attack());
