// Kills the server while it cancels and purges in batches: the next server completes what was answered.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as after } from 'node:timers/promises';
import { createAccount } from '../../src/store/accounts.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { serve, temporaryDirectory } from '../cli/program.ts';
import { addBuilds, addProject } from '../store/fixture.ts';

const BUILDS = 600;
const EVENTS = 100_000;

test('a cancel and a delete that were answered before a kill are completed by the next server', {
  timeout: 120_000,
}, async () => {
  using directory = temporaryDirectory();
  const data = directory.path;
  createDataDirectory(data);
  const db = openData(data);
  const auth = 'owner@example.org:assay_key';
  const owner = createAccount(db, {
    email: 'owner@example.org',
    kind: 'user',
    admin: false,
    passwordHash: null,
    apiKey: 'assay_key',
  });
  const [canceled, deleted] = [addProject(db, owner.id), addProject(db, owner.id)];
  const { requestId } = db.write(() => {
    const event = db.sqlite.prepare("INSERT INTO events VALUES (?, ?, 'ping', 1, '{}', 1)");
    for (let count = 0; count < EVENTS; count += 1) event.run(db.newId(), deleted.id);
    return addBuilds(
      db,
      canceled,
      Array.from({ length: BUILDS }, (_, at) => BigInt(at + 1)),
    );
  });
  const count = (words: string, id: bigint) => Number(db.sqlite.prepare(words).pluck().get(id));
  const waiting = () =>
    count("SELECT count(*) FROM builds WHERE build_request_id = ? AND build_state = 'enqueued'", requestId);
  const eventsLeft = () => count('SELECT count(*) FROM events WHERE project_id = ?', deleted.id);
  const env = { DOCKER_HOST: `unix://${data}/no-docker.sock`, ASSAY_MIN_FREE_DISK: '1MiB' };
  const request = `/projects/${canceled.id}/build_requests/${requestId}`;

  const first = await serve(data, { env });
  const answers = await Promise.all([
    first.ask('POST', `${request}/cancel`, { auth }),
    first.ask('DELETE', `/projects/${deleted.id}`, { auth }),
  ]);
  await first.end('SIGKILL');
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  assert.ok(waiting() > 0, 'the kill came before the cancel was complete');
  assert.ok(eventsLeft() > 0, 'the kill came before the purge was complete');

  const second = await serve(data, { env });
  assert.equal((await second.ask('GET', `/projects/${deleted.id}`, { auth })).status, 404);
  const endsAt = Date.now() + 60_000;
  while (waiting() + eventsLeft() > 0) {
    assert.ok(Date.now() < endsAt, `${waiting()} builds and ${eventsLeft()} events are left`);
    await after(20);
  }
  const { text } = await second.ask('GET', request, { auth });
  assert.equal(JSON.parse(text).response.build_state, 'canceled');
  await second.end('SIGTERM');
  const events = db.sqlite
    .prepare(
      'SELECT type, count(*), count(DISTINCT resource_id) FROM events WHERE project_id = ? GROUP BY type ORDER BY type',
    )
    .raw()
    .all(canceled.id);
  const once = (type: string, times: number) => [type, BigInt(times), BigInt(times)];
  assert.deepEqual(events, [
    once('build.enqueued', BUILDS),
    once('build.finished', BUILDS),
    once('build_request.enqueued', 1),
    once('build_request.finished', 1),
  ]);
  assert.deepEqual(db.sqlite.pragma('foreign_key_check'), []);
  db.close();
});
