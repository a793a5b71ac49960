// Deliveries under faults: dead and slow receivers, clock changes, stops and kills.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createNetServer } from 'node:net';
import { test } from 'node:test';
import { eventIds, openWebhookFixture } from '../support/webhook-fixture.ts';

const limited = { timeout: 120_000 };

test('a hundred thousand rows for a dead receiver delay nobody', limited, async t => {
  const fixture = openWebhookFixture(t);
  const closed = createNetServer();
  await once(closed.listen(0, '127.0.0.1'), 'listening');
  const { port } = closed.address() as { port: number };
  closed.close();
  const dead = fixture.notify(`http://127.0.0.1:${port}/`);
  fixture.record(0n);
  fixture.db.write(() => {
    const copy = fixture.db.sqlite.prepare(`
      INSERT INTO deliveries (id, notification_id, event_id, event_type, resource_id, state, attempts, next_attempt_at, created_at)
      SELECT ?, notification_id, event_id, event_type, ?, state, attempts, next_attempt_at, created_at
      FROM deliveries WHERE notification_id = ? LIMIT 1`);
    // A third have a chain of three; the last part is one long chain.
    for (let row = 0; row < 100_000; row++)
      copy.run(fixture.db.newId(), BigInt(row < 60_000 ? row % 20_000 : 0), dead.id);
  });
  const { url, received } = await fixture.receiver();
  fixture.begin();
  await fixture.until(() => fixture.outcomes.length >= 2);
  fixture.notify(url);
  const times: number[] = [];
  for (let count = 1; count <= 50; count++) {
    const startedAt = performance.now();
    fixture.record(BigInt(count));
    await fixture.until(() => received.length === count);
    times.push(performance.now() - startedAt);
  }
  // A single one may be delayed by a busy disk.
  const medianMs = times.sort((a, b) => a - b)[25] as number;
  assert.ok(medianMs < 250, `${medianMs} ms`);
});

test(
  'one host gets at most 16 deliveries at once, and a backlog does not delay other hosts',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    let current = 0;
    let most = 0;
    const { url, received } = await fixture.receiver(response => {
      most = Math.max(most, ++current);
      setTimeout(() => {
        current -= 1;
        response.end();
      }, 20);
    });
    const busy = fixture.newProject('busy');
    fixture.notify(url, busy.id);
    fixture.notify(`${url}/second`, busy.id);
    fixture.notify(`${url}/third`);
    for (let count = 0n; count < 300n; count++) fixture.record(count, 'build.started', busy.id);
    fixture.begin();
    await fixture.until(() => received.length > 100);
    fixture.record(1n);
    await fixture.until(() => received.some(({ path }) => path === '/hook/third'));
    assert.ok(received.length < 250, `${received.length} came before the neighbour's`);
    await fixture.until(() => fixture.outcomes.length === 601);
    assert.equal(most, 16);
  },
);

test(
  'a chain that is longer than a batch is sent in order once its first event is delivered',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    let isUp = false;
    let ids: string[] = [];
    const { url, received } = await fixture.receiver((response, { id }) => {
      response.writeHead(id === ids[0] && !isUp ? 500 : 200).end();
    });
    const notification = fixture.notify(url);
    fixture.db.write(() => {
      for (let count = 0; count < 300; count++) fixture.record(1n);
      fixture.record(2n);
    });
    ids = eventIds(fixture.deliveriesOf(notification));
    fixture.begin();
    await fixture.until(() => fixture.outcomes.length === 2);
    assert.deepEqual([...fixture.outcomes].sort(), ['delivered', 'retried']);
    isUp = true;
    fixture.jump(6_001);
    await fixture.until(() => fixture.outcomes.length === 302);
    assert.deepEqual(
      received.slice(2).map(({ id }) => id),
      ids.slice(0, 300),
    );
  },
);

test('a clock that is set back does not postpone retries', limited, async t => {
  const fixture = openWebhookFixture(t);
  let status = 500;
  const { url } = await fixture.receiver(response => response.writeHead(status).end());
  const notification = fixture.notify(url);
  fixture.begin();
  fixture.record(1n);
  await fixture.until(() => fixture.outcomes.length === 1);
  status = 200;
  fixture.jump(-48 * 3600_000);
  while (fixture.deliveriesOf(notification)[0]!.nextAttemptAt! > fixture.db.now() + 6_000)
    await new Promise(setImmediate);
  fixture.jump(6_001);
  await fixture.until(() => fixture.outcomes.length === 2);
  await fixture.stop();
  status = 500;
  fixture.record(2n);
  fixture.clock.aheadMs -= 48 * 3600_000;
  fixture.begin();
  await fixture.until(() => fixture.outcomes.length === 3);
  assert.deepEqual(fixture.outcomes, ['retried', 'delivered', 'retried']);
});

test(
  'a response that cannot be written at once is kept, and the event is not sent again',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    const { url, received } = await fixture.receiver();
    fixture.notify(url);
    fixture.record(1n);
    const { write } = fixture.db;
    const isFull = () => received.length > 0 && fixture.logged.length === 0;
    fixture.db.write = change => {
      if (isFull()) throw new Error('database or disk is full');
      return write(change);
    };
    fixture.begin();
    await fixture.until(() => fixture.outcomes.length === 1);
    assert.match(fixture.logged.join(''), /could not be recorded.*disk is full/);
    assert.equal(received.length, 1);
  },
);

test(
  'stopping does not wait for a hanging receiver, and the delivery is sent after the next start',
  limited,
  async t => {
    const fixture = openWebhookFixture(t);
    let isUp = false;
    const { url, received } = await fixture.receiver(response => isUp && response.end());
    const notification = fixture.notify(url);
    fixture.begin();
    fixture.record(1n);
    await fixture.until(() => received.length === 1);
    const startedAt = performance.now();
    await fixture.stop();
    assert.ok(performance.now() - startedAt < 3_000);
    const [row] = fixture.deliveriesOf(notification);
    assert.deepEqual([row?.state, row?.attempts], ['pending', 0]);
    isUp = true;
    fixture.begin();
    await fixture.until(() => fixture.outcomes.length === 1);
    assert.equal(received[1]?.id, received[0]?.id);
  },
);

test('a killed process loses nothing: every event arrives, in order, with its ID', limited, async t => {
  const fixture = openWebhookFixture(t);
  const { url, received } = await fixture.receiver(response => setTimeout(() => response.end(), 2));
  const notification = fixture.notify(url);
  fixture.db.write(() => {
    for (let count = 0; count < 300; count++) fixture.record(BigInt(count % 60));
  });
  const program = `
    import { openDb } from ${JSON.stringify(import.meta.resolve('../../src/store/database/db.ts'))};
    import { createVault } from ${JSON.stringify(import.meta.resolve('../../src/store/database/vault.ts'))};
    import { createLive } from ${JSON.stringify(import.meta.resolve('../../src/live.ts'))};
    import { createLog } from ${JSON.stringify(import.meta.resolve('../../src/log.ts'))};
    import { parseCidrs } from ${JSON.stringify(import.meta.resolve('../../src/domain/webhook/address.ts'))};
    import { startDeliveries } from ${JSON.stringify(import.meta.resolve('../../src/work/deliver-notifications.ts'))};
    startDeliveries({
      db: openDb(process.env.FIXTURE, createVault(Buffer.from(process.env.FIXTURE_KEY, 'hex'))),
      live: createLive(), log: createLog(), allow: parseCidrs('127.0.0.0/8'),
    });`;
  for (const enough of [40, 120, 200]) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      env: { ...process.env, FIXTURE: fixture.path, FIXTURE_KEY: fixture.key.toString('hex') },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const closed = once(child, 'close');
    await fixture.until(() => received.length >= enough);
    child.kill('SIGKILL');
    await closed;
  }
  fixture.begin();
  await fixture.until(() => fixture.deliveriesOf(notification).every(({ state }) => state === 'delivered'));
  const rows = fixture.deliveriesOf(notification);
  assert.deepEqual([...new Set(received.map(({ id }) => id))].sort(), eventIds(rows));
  assert.ok(received.length < 400, `${received.length}: only what was being sent came twice`);
  for (let resource = 0n; resource < 60n; resource++) {
    const expected = eventIds(rows.filter(({ resourceId }) => resourceId === resource));
    const came = [...new Set(received.map(({ id }) => id).filter(id => expected.includes(id)))];
    assert.deepEqual(came, expected);
  }
});
