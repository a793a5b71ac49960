// The scheduler with real rows: which fetch and which deploy comes next, and what happens when a worker fails.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { claimBuild, createBuildRequest, recordCommit } from '../../src/store/builds.ts';
import type { Db } from '../../src/store/database/db.ts';
import { createDeploy, createStrategy } from '../../src/store/deploys.ts';
import { createProject } from '../../src/store/projects.ts';
import {
  listFetching,
  listFirstWaitingBuilds,
  listRunningBuilds,
  listWaitingRequests,
} from '../../src/store/queue.ts';
import { moveDeploy } from '../../src/store/transition.ts';
import { createContainerSlots } from '../../src/work/container-slots.ts';
import { createHostSlots } from '../../src/work/host-slots.ts';
import { createKeyedMutex } from '../../src/work/keyed-mutex.ts';
import { deployWork } from '../../src/work/push-deploy.ts';
import { type Lane, startQueue, type WorkKind } from '../../src/work/queue.ts';
import { fetchWork } from '../../src/work/source/fetch-commit.ts';
import { createRepacks } from '../../src/work/source/repack-mirrors.ts';
import {
  addAccount,
  addBuilds,
  addProject,
  addSuite,
  commitFields,
  keyPair,
  openFixture,
} from '../store/fixture.ts';

type Deployer = Parameters<typeof deployWork>[1];

function queueOf(db: Db, path: string, deploy: Deployer = async () => {}, hasFreeSpace = () => true) {
  const live = createLive();
  db.onCommit = topics => live.publish(topics);
  const stopping = new AbortController();
  const logged: string[] = [];
  const log = createLog(line => logged.push(line), {});
  const fetch = {
    db,
    live,
    log,
    dataDirectory: dirname(path),
    stopping: stopping.signal,
    mutex: createKeyedMutex(),
    repacks: createRepacks({ log, stopping: stopping.signal }),
    early: { reserve: () => new Map(), start: () => {}, removeUnused: () => {} },
    handledForcePushes: new Set<bigint>(),
  };
  const lane = (kind: WorkKind): Lane => ({
    slots: createHostSlots(() => live.publish(['queue'])),
    isOpen: hasFreeSpace,
    kinds: [kind],
  });
  const queue = startQueue({ live, log, lanes: [lane(deployWork(db, deploy)), lane(fetchWork(fetch))] });
  return {
    live,
    logged,
    wake: queue.wake,
    stop: () => {
      stopping.abort();
      return queue.stop();
    },
  };
}

function addDeploy(db: Db, projectId: bigint) {
  const strategy = createStrategy(db, {
    projectId,
    name: `strategy ${Math.random()}`,
    strategyType: 'git',
    repositoryUrl: 'git@example.com:x.git',
    localBranch: 'main',
    remoteBranch: 'live',
    automatic: false,
  });
  const commit = recordCommit(db, projectId, commitFields(`${projectId}`.slice(-40).padStart(40, 'b')));
  return createDeploy(db, strategy, commit, 'someone@example.com');
}

test('a deploy whose worker cannot start is retried after a while, not in a loop', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  addDeploy(db, addProject(db).id);
  let attempts = 0;
  const queue = queueOf(db, fixture.path, async () => {
    attempts += 1;
    throw new Error('no space left on device');
  });
  // Other triggers do not start it before that.
  for (let times = 0; times < 50; times++) {
    queue.wake();
    await turn();
  }
  await queue.stop();
  assert.equal(attempts, 1);
  assert.equal(queue.logged.filter(line => line.includes('worker failed')).length, 1);
});

test('a deploy waits while the disk is nearly full, and one in progress continues', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const waiting = addDeploy(db, addProject(db).id);
  const interrupted = addDeploy(db, addProject(db).id);
  moveDeploy(db, interrupted.id, 'start');
  let hasSpace = false;
  const started: bigint[] = [];
  const resumed: bigint[] = [];
  const deploy: Deployer = async ({ id }, isResumed) => {
    started.push(id);
    if (isResumed) resumed.push(id);
    moveDeploy(db, id, 'deploy');
  };
  const queue = queueOf(db, fixture.path, deploy, () => hasSpace);
  for (let times = 0; times < 20; times++) {
    queue.wake();
    await turn();
  }
  assert.deepEqual(started, [interrupted.id]);
  hasSpace = true;
  queue.wake();
  while (started.length < 2) await turn();
  await queue.stop();
  assert.deepEqual(started, [interrupted.id, waiting.id]);
  assert.deepEqual(resumed, [interrupted.id], 'only this one may have been pushed before');
});

test('each deploy is claimed in a turn of its own, so that requests do not wait for many claims', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  for (let number = 0; number < 3; number++) addDeploy(db, addProject(db).id);
  const begun: bigint[] = [];
  const { promise: stopped, resolve: stop } = Promise.withResolvers<void>();
  const queue = queueOf(db, fixture.path, async ({ id }) => {
    begun.push(id);
    await stopped;
  });
  const counts: number[] = [];
  for (let turns = 0; turns < 6; turns++) {
    await turn();
    counts.push(begun.length);
  }
  stop();
  await queue.stop();
  assert.equal(counts.at(-1), 3);
  counts.reduce((before, count) => {
    assert.ok(count <= before + 1, `${counts}`);
    return count;
  }, 0);
});

test('builds are claimed together or not at all, and a failed claim keeps no slot', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const builds = [addProject(db), addProject(db)].flatMap(project => {
    const suites = [addSuite(db, project.id).id];
    return addBuilds(db, project, suites).builds;
  });
  const slots = createContainerSlots({
    concurrency: 2,
    compileSlots: undefined,
    dataDirectory: dirname(fixture.path),
    dockerUnavailable: () => undefined,
    hasFreeSpace: () => true,
  });
  const live = createLive();
  const failed = Promise.withResolvers<string>();
  const ran = Promise.withResolvers<void>();
  const running = new Set<bigint>();
  let isDiskFull = true;
  const kind: WorkKind = {
    listClaimed: () => [],
    listWaiting: () =>
      listFirstWaitingBuilds(db).map(({ id, projectId }) => ({
        key: `build ${id}`,
        groups: ['build'],
        owner: `project ${projectId}`,
        enqueuedAt: id,
        claim() {
          if (isDiskFull && id === builds[1]) throw new Error('no space left on device');
          return (
            claimBuild(db, id) &&
            (async () => {
              running.add(id);
              if (running.size === builds.length) ran.resolve();
            })
          );
        },
      })),
  };
  const log = createLog(failed.resolve, {});
  const lanes = [{ slots, isOpen: slots.isOpen, kinds: [kind], claimTogether: db.write }];
  const queue = startQueue({ live, log, lanes });
  assert.match(await failed.promise, /no space left on device/);
  assert.equal(running.size, 0);
  assert.equal(slots.used(), 0);
  assert.deepEqual(listRunningBuilds(db), []);
  isDiskFull = false;
  queue.wake();
  await ran.promise;
  assert.deepEqual([...running].toSorted(), builds.toSorted());
  await queue.stop();
});

test('projects with many deploys do not delay one with a single deploy', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const busy = [addProject(db), addProject(db), addProject(db), addProject(db)];
  for (const { id } of [...busy, ...busy]) addDeploy(db, id);
  const last = addProject(db);
  addDeploy(db, last.id);
  const order: bigint[] = [];
  const four = Promise.withResolvers<void>();
  const five = Promise.withResolvers<void>();
  const gates = new Map<bigint, () => void>();
  const queue = queueOf(db, fixture.path, async deploy => {
    order.push(deploy.projectId);
    const opened = new Promise<void>(resolve => gates.set(deploy.projectId, resolve));
    if (order.length === 4) four.resolve();
    if (order.length === 5) five.resolve();
    await opened;
    moveDeploy(db, deploy.id, 'deploy');
  });
  await four.promise;
  gates.get((busy[0] as { id: bigint }).id)?.();
  await five.promise;
  for (const open of gates.values()) open();
  await queue.stop();
  assert.equal(order[4], last.id, 'a project that was never served comes first');
});

test('projects whose hosts hang do not delay the fetch of another one', {
  timeout: 30_000,
}, async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const sockets: Socket[] = [];
  const connected = Promise.withResolvers<void>();
  const again = Promise.withResolvers<void>();
  const server = createServer(socket => {
    socket.on('error', () => {});
    sockets.push(socket);
    if (sockets.length === 4) connected.resolve();
    if (sockets.length === 5) again.resolve();
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  const ssh = join(dirname(fixture.path), 'ssh');
  mkdirSync(ssh, { recursive: true });
  writeFileSync(join(ssh, 'config'), `Host hanging\nHostName 127.0.0.1\nPort ${port}\n`);
  const { id: ownerId } = addAccount(db);
  const projects = Array.from({ length: 5 }, (_, index) =>
    createProject(db, {
      ownerId,
      name: `hanging ${index}`,
      description: '',
      repositoryUrl: 'git@hanging:x.git',
      badge: false,
      cancelSuperseded: false,
      keyPair,
    }),
  );
  for (const project of projects) createBuildRequest(db, project, 'main', 'someone@example.com');
  const last = projects[4] as (typeof projects)[number];
  const queue = queueOf(db, fixture.path);
  await connected.promise;
  for (const project of projects.slice(0, 4)) createBuildRequest(db, project, 'main', 'someone@example.com');
  assert.equal(listWaitingRequests(db, last.id, 10).length, 1);
  sockets[0]?.destroy();
  await again.promise;
  assert.deepEqual(
    listFetching(db).filter(request => request.projectId === last.id).length,
    1,
    'the free slot goes to the project that was not served',
  );
  const stopped = queue.stop();
  for (const socket of sockets) socket.destroy();
  server.close();
  await stopped;
});

test('waiting and running jobs are found without scanning the others', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const plan = (query: string) =>
    (db.sqlite.prepare(`EXPLAIN QUERY PLAN ${query}`).all() as { detail: string }[]).map(row => row.detail);
  const asked: string[] = [];
  const prepare = db.sqlite.prepare.bind(db.sqlite);
  db.sqlite.prepare = ((query: string) => {
    asked.push(query);
    return prepare(query);
  }) as typeof db.sqlite.prepare;
  listRunningBuilds(db);
  listFetching(db);
  listWaitingRequests(db, 1n, 1);
  db.sqlite.prepare = prepare;
  const indexes = asked.map(query => plan(query.replaceAll('?', '1')).join());
  assert.match(indexes[0] ?? '', /builds_running/);
  assert.match(indexes[1] ?? '', /build_requests_fetching/);
  assert.match(indexes[2] ?? '', /build_requests_waiting/);
});
