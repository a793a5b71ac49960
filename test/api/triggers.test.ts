// Triggers through the API: options by type, secrets, firing now, and what their build requests show.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findProject } from '../../src/store/projects.ts';
import { lookFor, observeHook, observeRef, resolveFiring } from '../../src/store/trigger/firings.ts';
import {
  findAnyTrigger,
  listFirings,
  OLD_SECRET_MS,
  secretsOf,
  type Trigger,
} from '../../src/store/trigger/triggers.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import type { Fields, Wire } from '../support/client.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const P = () => `/projects/${planted.project_id}`;
const ask = (method: string, path: string, form?: Fields) =>
  app.client.call(method, path, { as: app.people.owner.as, ...(form && { form }) });
let made = 0;
const create = async (form: Fields): Promise<Wire> => {
  const answer = await ask('POST', `${P()}/triggers`, { name: `Trigger ${++made}`, ...form });
  assert.equal(answer.status, 201, answer.text);
  return answer.record;
};
const rowOf = (record: Wire) => findAnyTrigger(app.db, BigInt(record.id_str as string)) as Trigger;
const project = () => findProject(app.db, planted.project_id)!;
const MAIN = 'refs/heads/main';
const [A, B, C] = ['a', 'b', 'c'].map(digit => digit.repeat(40)) as [string, string, string];

test('a push trigger shows its address and its secret once', async () => {
  const push = await create({ trigger_type: 'push' });
  assert.equal(push.url, `${app.url}/hooks/${push.id_str}`);
  assert.match(push.secret as string, /^whsec_[\w+/]{43}=$/);
  assert.deepEqual(push.options, {
    branches: '*',
    tags: '',
    pull_requests: false,
    pull_request_variables: false,
    reconcile: 21_600,
  });
  const { record } = await ask('GET', `${P()}/triggers/${push.id_str}`);
  assert.ok(!('secret' in record) && !('url' in record));
  assert.equal(record.state, 'new');
});

test('a new secret replaces the old one, which is accepted for a day', async () => {
  const push = await create({ trigger_type: 'push' });
  const { record } = await ask('POST', `${P()}/triggers/${push.id_str}/secret`);
  assert.notEqual(record.secret, push.secret);
  const row = rowOf(push);
  assert.deepEqual(secretsOf(app.db, row), [record.secret, push.secret]);
  const later = { ...app.db, now: () => Date.now() + OLD_SECRET_MS + 1_000 };
  assert.deepEqual(secretsOf(later, row), [record.secret]);
  const poll = await create({ trigger_type: 'poll' });
  assert.equal((await ask('POST', `${P()}/triggers/${poll.id_str}/secret`)).status, 404);
});

test('a schedule needs a cron expression and a branch, and shows its next times', async () => {
  const refused = await ask('POST', `${P()}/triggers`, { name: 'Night', trigger_type: 'schedule' });
  assert.deepEqual(refused.json, {
    error: { 'options[cron]': ['is_blank'], 'options[branch]': ['is_blank'] },
  });
  for (const cron of ['* * *', '61 * * * *', '0 0 30 2 *', '@reboot', '* * * * * *'])
    assert.deepEqual(
      (
        await ask('POST', `${P()}/triggers`, {
          name: 'Night',
          trigger_type: 'schedule',
          'options[cron]': cron,
          'options[branch]': 'main',
        })
      ).json,
      { error: { 'options[cron]': ['invalid_format'] } },
      cron,
    );
  const schedule = await create({
    trigger_type: 'schedule',
    'options[cron]': '30 2 * * *',
    'options[branch]': 'main',
    'options[time_zone]': 'Europe/Berlin',
  });
  const upcoming = schedule.upcoming as string[];
  assert.equal(upcoming.length, 5);
  assert.equal(schedule.next_at, upcoming[0]);
  for (const [at, time] of upcoming.entries())
    if (at > 0) assert.ok(Date.parse(time) - Date.parse(upcoming[at - 1] as string) >= 23 * 3_600_000);
});

test('a change merges options, and refuses those of another type', async () => {
  const poll = await create({ trigger_type: 'poll', 'options[interval]': '300' });
  const path = `${P()}/triggers/${poll.id_str}`;
  const { record } = await ask('PUT', path, { 'options[branches]': 'main', enabled: 'false' });
  assert.deepEqual(record.options, { branches: 'main', tags: '', interval: 300, build_first: false });
  assert.equal(record.enabled, false);
  assert.equal(record.next_at, null);
  const refused = await ask('PUT', path, { 'options[cron]': '@daily' });
  assert.deepEqual(refused.json, { error: { 'options[cron]': ['invalid_format'] } });
  const enabled = await ask('PUT', path, { enabled: 'true' });
  assert.notEqual(enabled.record.next_at, null);
});

test('a change of a ref is built once, whichever trigger sees it first', async () => {
  const all = (await ask('GET', `${P()}/triggers`)).list;
  for (const { id_str } of all) await ask('PUT', `${P()}/triggers/${id_str}`, { enabled: 'false' });
  const push = rowOf(await create({ trigger_type: 'push', 'options[branches]': 'main' }));
  const poll = rowOf(await create({ trigger_type: 'poll', 'options[branches]': 'release/*' }));
  const hook = { event: 'push', delivery: 'd1', pushedBy: 'ada' };
  const first = observeHook(app.db, project(), push, { ref: MAIN, before: null, after: A }, hook);
  assert.equal(first.outcome, 'requested');
  const { record } = await ask('GET', `${P()}/build_requests/${first.buildRequestId}`);
  assert.equal(record.commit_ref, 'main');
  assert.equal(record.trigger, 'push');
  assert.equal(record.trigger_id_str, String(push.id));
  assert.equal(record.pushed_by, 'ada');
  assert.equal(record.created_by, app.people.owner.account.email);

  const again = observeHook(app.db, project(), push, { ref: MAIN, before: null, after: A }, hook);
  assert.equal(again.outcome, 'unchanged');
  assert.equal(
    observeRef(app.db, project(), poll, { ref: MAIN, after: A }, { event: 'look' }).outcome,
    'unchanged',
  );
  // The branch that only the poll wants is built although the hook saw it first.
  const other = observeHook(
    app.db,
    project(),
    push,
    { ref: 'refs/heads/release/1', before: null, after: A },
    hook,
  );
  assert.equal(other.outcome, 'requested');
  assert.equal(other.triggerId, poll.id);
  const filtered = observeHook(
    app.db,
    project(),
    push,
    { ref: 'refs/heads/topic', before: null, after: A },
    hook,
  );
  assert.deepEqual([filtered.outcome, filtered.reason], ['ignored', 'filtered']);
});

test('a hook that does not start from the known hash asks the repository', () => {
  const push = findAnyTrigger(app.db, planted.trigger_id) as Trigger;
  const ref = 'refs/heads/reordered';
  const observe = (before: string | null, after: string | null) =>
    observeHook(app.db, project(), push, { ref, before, after }, { event: 'push' }).outcome;
  assert.equal(observe(null, A), 'requested');
  assert.equal(observe(B, C), 'looking');
  assert.equal(findAnyTrigger(app.db, push.id)?.nextAt !== null, true);
  // The look records the truth. The late hook from A to B then has to ask again.
  assert.equal(
    observeRef(app.db, project(), push, { ref, after: C }, { event: 'look' }).outcome,
    'requested',
  );
  assert.equal(observe(A, B), 'looking');
  assert.equal(observe(C, null), 'ignored');
  assert.equal(observe(null, null), 'ignored');
});

test('a tag is not built by default, and a trigger that wants it asks the repository for its commit', async () => {
  const ref = 'refs/tags/v1';
  const push = findAnyTrigger(app.db, planted.trigger_id) as Trigger;
  const change = { ref, before: null, after: B };
  const ignored = observeHook(app.db, project(), push, change, { event: 'push' });
  assert.deepEqual([ignored.outcome, ignored.reason], ['ignored', 'filtered']);
  const tags = rowOf(await create({ trigger_type: 'push', 'options[tags]': 'v*' }));
  assert.equal(observeHook(app.db, project(), tags, change, { event: 'push' }).outcome, 'looking');
  const seen = observeRef(app.db, project(), tags, { ref, after: C }, { event: 'look' });
  assert.equal(seen.outcome, 'requested');
  const { record } = await ask('GET', `${P()}/build_requests/${seen.buildRequestId}`);
  assert.equal(record.commit_ref, 'v1');
});

test('firing a push trigger waits for the look and returns what it found', async () => {
  const push = rowOf(await create({ trigger_type: 'push' }));
  const fired = ask('POST', `${P()}/triggers/${push.id}/fire`);
  // A stand-in for the worker: the look finds one change.
  const looking = await firstFiring(push);
  observeRef(app.db, project(), push, { ref: 'refs/heads/fired', after: A }, { event: 'look' });
  resolveFiring(app.db, looking, { outcome: 'looked' });
  const answer = await fired;
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(
    answer.list.map(firing => [firing.event, firing.outcome]),
    [
      ['look', 'requested'],
      ['fire', 'looked'],
    ],
  );
});

test('firing without waiting returns the look that is under way', async () => {
  const push = rowOf(await create({ trigger_type: 'push' }));
  const { status, list } = await ask('POST', `${P()}/triggers/${push.id}/fire`, { wait: 'false' });
  assert.equal(status, 200);
  assert.deepEqual(
    list.map(firing => [firing.event, firing.outcome]),
    [['fire', 'looking']],
  );
});

test('a suspended owner builds nothing', () => {
  const owner = app.people.suspended;
  const theirs = app.plant(owner);
  const trigger = findAnyTrigger(app.db, theirs.trigger_id) as Trigger;
  const change = { ref: MAIN, before: null, after: A };
  const firing = observeHook(app.db, findProject(app.db, theirs.project_id)!, trigger, change, {
    event: 'push',
  });
  assert.deepEqual([firing.outcome, firing.reason], ['ignored', 'owner_inactive']);
});

test('deleting a trigger frees its name and keeps its build requests', async () => {
  const push = await create({ trigger_type: 'push', name: 'Short-lived' });
  const row = rowOf(push);
  const change = { ref: 'refs/heads/kept', before: null, after: A };
  const { buildRequestId } = observeHook(app.db, project(), row, change, { event: 'push' });
  lookFor(app.db, row, undefined, { event: 'push' });
  const deleted = await ask('DELETE', `${P()}/triggers/${row.id}`);
  assert.deepEqual(deleted.record, { destroyed: true });
  assert.equal((await ask('GET', `${P()}/triggers/${row.id}`)).status, 404);
  assert.equal((await ask('GET', `${P()}/build_requests/${buildRequestId}`)).record.trigger, 'push');
  await create({ trigger_type: 'push', name: 'short-lived' });
});

/** The first firing of a trigger, as soon as there is one. */
async function firstFiring(trigger: Trigger) {
  for (;;) {
    const [firing] = listFirings(app.db, trigger.id, { limit: 1, before: undefined });
    if (firing) return firing;
    await new Promise(resolve => setImmediate(resolve));
  }
}
