// Looks at repositories: first looks, changes, races with hooks, failures, and the limits for all triggers together.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { eq } from 'drizzle-orm';
import { generateKeyPair } from '../../../src/domain/ssh-key.ts';
import { GitFailure } from '../../../src/engine/git/git.ts';
import type { RemoteRefs } from '../../../src/engine/git/ls-remote.ts';
import { accounts, projects } from '../../../src/store/database/schema.ts';
import { listEvents } from '../../../src/store/events.ts';
import { findProject, type Project } from '../../../src/store/projects.ts';
import { listSeenRefs, lookFor } from '../../../src/store/trigger/firings.ts';
import { findAnyTrigger, updateTrigger } from '../../../src/store/trigger/triggers.ts';
import { addProject, openFixture } from '../../store/fixture.ts';
import { startGitHost } from '../../support/git-host.ts';
import { freePort } from '../../support/ports.ts';
import { addCommits } from '../../support/repository.ts';
import { addTrigger, answerOf, hashOf, openWatchFixture } from '../../support/watch-fixture.ts';

const MAIN = 'refs/heads/main';
const known = ({ db, project }: ReturnType<typeof openWatchFixture>) =>
  Object.fromEntries(listSeenRefs(db, project.id, '', 1000).map(({ ref, hash }) => [ref, hash]));

test('the first look records every ref and builds nothing; later changes are built once', async () => {
  const world = openWatchFixture();
  const { db, project, push, looks, lookAgain, requests, repository } = world;
  push('refs/heads/other', 'other');
  push('refs/tags/v1', 'one');
  const trigger = addTrigger(db, project, 'poll');
  world.start();
  await looks(1);
  assert.deepEqual(requests(), []);
  assert.deepEqual(known(world), Object.fromEntries(repository.refs));
  assert.equal(world.trigger(trigger).state, 'ok');

  push(MAIN, 'two');
  push('refs/heads/new', 'three');
  push('refs/tags/v2', 'two');
  repository.refs.delete('refs/heads/other');
  await lookAgain(trigger);
  await lookAgain(trigger);
  assert.deepEqual(requests().sort(), [
    ['main', hashOf('two')],
    ['new', hashOf('three')],
  ]);
  assert.deepEqual(known(world), Object.fromEntries(repository.refs));
  assert.deepEqual(world.firings(trigger).sort(), [
    ['look', null, 'ignored', 'first_look'],
    ['look', 'refs/heads/main', 'requested', null],
    ['look', 'refs/heads/new', 'requested', null],
    ['look', 'refs/heads/other', 'ignored', 'deleted'],
    ['look', 'refs/tags/v2', 'ignored', 'filtered'],
  ]);
  assert.deepEqual(world.outcomes, ['unchanged', 'changed', 'unchanged']);
});

test('a look that finds nothing new writes only when the next one is due', async () => {
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'poll', { interval: 120 });
  world.start();
  await world.looks(1);
  const rows = () =>
    ['seen_refs', 'firings', 'repository_looks', 'build_requests', 'events'].map(table =>
      world.db.sqlite.prepare(`SELECT * FROM ${table}`).all(),
    );
  const before = rows();
  const { nextAt: _, ...unchanged } = world.trigger(trigger);
  await world.lookAgain(trigger);
  assert.deepEqual(rows(), before);
  const { nextAt, ...now } = world.trigger(trigger);
  assert.deepEqual(now, unchanged);
  const delayMs = (nextAt as number) - world.now.ms;
  assert.ok(delayMs >= 108_000 && delayMs <= 132_000, `${delayMs}`);
});

test('build_first builds the default branch once', async () => {
  const world = openWatchFixture();
  world.push('refs/heads/other', 'other');
  const trigger = addTrigger(world.db, world.project, 'poll', { build_first: true });
  world.start();
  await world.looks(1);
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), [['main', hashOf('one')]]);
});

test('another repository URL is a first look again', async () => {
  const world = openWatchFixture();
  const { db, project, repository } = world;
  const trigger = addTrigger(db, project, 'poll');
  world.start();
  await world.looks(1);
  db.write(() =>
    db.orm
      .update(projects)
      .set({ repositoryUrl: 'git@example.com:y.git' })
      .where(eq(projects.id, project.id))
      .run(),
  );
  repository.refs.clear();
  world.push('refs/heads/trunk', 'unrelated');
  repository.defaultBranch = 'refs/heads/trunk';
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), []);
  assert.deepEqual(known(world), { 'refs/heads/trunk': hashOf('unrelated') });
  world.push('refs/heads/trunk', 'next');
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), [['trunk', hashOf('next')]]);
});

test('changed filters, a restart and a disabled trigger lose no change', async () => {
  const world = openWatchFixture();
  const { db, project, push } = world;
  const trigger = addTrigger(db, project, 'poll', { branches: 'main' });
  world.start();
  await world.looks(1);
  await world.stop();
  updateTrigger(db, trigger, { enabled: false });
  push(MAIN, 'two');
  push(MAIN, 'three');
  world.now.ms += 7 * 86_400_000;
  updateTrigger(db, world.trigger(trigger), {
    enabled: true,
    options: { branches: '*', tags: '', interval: 120, build_first: false },
  });
  world.start();
  await world.looks(2);
  assert.deepEqual(world.requests(), [['main', hashOf('three')]]);
});

test('of more than 20 changes, 20 are built: the default branch and branches before tags', async () => {
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'poll', { tags: '*' });
  world.start();
  await world.looks(1);
  for (let n = 10; n < 40; n += 1) world.push(`refs/heads/b${n}`, `b${n}`);
  world.push('refs/tags/v1', 'one');
  world.push(MAIN, 'two');
  await world.lookAgain(trigger);
  await world.lookAgain(trigger);
  const names = world.requests().map(([name]) => name);
  assert.equal(names.length, 20);
  assert.equal(names[0], 'main');
  assert.ok(!names.includes('v1'));
  const tooMany = world.firings(trigger).filter(([, , , reason]) => reason === 'too_many');
  assert.equal(tooMany.length, 12);
  world.push('refs/heads/b39', 'again');
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests().at(-1), ['b39', hashOf('again')]);
});

test('of 200,000 refs, the one that changed is built', async () => {
  const world = openWatchFixture();
  for (let n = 0; n < 200_000; n += 1) world.repository.refs.set(`refs/heads/b${n}`, hashOf('one'));
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  assert.equal(world.db.sqlite.prepare('SELECT count(*) FROM seen_refs').pluck().get(), 200_001n);
  world.push('refs/heads/b150000', 'two');
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), [['b150000', hashOf('two')]]);
});

test('looks that fail are retried later and later, lose nothing, and are reported once', async () => {
  let isDown = true;
  const world = openWatchFixture({
    ask: async () => {
      if (isDown) throw new GitFailure('The host is down: start it.');
      return answerOf(world.repository);
    },
  });
  const trigger = addTrigger(world.db, world.project, 'poll', { interval: 100 });
  isDown = false;
  world.start();
  await world.looks(1);
  isDown = true;
  world.push(MAIN, 'two');
  const before = known(world);
  const delaysS: number[] = [];
  const states: string[] = [];
  for (let n = 0; n < 8; n += 1) {
    await world.lookAgain(trigger);
    const { nextAt, state, error } = world.trigger(trigger);
    assert.equal(error, 'The host is down: start it.');
    delaysS.push(((nextAt as number) - world.now.ms) / 1000);
    states.push(state);
  }
  for (const [n, planned] of [200, 400, 800, 1600, 3200, 3600, 3600, 3600].entries())
    assert.ok(Math.abs((delaysS[n] as number) / planned - 1) <= 0.1001, `${n}: ${delaysS[n]}`);
  assert.deepEqual(states, ['ok', 'ok', ...Array(6).fill('failing')]);
  assert.deepEqual(known(world), before);

  isDown = false;
  await world.lookAgain(trigger);
  const { state, error, failures } = world.trigger(trigger);
  assert.deepEqual([state, error, failures], ['ok', null, 0]);
  const events = listEvents(world.db, world.project.id, 0n, 100)
    .filter(({ type }) => type.startsWith('trigger.'))
    .map(({ body }) => JSON.parse(body));
  assert.deepEqual(
    events.map(({ type, trigger: { state, error } }) => [type, state, error]),
    [
      ['trigger.failing', 'failing', 'The host is down: start it.'],
      ['trigger.recovered', 'ok', null],
    ],
  );
  assert.deepEqual(world.requests(), [['main', hashOf('two')]]);
});

test('a hook that starts from another hash than the known one is resolved by a look', async () => {
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'push', { reconcile: 0 });
  world.start();
  world.push(MAIN, 'two');
  world.push('refs/heads/other', 'other');
  // The first hook of a repository that nobody has looked at: what it names is built, and nothing else.
  const firing = world.hook(trigger, MAIN, 'one', 'two');
  assert.equal(firing.outcome, 'looking');
  await world.looks(1);
  const resolved = world.firing(firing.id);
  assert.equal(resolved.outcome, 'requested');
  assert.equal(resolved.delivery, 'd');
  assert.deepEqual(world.requests(), [['main', hashOf('two')]]);
  assert.equal(world.trigger(trigger).nextAt, null);

  // A lost hook, then one that starts from what the lost one reported.
  world.push(MAIN, 'four');
  const second = world.hook(trigger, MAIN, 'three', 'four');
  await world.looks(2);
  assert.equal(world.firing(second.id).outcome, 'requested');
  assert.equal(world.requests().length, 2);
  // The lost one arrives after all.
  const late = world.hook(trigger, MAIN, 'two', 'three');
  assert.equal(late.outcome, 'looking');
  await world.looks(3);
  while (world.firing(late.id).outcome === 'looking') await world.lookAgain(trigger);
  assert.equal(world.firing(late.id).outcome, 'unchanged');
  assert.equal(world.requests().length, 2);
});

test('a host that does not yet show what its hook reported is asked again', async () => {
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'push');
  world.start();
  const firing = world.hook(trigger, MAIN, 'zero', 'two');
  await world.looks(1);
  assert.equal(world.firing(firing.id).outcome, 'looking');
  world.push(MAIN, 'two');
  await world.lookAgain(trigger);
  assert.equal(world.firing(firing.id).outcome, 'requested');
  assert.deepEqual(world.requests().at(-1), ['main', hashOf('two')]);
});

test('a hook that is believed during a look wins over the older answer', async () => {
  let pause: PromiseWithResolvers<void> | undefined;
  const world = openWatchFixture({
    ask: async () => {
      const answer = answerOf(world.repository);
      await pause?.promise;
      return answer;
    },
  });
  world.push('refs/heads/gone', 'gone');
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  pause = Promise.withResolvers();
  const looked = world.lookAgain(trigger);
  await nextTurn();
  world.push(MAIN, 'two');
  world.hook(trigger, MAIN, 'one', 'two');
  world.hook(trigger, 'refs/heads/new', null, 'new');
  world.push('refs/heads/new', 'new');
  world.hook(trigger, 'refs/heads/gone', 'gone', null);
  world.repository.refs.delete('refs/heads/gone');
  pause.resolve();
  await looked;
  pause = undefined;
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), [
    ['main', hashOf('two')],
    ['new', hashOf('new')],
  ]);
  assert.deepEqual(known(world), Object.fromEntries(world.repository.refs));
});

test('a branch that goes back to where the last look found it is built again', async () => {
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  world.hook(trigger, MAIN, 'one', 'two');
  world.now.ms += 60_000;
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), [
    ['main', hashOf('two')],
    ['main', hashOf('one')],
  ]);
});

test('hook and poll that race for the same push make one request, 1,000 times', async () => {
  let seen = () => {};
  const world = openWatchFixture({
    rate: 1_000_000,
    ask: async () => {
      for (let turns = Math.random() * 4; turns > 1; turns -= 1) await nextTurn();
      const answer = answerOf(world.repository);
      seen();
      for (let turns = Math.random() * 4; turns > 1; turns -= 1) await nextTurn();
      return answer;
    },
  });
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  let last = 'one';
  for (let n = 0; n < 1000; n += 1) {
    const text = `push ${n}`;
    const hook = () => world.hook(trigger, MAIN, last, text);
    const looked = world.lookAgain(trigger);
    const isAnswered = new Promise<void>(resolve => {
      seen = resolve;
    });
    if (n % 4 > 0) await nextTurn();
    world.push(MAIN, text);
    if (n % 3 === 0) hook();
    else if (n % 3 === 1) {
      await isAnswered;
      hook();
    }
    await looked;
    if (n % 3 === 2) hook();
    last = text;
    // The look may have been discarded as too old.
    if (Object.values(known(world))[0] !== hashOf(text)) await world.lookAgain(trigger);
  }
  const requests = world.requests();
  assert.equal(requests.length, 1000);
  assert.equal(new Set(requests.map(([, pinned]) => pinned)).size, 1000);
});

test('a stop ends the looks that are under way, and the next process looks again', async () => {
  let signals = 0;
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'poll');
  const asked = Promise.withResolvers<void>();
  const watch = world.start({
    ask: (_, signal) =>
      new Promise<RemoteRefs>((_, reject) => {
        signal.addEventListener('abort', () => {
          signals += 1;
          reject(new GitFailure('The work was canceled.'));
        });
        asked.resolve();
      }),
  });
  await asked.promise;
  await watch.stop();
  assert.equal(signals, 1);
  assert.deepEqual([world.trigger(trigger).failures, world.outcomes.length], [0, 0]);
  world.start();
  await world.looks(1);
});

test('a firing that a caller waits for ends with the look, also if it fails', async () => {
  let isDown = false;
  const world = openWatchFixture({
    ask: async () => {
      if (isDown) throw new GitFailure('The host is down: start it.');
      return answerOf(world.repository);
    },
  });
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  const fire = async () => {
    const { id } = lookFor(world.db, world.trigger(trigger), undefined, { event: 'fire' });
    await world.looks(world.outcomes.length + 1);
    return [world.firing(id).outcome, world.firing(id).reason];
  };
  assert.deepEqual(await fire(), ['unchanged', null]);
  world.push(MAIN, 'two');
  assert.deepEqual(await fire(), ['looked', null]);
  assert.deepEqual(world.requests(), [['main', hashOf('two')]]);
  isDown = true;
  assert.deepEqual(await fire(), ['failed', 'The host is down: start it.']);
});

test('a trigger that is switched off looks when somebody fires it, and not by itself', async () => {
  const world = openWatchFixture();
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  updateTrigger(world.db, world.trigger(trigger), { enabled: false });
  world.push(MAIN, 'two');
  world.now.ms += 600_000;
  const hook = lookFor(world.db, world.trigger(trigger), undefined, { event: 'push' });
  for (let turn = 0; turn < 20; turn += 1) await nextTurn();
  assert.equal(world.outcomes.length, 1);
  const fired = lookFor(world.db, world.trigger(trigger), undefined, { event: 'fire' });
  await world.looks(2);
  assert.deepEqual(
    [hook, fired].map(({ id }) => world.firing(id).outcome),
    ['looked', 'looked'],
  );
  assert.deepEqual(world.requests(), [['main', hashOf('two')]]);
});

test('the firing of a hook waits for a look that succeeds', async () => {
  let isDown = true;
  const world = openWatchFixture({
    ask: async () => {
      if (isDown) throw new GitFailure('The host is down: start it.');
      return answerOf(world.repository);
    },
  });
  const trigger = addTrigger(world.db, world.project, 'push');
  world.start();
  world.push(MAIN, 'two');
  const { id } = world.hook(trigger, MAIN, 'one', 'two');
  await world.looks(1);
  assert.deepEqual(
    [world.firing(id).outcome, world.firing(id).reason],
    ['looking', 'The host is down: start it.'],
  );
  isDown = false;
  await world.lookAgain(trigger);
  assert.deepEqual([world.firing(id).outcome, world.firing(id).reason], ['requested', null]);
});

test('nothing is looked at for an owner who is suspended; what changed is found later', async () => {
  const world = openWatchFixture();
  const { db, project, now } = world;
  const trigger = addTrigger(db, project, 'poll');
  world.start();
  await world.looks(1);
  const setStanding = (standing: 'active' | 'suspended') =>
    db.write(() => db.orm.update(accounts).set({ standing }).where(eq(accounts.id, project.ownerId)).run());
  setStanding('suspended');
  world.push(MAIN, 'two');
  const resolved = new Promise<void>(resolve => {
    world.live.watch(`trigger:${trigger.id}`, () => {
      if (world.firings(trigger).at(-1)?.[3] === 'owner_inactive') resolve();
    });
  });
  lookFor(db, world.trigger(trigger), undefined, { event: 'fire' });
  await resolved;
  assert.equal(world.outcomes.length, 1);
  setStanding('active');
  now.ms += 200_000;
  await world.lookAgain(trigger);
  assert.deepEqual(world.requests(), [['main', hashOf('two')]]);
});

test('a trigger that is disabled during a look builds nothing until it is enabled again', async () => {
  let meanwhile = () => {};
  const world = openWatchFixture({
    ask: async () => {
      meanwhile();
      return answerOf(world.repository);
    },
  });
  const trigger = addTrigger(world.db, world.project, 'poll');
  world.start();
  await world.looks(1);
  world.push(MAIN, 'two');
  const { promise, resolve } = Promise.withResolvers<void>();
  meanwhile = () => {
    updateTrigger(world.db, world.trigger(trigger), { enabled: false });
    resolve();
  };
  world.now.ms = world.trigger(trigger).nextAt as number;
  world.live.publish(['triggers']);
  await promise;
  for (let turn = 0; turn < 20; turn += 1) await nextTurn();
  assert.deepEqual(world.requests(), []);
  meanwhile = () => {};
  updateTrigger(world.db, world.trigger(trigger), { enabled: true });
  await world.looks(2);
  assert.deepEqual(world.requests(), [['main', hashOf('two')]]);
});

test('1,000 triggers are looked at in turn, within the limits for all and for each host', async () => {
  const running = new Map<string, number>();
  const looked = new Map<bigint, number>();
  let most = 0;
  let mostOfHost = 0;
  const ask = async ({ id, repositoryUrl }: Project) => {
    const host = repositoryUrl.slice(0, repositoryUrl.indexOf(':'));
    const count = (change: number) => running.set(host, (running.get(host) ?? 0) + change);
    count(1);
    most = Math.max(
      most,
      [...running.values()].reduce((sum, n) => sum + n, 0),
    );
    mostOfHost = Math.max(mostOfHost, running.get(host) ?? 0);
    looked.set(id, (looked.get(id) ?? 0) + 1);
    for (let turn = 0; turn < 5; turn += 1) await nextTurn();
    count(-1);
    return answerOf(world.repository);
  };
  const world = openWatchFixture({ ask, rate: 500 });
  const { db } = world;
  for (let n = 0; n < 1000; n += 1) {
    const { id } = addProject(db, world.project.ownerId);
    db.write(() =>
      db.orm
        .update(projects)
        .set({ repositoryUrl: `git@host-${n % 7}:${n}.git` })
        .where(eq(projects.id, id))
        .run(),
    );
    addTrigger(db, findProject(db, id) as Project, 'poll', { interval: 30 });
  }
  // A hook that is called without end takes every second look at most.
  const flooding = addTrigger(db, world.project, 'push', { reconcile: 0 });
  const flood = setInterval(
    () => lookFor(db, findAnyTrigger(db, flooding.id)!, undefined, { event: 'push' }),
    1,
  );
  const startedMs = performance.now();
  world.start();
  while (looked.size < 1001) await world.looks(world.outcomes.length + 50);
  clearInterval(flood);
  const tookMs = performance.now() - startedMs;
  const { [`${world.project.id}`]: flooded = 0, ...others } = Object.fromEntries(looked);
  assert.deepEqual(new Set(Object.values(others)), new Set([1]));
  assert.ok(flooded <= 1010, `${flooded} looks of one trigger`);
  assert.ok(most <= 4 && mostOfHost <= 2, `${most} at once, ${mostOfHost} of one host`);
  assert.ok(
    world.outcomes.length <= (tookMs / 1000) * 500 + 1,
    `${world.outcomes.length} looks in ${tookMs} ms`,
  );
});

test('a process that is killed in any phase of a look makes each request exactly once', async () => {
  using fixture = openFixture({ ms: Date.now() });
  const { db, path } = fixture;
  const project = addProject(db);
  addTrigger(db, project, 'poll', { interval: 30 });
  const refs = new Map([[MAIN, hashOf('one')]]);
  for (let n = 10; n < 60; n += 1) refs.set(`refs/heads/b${n}`, hashOf('one'));
  const refsFile = `${path}.refs`;
  let aheadMs = 0;
  const look = (killAt: number, when: 'before' | 'after') => {
    writeFileSync(refsFile, JSON.stringify([...refs]));
    // A look that was claimed by a killed process is due after a minute.
    aheadMs += 100_000;
    const program = join(import.meta.dirname, 'watch-process.ts');
    const { signal, status, stderr } = spawnSync(
      process.execPath,
      [program, path, refsFile, `${killAt}`, when, `${aheadMs}`],
      { encoding: 'utf8', timeout: 60_000 },
    );
    assert.ok(signal === 'SIGKILL' || status === 0, `${signal} ${status} ${stderr}`);
    return signal === 'SIGKILL';
  };
  const count = (query: string) => Number(db.sqlite.prepare(query).pluck().get());
  const requests = () => count('SELECT count(*) FROM build_requests');
  const killEverywhere = (check: () => void, change: () => void) => {
    for (const when of ['before', 'after'] as const)
      for (let killAt = 1; ; killAt += 1) {
        change();
        if (!look(killAt, when)) break;
        look(0, 'after');
        check();
      }
  };

  // First looks: nothing is built.
  killEverywhere(
    () => {
      assert.equal(requests(), 0);
      assert.equal(count('SELECT count(*) FROM seen_refs'), refs.size);
    },
    () => db.sqlite.exec('DELETE FROM repository_looks; DELETE FROM seen_refs'),
  );

  // 30 changes: 20 are built, and a branch is deleted.
  let round = 0;
  let expected = 0;
  killEverywhere(
    () => {
      assert.equal(requests(), expected);
      assert.equal(count('SELECT count(DISTINCT pinned || pinned_ref) FROM build_requests'), expected);
      assert.equal(
        count(`SELECT count(*) FROM build_requests WHERE pinned = '${hashOf(`main ${round}`)}'`),
        1,
      );
    },
    () => {
      round += 1;
      expected += 20;
      refs.set(MAIN, hashOf(`main ${round}`));
      for (let n = 10; n < 39; n += 1) refs.set(`refs/heads/b${n}`, hashOf(`${n} ${round}`));
      refs.delete(`refs/heads/b${round + 38}`);
    },
  );
  assert.ok(round >= 8, `${round} kills`);
});

test('a real host that is down, has another key or refuses ours is reported, and asked again until it answers', async () => {
  const { sshd, dataDirectory, remote } = await startGitHost();
  const { directory, hashes, url } = remote([{ message: 'One\n' }]);
  const keyPair = generateKeyPair('polled');
  sshd.addKey(keyPair.publicKey);
  const world = openWatchFixture({ dataDirectory, project: { repositoryUrl: url, keyPair } });
  const trigger = addTrigger(world.db, world.project, 'poll', { build_first: true });
  const errorOf = () => world.trigger(trigger).error ?? '';
  world.start();
  await world.looks(1);
  assert.deepEqual(world.requests(), [['main', hashes[0]]]);

  const [second] = addCommits(directory, [{ message: 'Two\n' }]);
  const config = join(dataDirectory, 'ssh', 'config');
  const knownHosts = join(dataDirectory, 'ssh', 'known_hosts');
  writeFileSync(config, sshd.clientConfig.replace(/Port \d+/, `Port ${await freePort()}`));
  await world.lookAgain(trigger);
  assert.match(errorOf(), /refuses connections on port/);
  writeFileSync(config, sshd.clientConfig);
  sshd.removeKey(keyPair.publicKey);
  await world.lookAgain(trigger);
  assert.match(errorOf(), /refused the project's key/);
  sshd.addKey(keyPair.publicKey);
  await sshd.changeHostKey();
  await world.lookAgain(trigger);
  assert.match(errorOf(), /host key of .* has changed/);
  assert.equal(world.trigger(trigger).state, 'failing');
  assert.ok(!errorOf().includes(dataDirectory), errorOf());
  rmSync(knownHosts);
  await world.lookAgain(trigger);
  assert.deepEqual([world.trigger(trigger).state, errorOf()], ['ok', '']);
  assert.deepEqual(world.requests(), [
    ['main', hashes[0]],
    ['main', second],
  ]);
});
