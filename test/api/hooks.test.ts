// Push hooks, sent as the forges send them: what they start, what they do not, and who may send them.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { connect as connect2 } from 'node:http2';
import { text as readText } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { connect } from 'node:tls';
import { newHookSecret } from '../../src/domain/trigger/hook-signature.ts';
import { defaultOptions } from '../../src/domain/trigger/trigger.ts';
import { updateAccount } from '../../src/store/accounts.ts';
import {
  createTrigger,
  findAnyTrigger,
  OLD_SECRET_MS,
  replaceSecret,
  type Trigger,
  updateTrigger,
} from '../../src/store/trigger/triggers.ts';
import { bootApp, hookSecretOf, type Person, type TestApp } from '../support/app.ts';
import { type Answer, errors } from '../support/client.ts';
import {
  asForm,
  bitbucketPush,
  type Change,
  type Envelope,
  type ForgeName,
  forgeNames,
  forges,
  hashOf,
  type Pull,
  postReceive,
  signed,
  ZEROS,
} from '../support/forge-hooks.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

const REPOSITORY = 'team/website';

type Hooked = { trigger: Trigger; secret: string; projectId: bigint };

/** A project with a push trigger. */
function plantTrigger(options: object = {}, owner?: Person): Hooked {
  const planted = app.plant(owner);
  const trigger = updateTrigger(app.db, findAnyTrigger(app.db, planted.trigger_id) as Trigger, {
    options: { ...defaultOptions.push, ...options },
  });
  app.db.sqlite.prepare('DELETE FROM firings WHERE trigger_id = ?').run(trigger.id);
  return { trigger, secret: hookSecretOf(app.db, planted), projectId: planted.project_id };
}

const send = (id: bigint | string, { headers, body }: Envelope | { headers: object; body: Buffer }) =>
  app.client.call('POST', `/hooks/${id}`, { headers: headers as Record<string, string>, body });

const push = (
  { trigger, secret }: Hooked,
  forge: ForgeName,
  change: Change,
  options: { form?: boolean } = {},
) => send(trigger.id, signed(forge, forges[forge].push(REPOSITORY, change, 'ada'), secret, options));

const count = (query: string, ...values: unknown[]) =>
  Number(
    app.db.sqlite
      .prepare(query)
      .pluck()
      .get(...values),
  );
const requestsOf = ({ projectId }: Hooked) =>
  app.db.sqlite
    .prepare(
      `SELECT commit_ref, pinned, pinned_ref, trigger, pushed_by, created_by FROM build_requests
       WHERE project_id = ? AND trigger IS NOT NULL ORDER BY id`,
    )
    .all(projectId) as Record<string, unknown>[];
const firingsOf = ({ trigger }: Hooked) =>
  count('SELECT count(*) FROM firings WHERE trigger_id = ?', trigger.id);
const outcomes = (answer: Answer) =>
  answer.list.map(({ outcome, reason }) => (reason ? `${outcome}/${reason}` : outcome));

const main = 'refs/heads/main';
const created = { ref: main, before: ZEROS, after: hashOf(1) };
const updated = { ref: main, before: hashOf(1), after: hashOf(2) };
const forced = { ref: main, before: hashOf(2), after: hashOf(3) };
const deleted = { ref: main, before: hashOf(3), after: ZEROS };

for (const forge of forgeNames)
  for (const form of [false, true]) {
    const how = form ? 'as a form' : 'as JSON';
    test(`${forge} ${how}: each push makes one request, also when it is delivered again`, async () => {
      const hooked = plantTrigger();
      for (const change of [created, updated, forced]) {
        const first = await push(hooked, forge, change, { form });
        assert.equal(first.status, 201, first.text);
        const [firing] = first.list;
        assert.equal(firing?.outcome, 'requested');
        assert.deepEqual([firing?.ref, firing?.after, firing?.pushed_by], [main, change.after, 'ada']);
        const again = await push(hooked, forge, change, { form });
        assert.equal(again.status, 200);
        assert.deepEqual(outcomes(again), ['unchanged']);
      }
      const gone = await push(hooked, forge, deleted, { form });
      assert.deepEqual([gone.status, ...outcomes(gone)], [200, 'ignored/deleted']);
      assert.deepEqual(
        requestsOf(hooked),
        [created, updated, forced].map(({ after }) => ({
          commit_ref: 'main',
          pinned: after,
          pinned_ref: main,
          trigger: 'push',
          pushed_by: 'ada',
          created_by: 'owner@example.org',
        })),
      );
    });
  }

for (const forge of forgeNames)
  test(`${forge}: pushes that arrive in another order ask for a look, and build nothing wrong`, async () => {
    const hooked = plantTrigger();
    await push(hooked, forge, created);
    const late = await push(hooked, forge, forced);
    assert.deepEqual([late.status, ...outcomes(late)], [200, 'looking']);
    assert.ok(findAnyTrigger(app.db, hooked.trigger.id)?.nextAt, 'no look is due');
    // The one before is now believed, because it starts from what is known.
    assert.equal((await push(hooked, forge, updated)).status, 201);
    assert.deepEqual(
      requestsOf(hooked).map(({ pinned }) => pinned),
      [created.after, updated.after],
    );
  });

for (const forge of forgeNames)
  test(`${forge}: an event without a change of a ref is answered and recorded, and starts nothing`, async () => {
    const hooked = plantTrigger();
    const events = [forges[forge].other(REPOSITORY), forges[forge].ping?.()].filter(one => one !== undefined);
    const answers: unknown[] = [];
    for (const event of events) {
      const answer = await send(hooked.trigger.id, signed(forge, event, hooked.secret));
      assert.equal(answer.status, 200, answer.text);
      answers.push(...outcomes(answer));
    }
    assert.deepEqual(answers, ['ignored/event', 'ignored/ping'].slice(0, events.length));
    assert.deepEqual(requestsOf(hooked), []);
  });

test('a post-receive hook of 50 refs makes 50 firings and requests in one call', async () => {
  const hooked = plantTrigger({ tags: 'v*' });
  const changes = Array.from({ length: 50 }, (_, index) => ({
    ref: `refs/heads/feature/${index}`,
    before: ZEROS,
    after: hashOf(index),
  }));
  const answer = await send(hooked.trigger.id, postReceive(changes, hooked.secret));
  assert.equal(answer.status, 201, answer.text);
  assert.deepEqual(
    answer.list.map(({ ref, after: to, outcome }) => ({ ref, after: to, outcome })),
    changes.map(({ ref, after: to }) => ({ ref, after: to, outcome: 'requested' })),
  );
  assert.equal(requestsOf(hooked).length, 50);
  const again = await send(hooked.trigger.id, postReceive(changes, hooked.secret));
  assert.deepEqual([again.status, new Set(outcomes(again))], [200, new Set(['unchanged'])]);
  assert.equal(requestsOf(hooked).length, 50);
});

test('Bitbucket reports several refs in one call, and each is handled by itself', async () => {
  const hooked = plantTrigger({ branches: 'main release/*' });
  const changes = [
    created,
    { ref: 'refs/heads/release/1', before: ZEROS, after: hashOf(1) },
    { ref: 'refs/heads/private', before: ZEROS, after: hashOf(1) },
    { ref: 'refs/tags/v1', before: ZEROS, after: hashOf(1) },
    { ref: 'refs/heads/gone', before: hashOf(8), after: ZEROS },
  ];
  const hook = signed('bitbucket', bitbucketPush(REPOSITORY, changes, 'ada'), hooked.secret);
  const answer = await send(hooked.trigger.id, hook);
  assert.equal(answer.status, 201, answer.text);
  assert.deepEqual(outcomes(answer), [
    'requested',
    'requested',
    'ignored/filtered',
    'ignored/filtered',
    'ignored/deleted',
  ]);
});

test('50 deliveries of one push at the same time make one request', async () => {
  const hooked = plantTrigger();
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) =>
      push(hooked, forgeNames[index % forgeNames.length] as ForgeName, created, { form: index % 2 === 0 }),
    ),
  );
  assert.equal(answers.filter(answer => answer.status === 201).length, 1);
  assert.equal(answers.filter(answer => answer.status === 200).length, 49);
  assert.equal(requestsOf(hooked).length, 1);
});

describe('what cannot be believed is a reason to look', () => {
  const look = async (hooked: Hooked, hook: Envelope) => {
    const answer = await send(hooked.trigger.id, hook);
    assert.deepEqual([answer.status, ...outcomes(answer)], [200, 'looking'], answer.text);
    assert.ok(findAnyTrigger(app.db, hooked.trigger.id)?.nextAt, 'no look is due');
    assert.deepEqual(requestsOf(hooked), []);
    return answer;
  };

  for (const forge of forgeNames)
    test(`${forge}: a push to another repository`, async () => {
      const hooked = plantTrigger();
      const answer = await look(
        hooked,
        signed(forge, forges[forge].push('other/website', created, 'eve'), hooked.secret),
      );
      assert.equal(answer.list[0]?.ref ?? null, null);
    });

  test('a call without a body', async () => {
    const hooked = plantTrigger();
    await look(hooked, postReceive([], hooked.secret));
  });

  test('JSON that is no push', async () => {
    const hooked = plantTrigger();
    for (const body of ['{}', '[]', 'null', '{"ref":"main"}'])
      await look(
        hooked,
        signed('github', { ...forges.github.push(REPOSITORY, created, 'a'), body }, hooked.secret),
      );
  });

  test('lines that are cut', async () => {
    const hooked = plantTrigger();
    const { headers, body } = postReceive([created], hooked.secret);
    for (let length = 1; length < body.length; length += 9)
      await look(hooked, { headers, body: body.slice(0, length) });
  });
});

test('a signed body that is cut is refused, whatever its forge, and leaves no row', async () => {
  const hooked = plantTrigger();
  for (const forge of forgeNames) {
    const hook = forges[forge].push(REPOSITORY, created, 'ada');
    for (const whole of [hook, asForm(hook)])
      for (const part of [0.1, 0.5, 0.9, 0.99]) {
        const cut = { ...whole, body: whole.body.slice(0, Math.floor(whole.body.length * part)) };
        const answer = await send(hooked.trigger.id, signed(forge, cut, hooked.secret));
        assert.deepEqual([answer.status, answer.json], [403, errors('generic', 'invalid_format')]);
      }
  }
  assert.equal(firingsOf(hooked), 0);
});

describe('a hook without a valid signature', () => {
  const sha256 = (secret: string, text: string) => createHmac('sha256', secret).update(text).digest('hex');
  const forged: Record<string, (hook: Envelope, secret: string) => Record<string, string>> = {
    'that has none': () => ({}),
    'of another secret': ({ body }) => ({ 'x-hub-signature-256': `sha256=${sha256(newHookSecret(), body)}` }),
    'of an empty secret': ({ body }) => ({ 'x-hub-signature-256': `sha256=${sha256('', body)}` }),
    'that is empty': () => ({ 'x-hub-signature-256': 'sha256=' }),
    'by SHA-1': ({ body }, secret) => ({
      'x-hub-signature': `sha1=${createHmac('sha1', secret).update(body).digest('hex')}`,
    }),
    'of another body': ({ body }, secret) => ({ 'x-gitea-signature': sha256(secret, `${body} `) }),
    'with a wrong token': () => ({ 'x-gitlab-token': newHookSecret() }),
    'with the account of the owner': () => ({ authorization: app.people.owner.as }),
    'that a good token accompanies': (_, secret) => ({
      'x-hub-signature-256': `sha256=${'0'.repeat(64)}`,
      'x-assay-token': secret,
    }),
    'that is 6 minutes old': ({ body }, secret) => {
      const timestamp = Math.floor(Date.now() / 1_000) - 360;
      const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
      const text = createHmac('sha256', key).update(`1.${timestamp}.${body}`).digest('base64');
      return { 'webhook-id': '1', 'webhook-timestamp': `${timestamp}`, 'webhook-signature': `v1,${text}` };
    },
  };
  for (const [name, headersOf] of Object.entries(forged))
    test(`${name} is refused and leaves no row`, async () => {
      const hooked = plantTrigger();
      const hook = forges.github.push(REPOSITORY, created, 'eve');
      const before = app.changes();
      const answer = await send(hooked.trigger.id, {
        headers: { ...hook.headers, ...headersOf(hook, hooked.secret) },
        body: hook.body,
      });
      assert.deepEqual([answer.status, answer.json], [401, errors('generic', 'unauthorized')]);
      assert.equal(app.changes(), before, 'something was written');
      assert.deepEqual([firingsOf(hooked), requestsOf(hooked)], [0, []]);
    });

  test('is counted on its trigger, and a flood of them is written in few changes', async () => {
    const hooked = plantTrigger();
    const before = app.changes();
    const startedAt = Date.now();
    const answers = await Promise.all(
      Array.from({ length: 300 }, () => send(hooked.trigger.id, postReceive([created], 'wrong'))),
    );
    assert.ok(answers.every(({ status }) => status === 401));
    let found = findAnyTrigger(app.db, hooked.trigger.id);
    while (found?.refusedCount !== 300) {
      await wait(50);
      found = findAnyTrigger(app.db, hooked.trigger.id);
      assert.ok(Date.now() - startedAt < 60_000, `${found?.refusedCount} of 300 are counted`);
    }
    assert.ok((found.refusedAt ?? 0) >= startedAt);
    assert.ok(app.changes() - before <= 50, `${app.changes() - before} changes`);
    assert.equal(found.firedAt, hooked.trigger.firedAt);
  });
});

test('a trigger that is unknown, disabled, or polls is not found', async () => {
  const { trigger, secret, projectId } = plantTrigger();
  const polling = createTrigger(app.db, {
    projectId,
    name: 'Poll',
    triggerType: 'poll',
    options: defaultOptions.poll,
    nextAt: null,
    createdBy: 'owner@example.org',
  });
  for (const id of ['1', 'abc', '0', '9'.repeat(30), String(projectId), String(polling.id)]) {
    const answer = await send(id, postReceive([created], secret));
    assert.deepEqual([answer.status, answer.json], [404, errors('generic', 'not_found')], id);
  }
  updateTrigger(app.db, trigger, { enabled: false });
  assert.equal((await send(trigger.id, postReceive([created], secret))).status, 404);
  updateTrigger(app.db, trigger, { enabled: true });
  assert.equal((await send(trigger.id, postReceive([created], secret))).status, 201);
});

test('while a secret is replaced under load, no hook is refused; the old one ends after a day', async t => {
  const hooked = plantTrigger();
  const next = newHookSecret();
  let finished = false;
  let sent = 0;
  const load = async (forge: ForgeName) => {
    for (let round = 0; !finished || round < 3; round += 1) {
      const secret = finished ? next : hooked.secret;
      const change = { ref: `refs/heads/${forge}/${round}`, before: ZEROS, after: hashOf(round) };
      assert.equal((await push({ ...hooked, secret }, forge, change)).status, 201);
      sent += 1;
      if (sent === 30) {
        replaceSecret(app.db, hooked.trigger, next);
        // Both are valid from here on.
        assert.equal(
          (await push({ ...hooked, secret: next }, forge, { ...change, ref: `${change.ref}-next` })).status,
          201,
        );
      }
      if (sent === 60) finished = true;
    }
  };
  await Promise.all(forgeNames.map(load));
  const inADay = Date.now() + OLD_SECRET_MS + 1_000;
  t.mock.method(app.db, 'now', () => inADay);
  assert.equal((await push(hooked, 'github', created)).status, 401);
  assert.equal((await push({ ...hooked, secret: next }, 'github', created)).status, 201);
});

test('a push for an owner who is suspended or owes payment is answered and starts nothing', async () => {
  for (const standing of ['suspended', 'payment_required'] as const) {
    const hooked = plantTrigger({}, app.people.collaborator);
    updateAccount(app.db, app.people.collaborator.account.id, { standing });
    for (const hook of [postReceive([created], hooked.secret), postReceive([], hooked.secret)]) {
      const answer = await send(hooked.trigger.id, hook);
      assert.deepEqual([answer.status, ...outcomes(answer)], [200, 'ignored/owner_inactive']);
    }
    assert.deepEqual(requestsOf(hooked), []);
    updateAccount(app.db, app.people.collaborator.account.id, { standing: 'active' });
    assert.equal((await push(hooked, 'github', created)).status, 201);
  }
});

test('a nearly full disk does not refuse a hook, which nobody would send again', async () => {
  const hooked = plantTrigger();
  app.hasFreeSpace = false;
  try {
    assert.equal((await push(hooked, 'gitea', created)).status, 201);
  } finally {
    app.hasFreeSpace = true;
  }
});

test('a trigger that is disabled while its hooks arrive refuses them, and no hook of another trigger', async () => {
  const [stopped, other] = [plantTrigger(), plantTrigger()];
  const { promise: disabled, resolve: release } = Promise.withResolvers<void>();
  const slow = Array.from({ length: 10 }, (_, index) => {
    const change = { ref: `refs/heads/slow-${index}`, before: ZEROS, after: hashOf(index) };
    const hook = signed('github', forges.github.push(REPOSITORY, change, 'ada'), stopped.secret);
    async function* body() {
      yield Buffer.from(hook.body.slice(0, 50));
      await disabled;
      yield Buffer.from(hook.body.slice(50));
    }
    return app.client.call('POST', `/hooks/${stopped.trigger.id}`, { headers: hook.headers, body: body() });
  });
  updateTrigger(app.db, stopped.trigger, { enabled: false });
  const others = Array.from({ length: 10 }, (_, index) =>
    push(other, 'gitea', { ref: `refs/heads/fast-${index}`, before: ZEROS, after: hashOf(index) }),
  );
  release();
  assert.deepEqual(
    (await Promise.all(slow)).map(({ status }) => status),
    slow.map(() => 404),
  );
  assert.deepEqual(
    (await Promise.all(others)).map(({ status }) => status),
    others.map(() => 201),
  );
  assert.deepEqual([requestsOf(stopped).length, requestsOf(other).length], [0, 10]);
});

const MIB = 1024 * 1024;

/** A push of GitHub with that many bytes. */
function largePush(bytes: number): Buffer {
  const { body } = forges.github.push(REPOSITORY, created, 'ada');
  const padding = bytes - Buffer.byteLength(body) - ',"padding":""'.length;
  return Buffer.from(`${body.slice(0, -1)},"padding":"${'x'.repeat(padding)}"}`);
}

const signedBytes = (body: Buffer, secret: string) => ({
  headers: {
    'content-type': 'application/json',
    'x-github-event': 'push',
    'x-hub-signature-256': `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`,
  },
  body,
});

test('a body of 1 MiB is read; one of 25 MiB is verified and asks for a look; a larger one is refused', async () => {
  const hooked = plantTrigger();
  const sendBytes = (bytes: number, secret = hooked.secret) =>
    send(hooked.trigger.id, signedBytes(largePush(bytes), secret));
  const most = await sendBytes(25 * MIB);
  assert.deepEqual([most.status, ...outcomes(most)], [200, 'looking'], most.text);
  assert.equal((await sendBytes(25 * MIB, newHookSecret())).status, 401);
  const more = await sendBytes(25 * MIB + 1);
  assert.deepEqual([more.status, more.json], [403, errors('generic', 'invalid_format')]);
  const read = await sendBytes(MIB);
  assert.deepEqual([read.status, ...outcomes(read)], [201, 'requested'], read.text);
  // As curl does with large bodies.
  const { headers, body } = signedBytes(largePush(2 * MIB), hooked.secret);
  const awaited = await send(hooked.trigger.id, { headers: { ...headers, expect: '100-continue' }, body });
  assert.deepEqual([awaited.status, ...outcomes(awaited)], [200, 'looking'], awaited.text);
});

test('hooks are answered while 80 bodies of others never end, and read again afterwards', async () => {
  const hooked = plantTrigger();
  const { hostname, port } = new URL(app.url);
  const part = Buffer.alloc(MIB - 64 * 1024, ' ');
  const held = await Promise.all(
    Array.from({ length: 80 }, async () => {
      const socket = connect({ host: hostname, port: Number(port), ca: app.client.ca });
      socket.on('error', () => {});
      await once(socket, 'secureConnect');
      socket.write(
        `POST /hooks/${hooked.trigger.id} HTTP/1.1\r\nHost: x\r\nX-GitHub-Event: push\r\n` +
          `X-Hub-Signature-256: sha256=${'0'.repeat(64)}\r\nContent-Length: ${2 * MIB}\r\n\r\n`,
      );
      await new Promise<void>(resolve => socket.write(part, () => resolve()));
      return socket;
    }),
  );
  const pushRound = (round: number) =>
    push(hooked, 'github', { ref: `refs/heads/during-${round}`, before: ZEROS, after: hashOf(round) });
  for (let round = 0; round < 20; round += 1) {
    const answer = await pushRound(round);
    assert.match(outcomes(answer).join(), /^(requested|looking)$/);
  }
  for (const socket of held) socket.destroy();
  for (let round = 20; outcomes(await pushRound(round)).join() !== 'requested'; round += 1) {
    assert.ok(round < 500, 'no hook is read any more');
    await wait(20);
  }
});

test('hooks over HTTP/2 are read as over HTTP/1.1: with a body, without one, too large, and refused', async () => {
  const hooked = plantTrigger();
  const session = connect2(app.url, { ca: app.client.ca });
  const ask = async ({ headers, body }: { headers: object; body: string | Buffer }) => {
    const stream = session.request({ ':method': 'POST', ':path': `/hooks/${hooked.trigger.id}`, ...headers });
    stream.on('error', () => {});
    const answered = once(stream, 'response') as Promise<[Record<string, unknown>]>;
    stream.end(body);
    const [{ ':status': status }] = await answered;
    const text = Number(status) < 300 ? await readText(stream) : '';
    stream.close();
    const list = text === '' ? [] : (JSON.parse(text) as { response: { outcome: string }[] }).response;
    return [status, ...list.map(({ outcome }) => outcome)];
  };
  try {
    assert.deepEqual(await ask(postReceive([created], hooked.secret)), [201, 'requested']);
    assert.deepEqual(await ask(postReceive([], hooked.secret)), [200, 'looking']);
    assert.deepEqual(await ask(signedBytes(largePush(2 * MIB), hooked.secret)), [200, 'looking']);
    assert.deepEqual(await ask(signedBytes(largePush(2 * MIB), newHookSecret())), [401]);
    assert.deepEqual(await ask(postReceive([created], newHookSecret())), [401]);
    assert.deepEqual(await ask(signedBytes(largePush(25 * MIB + 1), hooked.secret)), [403]);
    assert.deepEqual(await ask(postReceive([updated], hooked.secret)), [201, 'requested']);
  } finally {
    session.close();
  }
});

test('a body in chunks, without a length, has the same limit', async () => {
  const hooked = plantTrigger();
  const { headers, body } = signedBytes(largePush(26 * MIB), hooked.secret);
  async function* chunks() {
    for (let at = 0; at < body.length; at += MIB) yield body.subarray(at, at + MIB);
  }
  const answer = await app.client
    .call('POST', `/hooks/${hooked.trigger.id}`, { headers, body: chunks() })
    // The connection is closed while the body is still being sent.
    .catch((error: NodeJS.ErrnoException) => error);
  if ('status' in answer) assert.equal(answer.status, 403);
  else assert.match(String(answer.code), /^(ECONNRESET|EPIPE)$/);
  assert.equal(firingsOf(hooked), 0);
});

for (const forge of forgeNames) {
  const sendPull = (hooked: Hooked, pull: Partial<Pull>) => {
    const whole = { number: 3, hash: hashOf(9), fork: true, action: 'opened' as const, ...pull };
    const hook = forges[forge].pull?.(REPOSITORY, whole, 'eve') as Envelope;
    return send(hooked.trigger.id, signed(forge, hook, hooked.secret));
  };

  test(`${forge}: a pull request is built if it is from a fork and the trigger allows it`, async () => {
    const hooked = plantTrigger();
    const off = await sendPull(hooked, {});
    assert.deepEqual([off.status, ...outcomes(off)], [200, 'ignored/filtered']);
    updateTrigger(app.db, hooked.trigger, { options: { ...defaultOptions.push, pull_requests: true } });
    const opened = await sendPull(hooked, {});
    assert.deepEqual([opened.status, ...outcomes(opened)], [201, 'requested'], opened.text);
    const again = await sendPull(hooked, { action: 'reopened' });
    assert.deepEqual([again.status, ...outcomes(again)], [200, 'unchanged']);
    const edited = await sendPull(hooked, { action: 'edited', hash: hashOf(8) });
    assert.deepEqual([edited.status, ...outcomes(edited)], [200, 'ignored/event']);
    const pushed = await sendPull(hooked, { action: 'updated', hash: hashOf(10) });
    assert.deepEqual([pushed.status, ...outcomes(pushed)], [201, 'requested']);
    assert.deepEqual(
      requestsOf(hooked).map(({ commit_ref, pinned, pushed_by }) => [commit_ref, pinned, pushed_by]),
      [
        ['pull/3', hashOf(9), 'eve'],
        ['pull/3', hashOf(10), 'eve'],
      ],
    );
    assert.equal(
      count(
        'SELECT min(without_variables) FROM build_requests WHERE pull_request = 3 AND project_id = ?',
        hooked.projectId,
      ),
      1,
    );
  });

  test(`${forge}: a pull request of the same repository is ignored, because its push was built`, async () => {
    const hooked = plantTrigger({ pull_requests: true });
    const answer = await sendPull(hooked, { fork: false });
    assert.deepEqual([answer.status, ...outcomes(answer)], [200, 'ignored/event']);
  });
}
