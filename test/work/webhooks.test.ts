// Deliveries of webhooks: bodies, signatures, order, retries, resending.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { deleteNotification } from '../../src/store/cleanup/purge.ts';
import { listEvents } from '../../src/store/events.ts';
import {
  enableNotification,
  findNotification,
  pingNotification,
  redeliver,
} from '../../src/store/notifications.ts';
import { version } from '../../src/version.ts';
import { MAX_PER_RECEIVER } from '../../src/work/deliver-notifications.ts';
import { eventIds, openWebhookFixture } from '../support/webhook-fixture.ts';

const limited = { timeout: 120_000 };

test(
  'an event is sent with the body that the list of events shows, and a public implementation verifies its signature',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    const { url, received } = await fixture.receiver();
    const notification = fixture.notify(url);
    fixture.begin();
    fixture.record(1n, 'build.finished');
    await fixture.until(() => fixture.outcomes.length === 1);

    const [delivery] = fixture.deliveriesOf(notification);
    const [request] = received;
    assert.ok(delivery && request);
    assert.equal(request.body, listEvents(fixture.db, fixture.project.id, 0n, 1)[0]?.body);
    assert.match(request.body, /"ssh_public_key":"ssh-ed25519 \S+ assay-assay@\S+"/);
    assert.equal(request.id, String(delivery.eventId));
    assert.equal(request.headers['content-type'], 'application/json');
    assert.equal(request.headers['user-agent'], `Assay/${version}`);
    new Webhook(notification.secret).verify(request.body, request.headers as Record<string, string>);
    assert.throws(() =>
      new Webhook(notification.secret).verify(`${request.body} `, request.headers as Record<string, string>),
    );
    assert.deepEqual(
      [delivery.state, delivery.attempts, delivery.responseStatus, delivery.responseExcerpt],
      ['delivered', 1, 200, 'thanks'],
    );
    assert.deepEqual([delivery.lastError, delivery.nextAttemptAt], [null, null]);
    assert.ok(delivery.responseMs !== null && delivery.responseMs < 5_000);
  },
);

test('receivers that misbehave delay nobody, and the result is recorded', limited, async t => {
  const fixture = openWebhookFixture(t);
  const hang = await fixture.receiver(() => {});
  const broken = await fixture.receiver(response => response.writeHead(500).end('out of order'));
  const closing = await fixture.receiver(response => response.destroy());
  const dripping = await fixture.receiver(response => {
    const drip = setInterval(() => response.write('.'), 50);
    response.on('close', () => clearInterval(drip));
  });
  const elsewhere = await fixture.receiver();
  const redirect = await fixture.receiver(response =>
    response.writeHead(302, { location: elsewhere.url }).end(),
  );
  const tenMegabytes = Buffer.alloc(10_000_000, 'x');
  const long = await fixture.receiver(response => response.end(tenMegabytes));
  const fine = await fixture.receiver();
  for (const { url } of [hang, dripping, fine]) fixture.notify(url);
  const notifications = {
    broken: fixture.notify(broken.url),
    closing: fixture.notify(closing.url),
    redirect: fixture.notify(redirect.url),
    long: fixture.notify(long.url),
  };
  fixture.begin();
  // Repeated a few times: the machine may be busy with another test.
  let quickestMs = Number.POSITIVE_INFINITY;
  for (let round = 1; round <= 5 && quickestMs >= 1_000; round++) {
    const startedAt = performance.now();
    for (let resource = 1n; resource <= 20n; resource++) fixture.record(resource);
    await fixture.until(() => fine.received.length === 20 * round);
    quickestMs = Math.min(quickestMs, performance.now() - startedAt);
  }
  assert.ok(quickestMs < 1_000, `the receiver that answers got its 20 after ${quickestMs} ms`);

  await fixture.until(() =>
    Object.values(notifications).every(
      notification => (fixture.deliveriesOf(notification)[0]?.attempts ?? 0) > 0,
    ),
  );
  const first = (notification: { id: bigint }) => fixture.deliveriesOf(notification)[0];
  const { broken: failing } = notifications;
  assert.equal(first(failing)?.state, 'pending');
  assert.equal(first(failing)?.responseStatus, 500);
  assert.equal(first(failing)?.responseExcerpt, 'out of order');
  assert.equal(first(failing)?.lastError, 'the receiver responded with 500');
  const waitMs = first(failing)!.nextAttemptAt! - first(failing)!.createdAt;
  assert.ok(waitMs >= 5_000 && waitMs < 16_000, `${waitMs}`);
  assert.match(first(notifications.closing)?.lastError ?? '', /closed the connection without a response/);
  assert.equal(first(notifications.closing)?.responseStatus, null);
  assert.match(first(notifications.redirect)?.lastError ?? '', /302: redirects are not followed/);
  assert.equal(elsewhere.received.length, 0);
  assert.equal(first(notifications.long)?.state, 'delivered');
  assert.equal(first(notifications.long)?.responseExcerpt, 'x'.repeat(1_024));
  assert.ok(
    hang.received.length >= 1 && hang.received.length <= MAX_PER_RECEIVER,
    'a hanging receiver gets nothing more',
  );
});

test(
  'a failing event holds back later ones of its resource to that receiver, and nothing else',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    let isUp = false;
    let ids: string[] = [];
    const picky = await fixture.receiver((response, { id }) => {
      response.writeHead(id === ids[0] && !isUp ? 503 : 200).end();
    });
    const other = await fixture.receiver();
    const notification = fixture.notify(picky.url);
    fixture.notify(other.url);
    for (const type of ['build.enqueued', 'build.started', 'build.finished'] as const)
      fixture.record(1n, type);
    fixture.record(2n);
    ids = eventIds(fixture.deliveriesOf(notification));
    assert.deepEqual(ids, [...ids].sort(), 'events are in order');
    fixture.begin();
    await fixture.until(() => other.received.length === 4 && picky.received.length === 2);
    assert.deepEqual(picky.received.map(({ id }) => id).sort(), [ids[0], ids[3]]);

    fixture.jump(1_000);
    fixture.record(3n);
    await fixture.until(() => picky.received.length === 3);
    assert.equal(
      picky.received[2]?.id,
      eventIds(fixture.deliveriesOf(notification))[4],
      'not tried again before its time',
    );
    isUp = true;
    fixture.jump(5_500);
    await fixture.until(() => picky.received.length === 6);
    assert.deepEqual(
      picky.received.slice(3).map(({ id }) => id),
      ids.slice(0, 3),
    );
    assert.equal(picky.received[3]?.body, picky.received[0]?.body, 'byte for byte the same at each try');
    await fixture.until(() => fixture.deliveriesOf(notification).every(({ state }) => state === 'delivered'));
    assert.equal(fixture.deliveriesOf(notification)[0]?.attempts, 2);
  },
);

test(
  'after the last retry an event is failed, and the next one of its resource is sent',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    let firstId: string | undefined;
    const { url, received } = await fixture.receiver((response, { id }) => {
      firstId ??= id;
      response.writeHead(id === firstId ? 500 : 200).end();
    });
    const notification = fixture.notify(url);
    fixture.begin();
    fixture.record(1n, 'build.started');
    fixture.record(1n, 'build.finished');
    const delays = [5, 30, 120, 600, 3_600, 21_600, 86_400];
    for (const [index, seconds] of delays.entries()) {
      await fixture.until(() => fixture.outcomes.length === index + 1);
      const [first] = fixture.deliveriesOf(notification);
      const delay = (first!.nextAttemptAt! - fixture.db.now()) / 1000;
      assert.ok(delay > seconds * 0.95 - 4 && delay <= seconds * 1.2, `${delay} for ${seconds}`);
      fixture.jump(seconds * 1200);
    }
    await fixture.until(() => fixture.outcomes.length === 9);
    const [first, second] = fixture.deliveriesOf(notification);
    assert.deepEqual([first?.state, first?.attempts, first?.nextAttemptAt], ['failed', 8, null]);
    assert.equal(second?.state, 'delivered');
    assert.deepEqual(fixture.outcomes, [...delays.map(() => 'retried'), 'failed', 'delivered']);
    assert.equal(new Set(received.slice(0, 8).map(({ id }) => id)).size, 1);
  },
);

test('410 disables the notification and fails its waiting deliveries', limited, async t => {
  const fixture = openWebhookFixture(t);
  const { url, received } = await fixture.receiver(response => response.writeHead(410).end());
  const notification = fixture.notify(url);
  fixture.db.write(() => {
    for (let count = 0; count < 1_200; count++) fixture.record(BigInt(count % 400));
  });
  const isEnabled = () => findNotification(fixture.db, fixture.project.id, notification.id)?.enabled;
  assert.equal(isEnabled(), true);
  fixture.begin();
  await fixture.until(() => fixture.outcomes.includes('failed'));
  assert.equal(isEnabled(), false);

  while (fixture.deliveriesOf(notification).some(({ state }) => state === 'pending'))
    await new Promise(setImmediate);
  const rows = fixture.deliveriesOf(notification);
  assert.ok(rows.every(({ state, nextAttemptAt }) => state === 'failed' && nextAttemptAt === null));
  assert.match(rows.at(-1)?.lastError ?? '', /410.*notification was switched off/);
  assert.ok(received.length <= MAX_PER_RECEIVER, `${received.length}`);
  fixture.record(1n);
  assert.equal(fixture.deliveriesOf(notification).length, 1_200, 'nothing new is written for it');
  const before = received.length;
  enableNotification(fixture.db, notification.id);
  fixture.record(1n);
  await fixture.until(() => received.length > before);
});

test('deleting a notification aborts running deliveries and sends nothing more', limited, async t => {
  const fixture = openWebhookFixture(t);
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  const gone = await fixture.receiver((_, __, request) => request.socket.on('close', () => resolve()));
  const kept = await fixture.receiver();
  const notification = fixture.notify(gone.url);
  fixture.notify(kept.url);
  fixture.begin();
  fixture.record(1n, 'build.started');
  fixture.record(1n, 'build.finished');
  await fixture.until(() => gone.received.length === 1 && kept.received.length === 2);
  deleteNotification(fixture.db, notification.id);
  await closed;
  fixture.record(2n);
  await fixture.until(() => kept.received.length === 3);
  assert.equal(gone.received.length, 1);
  assert.ok(fixture.outcomes.every(outcome => outcome === 'delivered'));
});

test('a delivered event can be sent again with the same ID, and a waiting one at once', limited, async t => {
  const fixture = openWebhookFixture(t);
  let status = 200;
  const { url, received } = await fixture.receiver(response => response.writeHead(status).end());
  const notification = fixture.notify(url);
  fixture.begin();
  fixture.record(1n);
  await fixture.until(() => fixture.outcomes.length === 1);
  redeliver(fixture.db, fixture.deliveriesOf(notification)[0]!);
  await fixture.until(() => fixture.outcomes.length === 2);
  status = 500;
  redeliver(fixture.db, fixture.deliveriesOf(notification)[0]!);
  await fixture.until(() => fixture.outcomes.length === 3);
  assert.equal(fixture.deliveriesOf(notification)[0]?.state, 'pending');
  status = 204;
  redeliver(fixture.db, fixture.deliveriesOf(notification)[0]!);
  await fixture.until(() => fixture.outcomes.length === 4);
  assert.equal(new Set(received.map(({ id, body }) => id + body)).size, 1);
  assert.deepEqual(fixture.outcomes, ['delivered', 'delivered', 'retried', 'delivered']);
});

test('a ping goes only to the tested receiver', limited, async t => {
  const fixture = openWebhookFixture(t);
  const tried = await fixture.receiver();
  const other = await fixture.receiver();
  const notification = fixture.notify(tried.url);
  fixture.notify(other.url);
  fixture.begin();
  const delivery = pingNotification(fixture.db, notification);
  await fixture.until(() => fixture.outcomes.length === 1);
  const body = JSON.parse(tried.received[0]!.body);
  assert.deepEqual([body.type, body.id_str], ['ping', String(delivery.eventId)]);
  assert.equal(other.received.length, 0);
});

test('a refused address is recorded with the reason', limited, async t => {
  const fixture = openWebhookFixture(t);
  const { url, received } = await fixture.receiver();
  const literal = fixture.notify(url);
  const named = fixture.notify(url.replace('127.0.0.1', 'localhost'));
  fixture.begin([]);
  fixture.record(1n);
  await fixture.until(() => fixture.outcomes.length === 2);
  assert.match(fixture.deliveriesOf(literal)[0]?.lastError ?? '', /^127\.0\.0\.1 is a loopback address/);
  assert.match(
    fixture.deliveriesOf(named)[0]?.lastError ?? '',
    /^localhost resolves to .*, a loopback address/,
  );
  assert.equal(received.length, 0);
});
