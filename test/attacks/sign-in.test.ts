// Signing in as somebody else: with an old invitation, after a reset, and by guessing passwords.
import assert from 'node:assert/strict';
import { connect, constants } from 'node:http2';
import { after, before } from 'node:test';
import { findAccountByEmail } from '../../src/store/accounts.ts';
import { changeAccount, resetAccount } from '../../src/store/registration.ts';
import { basic } from '../support/client.ts';
import { type ServedApp, serveApp } from '../support/served-app.ts';
import { attacks } from './table.ts';
import { alive, openWire, visitorFor, type Wire } from './wire.ts';

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

/** A person whom the owner invited; the owner keeps the link. */
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

/** The link is neither shown nor accepted, and the account is unchanged. */
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
  'stored before, for an account that has a password': async () => {
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
attacks('an old invitation cannot take over an account', links, attack => attack());

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
attacks('nothing from before a reset works', resets, async attack => {
  const status = await attack();
  assert.ok([303, 401].includes(status), String(status));
});

/** How often the sign-in returned each status, according to the metrics. A dropped attempt counts as 429. */
async function counted(): Promise<{ tried: number; refused: number }> {
  const { text } = await app.client.get('/metrics');
  const count = (status: number) =>
    Number(new RegExp(`method="POST",route="/ui/sign-in",status="${status}"\\} (\\d+)`).exec(text)?.[1] ?? 0);
  return { tried: count(422), refused: count(429) };
}

async function untilCounted(holds: (counts: { tried: number; refused: number }) => boolean): Promise<void> {
  while (!holds(await counted())) await new Promise(resolve => setTimeout(resolve, 20));
}

/** The number of guesses that may wait for one account. */
const HANGING = 5;
const guessForm = (email: string) => new URLSearchParams({ email, password: 'a guess' }).toString();

/** How clients disconnect while their guess waits. */
const hangUps: Record<string, (email: string) => Promise<() => void>> = {
  'over HTTP/1.1': async email => {
    const body = guessForm(email);
    const head = `POST /ui/sign-in HTTP/1.1\r\nHost: ${new URL(app.url).host}\r\nOrigin: ${wire.origin}\r\n`;
    const type = 'Content-Type: application/x-www-form-urlencoded\r\n';
    const sockets = await Promise.all(Array.from({ length: HANGING }, () => wire.open()));
    for (const socket of sockets) socket.write(`${head}${type}Content-Length: ${body.length}\r\n\r\n${body}`);
    return () => {
      for (const socket of sockets) socket.destroy();
    };
  },
  'over HTTP/2, by resetting the streams': async email => {
    const session = connect(app.url, { ca: app.client.ca });
    const streams = Array.from({ length: HANGING }, () => {
      const stream = session.request({
        ':method': 'POST',
        ':path': '/ui/sign-in',
        origin: wire.origin,
        'content-type': 'application/x-www-form-urlencoded',
      });
      stream.on('error', () => {});
      stream.end(guessForm(email));
      return stream;
    });
    return () => {
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
      session.close();
    };
  },
};
attacks('guesses of disconnected clients are dropped', hangUps, async send => {
  const email = `hung-up-${++invitations}@example.org`;
  // From the fourth on, a guess waits.
  for (let failed = 0; failed < 4; failed += 1) assert.equal((await signIn(email, 'a guess')).status, 422);
  const before = await counted();
  const hangUp = await send(email);
  const another = signIn(email, 'a guess');
  // One of the six is refused; the other five wait.
  await untilCounted(({ refused }) => refused > before.refused);
  hangUp();
  await another;
  await untilCounted(({ tried, refused }) => tried + refused === before.tried + before.refused + HANGING + 1);
  // At most the one that stayed and those whose turn came before.
  assert.ok((await counted()).tried - before.tried <= 3, JSON.stringify([before, await counted()]));
});

const floods: Record<string, (email: string) => Promise<number[]>> = {
  'for one account': async email =>
    (await Promise.all(Array.from({ length: 30 }, () => signIn(email, 'a guess')))).map(
      ({ status }) => status,
    ),
  'for one account after another': async email =>
    (await Promise.all(Array.from({ length: 300 }, (_, at) => signIn(`${at}-${email}`, 'a guess')))).map(
      ({ status }) => status,
    ),
};
attacks('excessive guesses are refused, and end', floods, async flood => {
  wire.close();
  wire = openWire(app, 90);
  const statuses = await flood(`flooded-${++invitations}@example.org`);
  assert.deepEqual([...new Set(statuses)].toSorted(), [422, 429]);
  const { email, link } = await invite();
  assert.equal((await take(link, PASSWORD)).status, 303);
  assert.equal((await signIn(email, PASSWORD)).status, 303);
  await alive(app);
});
