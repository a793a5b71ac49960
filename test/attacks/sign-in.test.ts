// Signing in as somebody else: by an old invitation, after a reset, and by more guesses than anybody makes.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { findAccountByEmail } from '../../src/store/accounts.ts';
import { changeAccount, resetAccount } from '../../src/store/registration.ts';
import { basic } from '../support/client.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { openWire, visitorFor, type Wire } from './wire.ts';

const PASSWORD = 'correct horse battery';

let app: ServedApp;
let wire: Wire;
before(async () => {
  app = await serveApp();
  wire = openWire(app);
});
after(async () => {
  wire.close();
  await app.close();
});

let invitations = 0;

/** Somebody invited by the owner, who keeps the link. */
async function invite() {
  const email = `invited-${++invitations}@example.org`;
  const { project_id } = app.plant();
  const path = `/projects/${project_id}/collaborators`;
  const { record } = await app.client.call('POST', path, { as: app.people.owner.as, form: { email } });
  const account = () => {
    const found = findAccountByEmail(app.db, email);
    assert.ok(found);
    return found;
  };
  const renew = async () =>
    (await app.client.call('POST', `${path}/${record.id_str}/invitation`, { as: app.people.owner.as }))
      .status;
  return { email, account, renew, link: linkIn(record) };
}

const linkIn = (record: Record<string, unknown>) =>
  new URL(record.sign_in_url as string).searchParams.get('link') as string;
const open = (link: string) => wire.ask('GET', `/ui/welcome?link=${link}`);
const take = (link: string, password: string) =>
  wire.ask('POST', '/ui/welcome', { headers: { origin: wire.origin }, form: { link, password } });
const signIn = (email: string, password: string) =>
  wire.ask('POST', '/ui/sign-in', { headers: { origin: wire.origin }, form: { email, password } });

/** Neither shown nor taken, and what the account had is as before. */
async function assertDead(link: string, account: () => { passwordHash: string | null }): Promise<void> {
  const before = account().passwordHash;
  assert.equal((await open(link)).status, 404);
  const reply = await take(link, 'a password of the inviter');
  assert.deepEqual([reply.status, reply.headers['set-cookie']], [404, undefined]);
  assert.equal(account().passwordHash, before);
}

const links: Record<string, () => Promise<void>> = {
  'after the invited person has set a password': async () => {
    const { link, account, email, renew } = await invite();
    assert.equal((await take(link, PASSWORD)).status, 303);
    await assertDead(link, account);
    assert.equal(await renew(), 404);
    assert.equal((await signIn(email, PASSWORD)).status, 303);
  },
  'after an administrator has reset the account': async () => {
    const { link, account, renew } = await invite();
    await resetAccount(app.db, account());
    await assertDead(link, account);
    assert.equal(await renew(), 404);
  },
  'after the account was made an administrator': async () => {
    const { link, account, renew } = await invite();
    changeAccount(app.db, account(), { admin: true });
    await assertDead(link, account);
    assert.equal(await renew(), 404);
  },
  'after the account was made a user, and a collaborator again': async () => {
    const { link, account, renew } = await invite();
    changeAccount(app.db, account(), { kind: 'user' });
    changeAccount(app.db, account(), { kind: 'collaborator' });
    await assertDead(link, account);
    assert.equal(await renew(), 404);
  },
  'after a newer one was made': async () => {
    const { link, account, renew } = await invite();
    assert.equal(await renew(), 201);
    await assertDead(link, account);
  },
  'kept in the database from before, for an account that has a password': async () => {
    const { link, account } = await invite();
    const row = app.db.sqlite
      .prepare('SELECT * FROM sign_in_links WHERE account_id = ?')
      .get(account().id) as object;
    assert.equal((await take(link, PASSWORD)).status, 303);
    app.db.write(() =>
      app.db.sqlite
        .prepare('INSERT INTO sign_in_links (token_digest, account_id, expires_at) VALUES (?, ?, ?)')
        .run(...Object.values(row)),
    );
    await assertDead(link, account);
  },
};
attacks('an old invitation takes no account over', links, attack => attack());

const resets: Record<string, () => Promise<number>> = {
  'a session': async () => {
    const { cookie } = visitorFor(app, app.people.stranger);
    const look = async () => (await wire.ask('GET', '/ui/projects', { headers: { cookie } })).status;
    assert.equal(await look(), 200);
    await resetAccount(app.db, app.people.stranger.account);
    return look();
  },
  'an OAuth token': async () => {
    const as = app.token(app.people.collaborator, 'user');
    const look = async () => (await app.client.get('/whoami', as)).status;
    assert.equal(await look(), 200);
    await resetAccount(app.db, app.people.collaborator.account);
    return look();
  },
  'the old API key': async () => {
    const { account, key } = app.people.guest;
    const look = async () => (await app.client.get('/whoami', basic(account.email, key))).status;
    assert.equal(await look(), 200);
    await resetAccount(app.db, account);
    return look();
  },
};
attacks('nothing from before a reset lets anybody in', resets, async attack => {
  const status = await attack();
  assert.ok([303, 401].includes(status), String(status));
});
