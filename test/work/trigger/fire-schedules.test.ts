// Schedules: each planned time fires exactly once, whatever happens to the process, the clock and the repository.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import type { TriggerOptions } from '../../../src/domain/trigger/trigger.ts';
import { GitFailure } from '../../../src/engine/git/git.ts';
import { createLive } from '../../../src/live.ts';
import { createLog } from '../../../src/log.ts';
import { updateAccount } from '../../../src/store/accounts.ts';
import { listBuildRequests } from '../../../src/store/builds.ts';
import { deleteProject, deleteTrigger } from '../../../src/store/cleanup/purge.ts';
import { createProject, findProject } from '../../../src/store/projects.ts';
import { moveRequest } from '../../../src/store/transition.ts';
import { fireScheduleNow } from '../../../src/store/trigger/schedules.ts';
import {
  createTrigger,
  type Firing,
  findAnyTrigger,
  listFirings,
  type Trigger,
  updateTrigger,
} from '../../../src/store/trigger/triggers.ts';
import { startSchedules } from '../../../src/work/trigger/fire-schedules.ts';
import { addAccount, keyPair, openFixture } from '../../store/fixture.ts';
import { startGitHost } from '../../support/git-host.ts';
import { addCommits } from '../../support/repository.ts';

type ScheduleOptions = TriggerOptions['schedule'];
type Worker = Parameters<typeof startSchedules>[0];

const DAY_MS = 86_400_000;
const page = { limit: 1000, before: undefined };
const at = (text: string) => Date.parse(`${text}Z`);
const [first, second] = ['a', 'b'].map(digit => digit.repeat(40)) as [string, string];

function openSchedules(
  t: TestContext,
  start: string,
  own: Partial<Parameters<typeof createProject>[1]> = {},
) {
  const fixture = openFixture({ ms: at(start) });
  const { db, now } = fixture;
  const live = createLive();
  db.onCommit = topics => live.publish(topics);
  const logged: string[] = [];
  const project = createProject(db, {
    ownerId: addAccount(db).id,
    name: 'project',
    description: '',
    repositoryUrl: 'git@example.com:x.git',
    badge: false,
    cancelSuperseded: false,
    keyPair,
    ...own,
  });
  const workers: { stop(): Promise<void> }[] = [];
  const begin = (options: Partial<Worker> = {}) => {
    const log = createLog(line => logged.push(line), {});
    const worker = startSchedules({ db, live, log, dataDirectory: '', ...options });
    workers.push(worker);
    return worker;
  };
  let made = 0;
  const add = (options: Partial<ScheduleOptions> = {}, nextAt?: string): Trigger => {
    const all = {
      cron: '0 3 * * *',
      time_zone: 'UTC',
      branch: 'main',
      only_new: false,
      late: 60,
      ...options,
    };
    made += 1;
    return createTrigger(db, {
      projectId: project.id,
      name: `schedule ${made}`,
      triggerType: 'schedule',
      options: all,
      nextAt: nextAt === undefined ? null : at(nextAt),
      createdBy: 'ada@example.com',
    });
  };
  /** Sets the clock, and lets the worker see it. */
  const setClock = async (time: string) => {
    now.ms = at(time);
    live.publish(['triggers']);
    for (let turn = 0; turn < 20; turn++) await nextTurn();
  };
  const firingsOf = ({ id }: Trigger): Firing[] => listFirings(db, id, page).toReversed();
  const outcomes = (trigger: Trigger) =>
    firingsOf(trigger).map(({ outcome, reason, plannedAt }) =>
      [reason ?? outcome, plannedAt === null ? '' : new Date(plannedAt).toISOString().slice(0, 16)].join(' '),
    );
  const requests = () => listBuildRequests(db, project.id, page).toReversed();
  const nextAt = ({ id }: Trigger) => new Date(findAnyTrigger(db, id)!.nextAt!).toISOString().slice(0, 16);
  const finishAll = () => {
    for (const { id } of requests()) moveRequest(db, id, 'cancel');
  };
  t.after(async () => {
    await Promise.all(workers.map(worker => worker.stop()));
    fixture[Symbol.dispose]();
  });
  return {
    ...fixture,
    live,
    logged,
    project,
    begin,
    add,
    setClock,
    firingsOf,
    outcomes,
    requests,
    nextAt,
    finishAll,
  };
}

test('a schedule fires at its planned time, and makes a build request for its branch', async t => {
  const { begin, add, setClock, outcomes, requests, nextAt, firingsOf } = openSchedules(
    t,
    '2026-06-01T02:59',
  );
  const trigger = add({ time_zone: 'UTC', branch: 'release/2' }, '2026-06-01T03:00');
  begin();
  await setClock('2026-06-01T02:59:59');
  assert.deepEqual(outcomes(trigger), []);
  await setClock('2026-06-01T03:00');
  assert.deepEqual(outcomes(trigger), ['requested 2026-06-01T03:00']);
  assert.equal(nextAt(trigger), '2026-06-02T03:00');
  await setClock('2026-06-01T03:01');
  const [request, ...others] = requests();
  assert.deepEqual(others, []);
  assert.deepEqual(
    [request!.commitRef, request!.trigger, request!.triggerId, request!.triggerName, request!.createdBy],
    ['release/2', 'schedule', trigger.id, trigger.name, 'ada@example.com'],
  );
  const [firing] = firingsOf(trigger);
  assert.equal(firing!.buildRequestId, request!.id);
  assert.equal(firing!.ref, 'refs/heads/release/2');
});

test('the timer fires by itself, and a new schedule with an earlier time shortens its sleep', async t => {
  const { begin, add, now, outcomes } = openSchedules(t, '2026-06-01T02:59:59');
  const start = now.ms - performance.now();
  Object.defineProperty(now, 'ms', { get: () => Math.floor(start + performance.now()) });
  const fired: string[] = [];
  const { promise: bothFired, resolve } = Promise.withResolvers<void>();
  begin({
    onFiring: outcome => {
      if (fired.push(outcome) === 2) resolve();
    },
  });
  const [one, other] = [add({}, '2026-06-01T03:00:01'), add({}, '2026-06-01T03:00')];
  await bothFired;
  assert.deepEqual([...outcomes(one), ...outcomes(other)], Array(2).fill('requested 2026-06-01T03:00'));
});

test('after a time without a process, only the last planned time fires, if it is not too late', async t => {
  const { begin, add, outcomes, nextAt, requests, setClock } = openSchedules(t, '2026-06-04T03:50');
  const hour = add({}, '2026-06-01T03:00');
  const never = add({ late: 0 }, '2026-06-01T03:00');
  const short = add({ late: 49 }, '2026-06-01T03:00');
  const minutely = add({ cron: '* * * * *', late: 0 }, '2026-06-01T03:00');
  const long = add({ cron: '0 12 1 * *', late: 525_600 }, '2025-07-01T12:00');
  const beyond = add({ cron: '0 12 1 1 *', late: 60 }, '2016-01-01T12:00');
  begin();
  await setClock('2026-06-04T03:50');
  assert.deepEqual(outcomes(hour), ['requested 2026-06-04T03:00']);
  assert.deepEqual(outcomes(never), ['too_late 2026-06-04T03:00']);
  assert.deepEqual(outcomes(short), ['too_late 2026-06-04T03:00']);
  assert.deepEqual(outcomes(minutely), ['requested 2026-06-04T03:50']);
  assert.deepEqual(outcomes(long), ['requested 2026-06-01T12:00']);
  assert.deepEqual(outcomes(beyond), ['too_late 2026-01-01T12:00']);
  assert.deepEqual([hour, never, short].map(nextAt), Array(3).fill('2026-06-05T03:00'));
  assert.equal(nextAt(minutely), '2026-06-04T03:51');
  assert.equal(nextAt(beyond), '2027-01-01T12:00');
  assert.equal(requests().length, 3);
});

test('a schedule that never runs late still fires if the timer is a little late', async t => {
  const { begin, add, outcomes, setClock } = openSchedules(t, '2026-06-01T03:01');
  const trigger = add({ late: 0 }, '2026-06-01T03:00');
  begin();
  await setClock('2026-06-01T03:01');
  assert.deepEqual(outcomes(trigger), ['requested 2026-06-01T03:00']);
});

test('a schedule does not fire while its last build request is unfinished', async t => {
  const { begin, add, outcomes, setClock, finishAll } = openSchedules(t, '2026-06-01T02:00');
  const trigger = add({ cron: '0 * * * *' }, '2026-06-01T02:00');
  const other = add({ cron: '0 3 * * *' }, '2026-06-01T03:00');
  begin();
  await setClock('2026-06-01T02:00');
  await setClock('2026-06-01T03:00');
  finishAll();
  await setClock('2026-06-01T04:00');
  assert.deepEqual(outcomes(trigger), [
    'requested 2026-06-01T02:00',
    'still_running 2026-06-01T03:00',
    'requested 2026-06-01T04:00',
  ]);
  assert.deepEqual(outcomes(other), ['requested 2026-06-01T03:00']);
});

test('a schedule builds nothing while the owner of the project is suspended', async t => {
  const { db, project, begin, add, outcomes, requests, setClock } = openSchedules(t, '2026-06-01T03:00');
  const trigger = add({}, '2026-06-01T03:00');
  updateAccount(db, project.ownerId, { standing: 'suspended' });
  begin();
  await setClock('2026-06-01T03:00');
  assert.deepEqual(outcomes(trigger), ['owner_inactive 2026-06-01T03:00']);
  assert.equal(fireScheduleNow(db, project, trigger).reason, 'owner_inactive');
  assert.deepEqual(requests(), []);
  updateAccount(db, project.ownerId, { standing: 'active' });
  await setClock('2026-06-02T03:00');
  assert.deepEqual(outcomes(trigger).at(-1), 'requested 2026-06-02T03:00');
});

test('a schedule that is fired by hand builds now, and keeps its planned times', async t => {
  const { db, project, add, outcomes, requests, nextAt } = openSchedules(t, '2026-06-01T12:00');
  const trigger = add({}, '2026-06-02T03:00');
  const firing = fireScheduleNow(db, findProject(db, project.id)!, trigger);
  assert.equal(firing.outcome, 'requested');
  assert.deepEqual(outcomes(trigger), ['requested ']);
  assert.equal(requests()[0]!.id, firing.buildRequestId);
  assert.equal(nextAt(trigger), '2026-06-02T03:00');
});

test('with only_new, a schedule fires only if the tip of its branch is another one', async t => {
  const { db, begin, add, outcomes, requests, setClock, finishAll, firingsOf, logged } = openSchedules(
    t,
    '2026-06-01T03:00',
  );
  const trigger = add({ only_new: true }, '2026-06-01T03:00');
  let tip: string | Error | undefined = first;
  begin({
    findTip: async (_, branch) => {
      assert.equal(branch, 'main');
      if (tip instanceof Error) throw tip;
      return tip;
    },
  });
  await setClock('2026-06-01T03:00');
  finishAll();
  await setClock('2026-06-02T03:00');
  tip = second;
  await setClock('2026-06-03T03:00');
  finishAll();
  await setClock('2026-06-04T03:00');
  // If the host cannot be asked, or has no such branch, the fetch of the request shows what is wrong.
  tip = new GitFailure('The host refused the key.');
  await setClock('2026-06-05T03:00');
  finishAll();
  tip = undefined;
  await setClock('2026-06-06T03:00');
  finishAll();
  tip = second;
  await setClock('2026-06-07T03:00');
  assert.deepEqual(outcomes(trigger), [
    'requested 2026-06-01T03:00',
    'unchanged 2026-06-02T03:00',
    'requested 2026-06-03T03:00',
    'unchanged 2026-06-04T03:00',
    'requested 2026-06-05T03:00',
    'requested 2026-06-06T03:00',
    'unchanged 2026-06-07T03:00',
  ]);
  assert.deepEqual(
    requests().map(({ pinned, pinnedRef }) => [pinned, pinnedRef]),
    [
      [first, 'refs/heads/main'],
      [second, 'refs/heads/main'],
      [null, null],
      [null, null],
    ],
  );
  assert.deepEqual(
    firingsOf(trigger).map(({ after }) => after),
    [first, first, second, second, null, null, second],
  );
  assert.equal(logged.filter(line => line.includes('The host refused the key.')).length, 1);
  // The hash is still known after the firing that asked for it was deleted, because it is old.
  db.sqlite.prepare("DELETE FROM firings WHERE outcome = 'requested'").run();
  await setClock('2026-06-08T03:00');
  assert.deepEqual(outcomes(trigger).at(-1), 'unchanged 2026-06-08T03:00');
});

test('with only_new, the tip of the branch is read from the repository over SSH', async t => {
  const host = await startGitHost();
  const remote = host.remote([{ message: 'First' }, { message: 'Other', branch: 'next' }]);
  const keyPair = generateKeyPair('schedules');
  host.sshd.addKey(keyPair.publicKey);
  const own = { repositoryUrl: remote.url, keyPair };
  const { begin, add, setClock, firingsOf, finishAll, live } = openSchedules(t, '2026-06-01T03:00', own);
  const trigger = add({ only_new: true }, '2026-06-01T03:00');
  const fired = async (count: number) => {
    while (firingsOf(trigger).length < count)
      await new Promise<void>(resolve => {
        const unwatch = live.watch(`trigger:${trigger.id}`, () => {
          unwatch();
          resolve();
        });
      });
    finishAll();
  };
  begin({ dataDirectory: host.dataDirectory });
  await fired(1);
  await setClock('2026-06-02T03:00');
  await fired(2);
  const [changed] = addCommits(remote.directory, [{ message: 'Second' }]);
  await setClock('2026-06-03T03:00');
  await fired(3);
  assert.deepEqual(
    firingsOf(trigger).map(({ outcome, after }) => [outcome, after]),
    [
      ['requested', remote.hashes[0]],
      ['unchanged', remote.hashes[0]],
      ['requested', changed],
    ],
  );
});

test('a host that does not answer delays no other schedule, and a stop leaves its firing to the next process', async t => {
  const { begin, add, outcomes, setClock } = openSchedules(t, '2026-06-01T03:00');
  const stuck = Array.from({ length: 30 }, () => add({ only_new: true }, '2026-06-01T03:00'));
  const quick = Array.from({ length: 30 }, () => add({}, '2026-06-01T03:00'));
  const worker = begin({
    findTip: (_project, _branch, signal) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted')))),
  });
  for (let turn = 0; turn < 5; turn++) await setClock('2026-06-01T03:00');
  assert.deepEqual(quick.flatMap(outcomes), Array(30).fill('requested 2026-06-01T03:00'));
  await worker.stop();
  assert.deepEqual(stuck.flatMap(outcomes), []);
  begin({ findTip: async () => first });
  for (let turn = 0; turn < 20; turn++) await setClock('2026-06-01T03:00');
  assert.deepEqual(stuck.flatMap(outcomes), Array(30).fill('requested 2026-06-01T03:00'));
});

test('what changes while the repository is asked is not fired by old options', async t => {
  const { db, project, begin, add, outcomes, setClock, requests } = openSchedules(t, '2026-06-01T03:00');
  const triggers = Array.from({ length: 4 }, () => add({ only_new: true }, '2026-06-01T03:00'));
  const { promise: answer, resolve } = Promise.withResolvers<string>();
  begin({ findTip: () => answer });
  await setClock('2026-06-01T03:00');
  const [disabled, changed, deleted, planned] = triggers as [Trigger, Trigger, Trigger, Trigger];
  updateTrigger(db, disabled, { enabled: false });
  updateTrigger(db, changed, {
    options: { ...JSON.parse(changed.options), branch: 'next', only_new: false },
  });
  deleteTrigger(db, deleted);
  updateTrigger(db, planned, { nextAt: at('2026-06-01T04:00') });
  resolve(first);
  await setClock('2026-06-01T03:00');
  assert.deepEqual([disabled, deleted, planned].flatMap(outcomes), []);
  assert.deepEqual(outcomes(changed), ['requested 2026-06-01T03:00']);
  assert.deepEqual(
    requests().map(request => request.commitRef),
    ['next'],
  );
  deleteProject(db, project.id);
  await setClock('2026-06-02T03:00');
  assert.equal(outcomes(changed).length, 1);
});

test('a clock that is set back or forward by a day fires no planned time twice', async t => {
  const { begin, add, outcomes, setClock, finishAll } = openSchedules(t, '2026-06-01T03:00');
  const daily = add({ late: 1440 }, '2026-06-01T03:00');
  const hourly = add({ cron: '0 * * * *' }, '2026-06-01T03:00');
  begin();
  for (const time of [
    '2026-06-01T03:00',
    '2026-05-31T03:00',
    '2026-05-31T04:00',
    '2026-06-01T02:59',
    '2026-06-01T03:01',
    '2026-06-02T03:01',
    '2026-06-01T03:01',
    '2026-06-01T12:00',
    '2026-06-02T03:00',
    '2026-06-02T03:02',
  ]) {
    await setClock(time);
    finishAll();
  }
  assert.deepEqual(outcomes(daily), ['requested 2026-06-01T03:00', 'requested 2026-06-02T03:00']);
  assert.deepEqual(outcomes(hourly), ['requested 2026-06-01T03:00', 'requested 2026-06-02T03:00']);
});

test('after a clock was a year ahead, schedules go on as soon as it is right', async t => {
  const { begin, add, outcomes, setClock, nextAt, finishAll } = openSchedules(t, '2026-06-01T12:00');
  const daily = add({}, '2026-06-02T03:00');
  const yearly = add({ cron: '0 0 1 1 *' }, '2027-01-01T00:00');
  let worker = begin();
  await setClock('2027-06-01T12:00');
  assert.deepEqual(outcomes(daily), ['too_late 2027-06-01T03:00']);
  await setClock('2026-06-01T12:01');
  assert.deepEqual([nextAt(daily), nextAt(yearly)], ['2026-06-02T03:00', '2027-01-01T00:00']);
  await setClock('2026-06-02T03:00');
  finishAll();
  assert.deepEqual(outcomes(daily).at(-1), 'requested 2026-06-02T03:00');
  // The same if the clock is set back while no process runs.
  await setClock('2027-06-01T12:00');
  await worker.stop();
  worker = begin();
  await setClock('2026-06-02T12:00');
  assert.deepEqual([nextAt(daily), nextAt(yearly)], ['2026-06-03T03:00', '2027-01-01T00:00']);
});

test('a schedule in a zone that this version does not know fails once, and delays no other one', async t => {
  const { db, begin, add, firingsOf, outcomes, setClock } = openSchedules(t, '2026-06-01T03:00');
  const unknown = add({ time_zone: 'Mars/Base' }, '2026-06-01T02:00');
  const broken = add({}, '2026-06-01T02:00');
  updateTrigger(db, broken, { options: [] });
  const trigger = add({}, '2026-06-01T03:00');
  begin();
  await setClock('2026-06-01T03:00');
  await setClock('2026-06-01T03:01');
  const [firing, ...others] = firingsOf(unknown);
  assert.deepEqual([firing!.outcome, others.length], ['failed', 0]);
  assert.match(firing!.reason!, /Mars\/Base is not known/);
  assert.deepEqual(outcomes(trigger), ['requested 2026-06-01T03:00']);
});

test('two processes on one database fire each planned time once', async t => {
  const { begin, add, outcomes, setClock } = openSchedules(t, '2026-06-01T03:00');
  const triggers = Array.from({ length: 50 }, (_, index) =>
    add({ only_new: index % 2 === 0 }, '2026-06-01T03:00'),
  );
  for (let count = 0; count < 2; count++) begin({ findTip: async () => first });
  for (let turn = 0; turn < 20; turn++) await setClock('2026-06-01T03:00');
  assert.deepEqual(triggers.flatMap(outcomes), Array(50).fill('requested 2026-06-01T03:00'));
});

test('a process that is killed at any sync of a firing leaves exactly one firing and one request', async t => {
  const { db, path, now, add, outcomes, requests, finishAll } = openSchedules(t, '2026-06-01T03:10');
  const trigger = add({}, '2026-06-01T03:00');
  const run = async (...through: string[]) => {
    const script = join(import.meta.dirname, 'schedule-process.ts');
    const [program = '', ...args] = [...through, process.execPath, script, path, String(now.ms)];
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
    const [code] = await once(child, 'exit');
    return code === 0;
  };
  let kills = 0;
  for (let isKilled = true; isKilled; now.ms += DAY_MS) {
    const inject = `inject=fsync,fdatasync:signal=SIGKILL:when=${kills + 1}`;
    const trace = ['strace', '-f', '-qq', '-o', '/dev/null', '-e', 'trace=fsync,fdatasync', '-e', inject];
    isKilled = !(await run(...trace));
    // If the firing was lost with the process, the next one makes it.
    if (findAnyTrigger(db, trigger.id)!.nextAt! <= now.ms) assert.ok(await run());
    kills += isKilled ? 1 : 0;
    assert.equal(requests().length, outcomes(trigger).length);
    assert.equal(outcomes(trigger).length, kills + (isKilled ? 0 : 1));
    const today = new Date(now.ms).toISOString().slice(0, 10);
    assert.equal(outcomes(trigger).at(-1), `requested ${today}T03:00`);
    finishAll();
  }
  assert.ok(kills >= 1 && kills < 100, `${kills}`);
});
