// The state machines through the API: allowed and refused transitions, and the states that follow from them.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { BuildEvent } from '../../src/domain/build.ts';
import { createBuildRequest, enqueueBuilds, recordCommit } from '../../src/store/builds.ts';
import { purgeSomeRows } from '../../src/store/cleanup/purge.ts';
import { findDependency } from '../../src/store/dependencies.ts';
import { findProject } from '../../src/store/projects.ts';
import { createSuite } from '../../src/store/suites.ts';
import { moveBuild, moveDependency, moveDeploy, moveRequest } from '../../src/store/transition.ts';
import { bootApp, commitFields, type TestApp } from '../support/app.ts';
import { listBuildsOfRequest } from '../support/builds.ts';
import { errors, type Fields } from '../support/client.ts';
import { compileAll, enqueueCompile, startCompile } from './states.ts';

let app: TestApp;
before(async () => {
  app = await bootApp();
});
after(() => app.close());

const get = (path: string) => app.client.get(path, app.people.owner.as);
const post = (path: string, body?: Buffer) =>
  app.client.call('POST', path, { as: app.people.owner.as, ...(body && { body }) });

/** A project with a request that has a queued build for each suite. */
function begin(suites: number): { project: string; request: bigint; commit: bigint; builds: bigint[] } {
  const there = app.plant();
  const row = findProject(app.db, there.project_id);
  assert(row);
  return app.db.write(() => {
    const request = createBuildRequest(app.db, row, 'main', 'owner@example.org');
    const commit = recordCommit(app.db, row.id, commitFields('c'.repeat(40)));
    moveRequest(app.db, request.id, 'fetch');
    enqueueBuilds(
      app.db,
      request.id,
      commit,
      'main',
      Array.from({ length: suites }, (_, at) => {
        const suite = createSuite(app.db, {
          projectId: row.id,
          name: `Suite ${at}`,
          description: '',
          command: 'make',
          image: null,
        });
        return { suiteId: suite.id, suiteName: suite.name, runs: true, rules: [] };
      }),
    );
    const builds = listBuildsOfRequest(app.db, request.id).map(build => build.id);
    return {
      project: `/projects/${row.id}`,
      request: request.id,
      commit: commit.id,
      builds: builds.reverse(),
    };
  });
}

async function states(at: ReturnType<typeof begin>): Promise<unknown[]> {
  const paths = [
    `${at.project}/build_requests/${at.request}`,
    `${at.project}/commits/${at.commit}`,
    at.project,
  ];
  return Promise.all(paths.map(async path => (await get(path)).record.build_state));
}

function run(id: bigint, verdict: BuildEvent): void {
  moveBuild(app.db, id, 'start');
  moveBuild(app.db, id, verdict);
}

describe('the state of a request follows from its builds, and the commit and the project follow the request', () => {
  const cases: [string, BuildEvent[], string][] = [
    ['all passed', ['pass', 'pass'], 'passed'],
    ['one failed', ['pass', 'fail', 'error', 'time_out', 'cancel'], 'failed'],
    ['one errored', ['pass', 'error', 'cancel'], 'errored'],
    ['one timed out', ['time_out', 'pass', 'cancel'], 'errored'],
    ['one was canceled', ['pass', 'cancel'], 'canceled'],
  ];
  for (const [name, verdicts, expected] of cases)
    test(name, async () => {
      const at = begin(verdicts.length);
      assert.deepEqual(await states(at), ['building', 'waiting_for_builds', 'building']);
      for (const [index, verdict] of verdicts.entries()) {
        assert.equal((await states(at))[0], 'building');
        run(at.builds[index] as bigint, verdict);
      }
      assert.deepEqual(await states(at), [expected, expected, expected]);
    });

  test('a request without a suite to run is skipped', async () => {
    assert.deepEqual(await states(begin(0)), ['skipped', 'skipped', 'skipped']);
  });

  test('a request that is errored before it has a commit makes the project errored', async () => {
    const there = app.plant();
    const project = `/projects/${there.project_id}`;
    assert.equal((await get(project)).record.build_state, 'passed');
    const created = await app.client.call('POST', `${project}/build_requests`, {
      as: app.people.owner.as,
      form: { commit_ref: 'gone' },
    });
    assert.equal((await get(project)).record.build_state, 'building');
    moveRequest(app.db, created.record.id as bigint, 'error', { error: 'There is no gone.' });
    assert.equal((await get(project)).record.build_state, 'errored');
  });
});

describe('cancel', () => {
  test('ends a queued build at once, and stops a running one', async () => {
    const at = begin(2);
    const [waiting, running] = at.builds as [bigint, bigint];
    moveBuild(app.db, running, 'start');
    const canceled = await post(`${at.project}/builds/${waiting}/cancel`);
    assert.deepEqual([canceled.status, canceled.record.build_state], [200, 'canceled']);
    assert.equal(canceled.record.exit_code, null);
    const created = await post(`${at.project}/builds/${running}/cancel`);
    assert.deepEqual([created.status, created.record.build_state], [200, 'running']);
    moveBuild(app.db, running, 'cancel');
    assert.deepEqual(await states(at), ['canceled', 'canceled', 'canceled']);
  });

  test('of something finished changes nothing', async () => {
    const there = app.plant();
    const project = `/projects/${there.project_id}`;
    moveDeploy(app.db, there.deploy_id, 'start');
    moveDeploy(app.db, there.deploy_id, 'deploy');
    compileAll(app.db, there.free_dependency_id);
    for (const path of [
      `${project}/builds/${there.build_id}`,
      `${project}/build_requests/${there.build_request_id}`,
      `${project}/deploys/${there.deploy_id}`,
      `/dependencies/${there.free_dependency_id}`,
    ]) {
      const before = await get(path);
      const changes = app.changes();
      const answer = await post(`${path}/cancel`);
      assert.deepEqual([answer.status, answer.text], [200, before.text]);
      assert.equal(app.changes(), changes);
    }
  });

  test('of a request ends all of its queued builds', async () => {
    const at = begin(3);
    run(at.builds[0] as bigint, 'pass');
    const answer = await post(`${at.project}/build_requests/${at.request}/cancel`);
    assert.deepEqual([answer.status, answer.record.build_state], [200, 'canceled']);
    const { list } = await get(`${at.project}/commits/${at.commit}/builds`);
    assert.deepEqual(
      list.map(build => build.build_state),
      ['canceled', 'canceled', 'passed'],
    );
  });

  test('of a request that was not fetched yet', async () => {
    const there = app.plant();
    const project = `/projects/${there.project_id}`;
    const created = await app.client.call('POST', `${project}/build_requests`, {
      as: app.people.owner.as,
      form: { commit_ref: 'main' },
    });
    const answer = await post(`${project}/build_requests/${created.record.id}/cancel`);
    assert.deepEqual([answer.record.build_state, answer.record.commit_id], ['canceled', null]);
  });

  test('of a queued deploy', async () => {
    const there = app.plant();
    const answer = await post(`/projects/${there.project_id}/deploys/${there.deploy_id}/cancel`);
    assert.deepEqual([answer.status, answer.record.state], [200, 'canceled']);
    assert.equal(answer.record.commit_id, there.commit_id);
  });

  test('of a queued and of a running compile', async () => {
    const there = app.plant();
    const path = `/dependencies/${there.free_dependency_id}`;
    enqueueCompile(app.db, there.free_dependency_id);
    assert.equal((await post(`${path}/cancel`)).record.marketplace_state, 'compile_failed');
    startCompile(app.db, there.free_dependency_id);
    assert.equal((await post(`${path}/cancel`)).record.marketplace_state, 'compiling');
  });
});

describe('compile', () => {
  const compile = (id: bigint, form: Fields = {}) =>
    app.client.call('POST', `/dependencies/${id}/compile`, { as: app.people.owner.as, form });
  const row = (id: bigint) => findDependency(app.db, id);

  test('needs an archive', async () => {
    const { free_dependency_id: id } = app.plant();
    const changes = app.changes();
    const answer = await compile(id);
    assert.deepEqual([answer.status, answer.json], [403, errors('archive', 'is_blank')]);
    assert.equal(app.changes(), changes);
  });

  test('queues a compiled or failed dependency from scratch, without another upload', async () => {
    const { free_dependency_id: id } = app.plant();
    compileAll(app.db, id);
    for (const isFailed of [false, true]) {
      const answer = await compile(id);
      assert.deepEqual([answer.status, answer.record.marketplace_state], [200, 'enqueued_for_compile']);
      assert.deepEqual([row(id)?.attempts, row(id)?.forced, row(id)?.startedAt], [0, false, null]);
      moveDependency(app.db, id, 'start', { attempts: 1 });
      if (!isFailed) moveDependency(app.db, id, 'fail', { error: 'make: not found' });
    }
  });

  test('is refused while it compiles', async () => {
    const { free_dependency_id: id } = app.plant();
    startCompile(app.db, id);
    for (const form of [{}, { force: 'true' }] as Fields[]) {
      const answer = await compile(id, form);
      assert.deepEqual(
        [answer.status, answer.json],
        [403, errors('generic', 'resource_temporary_unavailable')],
      );
    }
    assert.equal(row(id)?.forced, false);
  });

  test('changes nothing while it waits, except that it can be forced', async () => {
    const { free_dependency_id: id } = app.plant();
    enqueueCompile(app.db, id);
    const { enqueuedAt } = row(id) ?? {};
    const changes = app.changes();
    assert.equal((await compile(id)).status, 200);
    assert.equal(app.changes(), changes);
    assert.equal((await compile(id, { force: 'true' })).record.marketplace_state, 'enqueued_for_compile');
    assert.deepEqual([row(id)?.forced, row(id)?.enqueuedAt], [true, enqueuedAt]);
    // Not taken back by a later request without it.
    await compile(id);
    assert.equal(row(id)?.forced, true);
  });

  test('is forced until it ends, in whatever way', async () => {
    const { free_dependency_id: id } = app.plant();
    compileAll(app.db, id);
    for (const event of ['compile', 'fail', 'cancel'] as const) {
      await compile(id, { force: 'true' });
      moveDependency(app.db, id, 'start');
      moveDependency(app.db, id, 'requeue');
      assert.equal(row(id)?.forced, true);
      moveDependency(app.db, id, 'start');
      moveDependency(app.db, id, event);
      assert.equal(row(id)?.forced, false, event);
    }
    await compile(id, { force: 'true' });
    await post(`/dependencies/${id}/cancel`);
    assert.equal(row(id)?.forced, false);
  });
});

describe('rerun', () => {
  test('is a new build of the same request, which is building again; the newest counts', async () => {
    const at = begin(2);
    run(at.builds[0] as bigint, 'fail');
    run(at.builds[1] as bigint, 'pass');
    assert.deepEqual(await states(at), ['failed', 'failed', 'failed']);
    const first = (await get(`${at.project}/builds/${at.builds[0]}`)).record;
    const answer = await post(`${at.project}/builds/${at.builds[0]}/rerun`);
    assert.equal(answer.status, 201);
    const again = answer.record;
    assert.notEqual(again.id, first.id);
    for (const same of ['suite_id', 'commit_id', 'build_request_id']) assert.equal(again[same], first[same]);
    assert.equal(again.build_state, 'enqueued');
    assert.equal((await states(at))[0], 'building');
    run(again.id as bigint, 'pass');
    assert.deepEqual(await states(at), ['passed', 'passed', 'passed']);
    assert.deepEqual((await get(`${at.project}/builds/${at.builds[0]}`)).record, first);
  });

  test('of a deleted suite is not found, and its builds stay readable', async () => {
    const at = begin(1);
    run(at.builds[0] as bigint, 'fail');
    const path = `${at.project}/builds/${at.builds[0]}`;
    const { suite_id } = (await get(path)).record;
    await app.client.call('DELETE', `${at.project}/suites/${suite_id}`, { as: app.people.owner.as });
    assert.equal((await get(path)).record.suite_id, suite_id);
    const answer = await post(`${path}/rerun`);
    assert.deepEqual([answer.status, answer.json], [404, errors('generic', 'not_found')]);
  });
});

test('a strategy with deploys can be deleted, and the deploys stay readable', async () => {
  const there = app.plant();
  const project = `/projects/${there.project_id}`;
  const answer = await app.client.call('DELETE', `${project}/deploy_strategies/${there.deploy_strategy_id}`, {
    as: app.people.owner.as,
  });
  assert.equal(answer.status, 200);
  const deploy = (await get(`${project}/deploys/${there.deploy_id}`)).record;
  assert.equal(deploy.deploy_strategy_id, there.deploy_strategy_id);
});

test('a project is deleted with everything that belongs to it, and nothing else', async () => {
  const [gone, stays] = [app.plant(), app.plant()];
  const count = (table: string, id: bigint) =>
    Number(app.db.sqlite.prepare(`SELECT count(*) FROM ${table} WHERE project_id = ?`).pluck().get(id));
  await app.client.call('DELETE', `/projects/${gone.project_id}`, { as: app.people.owner.as });
  for (const path of ['', '/suites', `/builds/${gone.build_id}`, '/firehose'])
    assert.equal((await get(`/projects/${gone.project_id}${path}`)).status, 404, path);
  while (purgeSomeRows(app.db));
  for (const table of [
    'builds',
    'build_requests',
    'commits',
    'suites',
    'deploys',
    'events',
    'notifications',
  ]) {
    assert.equal(count(table, gone.project_id), 0, table);
    assert(count(table, stays.project_id) > 0, table);
  }
  assert.equal((await get(`/dependencies/${gone.used_dependency_id}`)).status, 200);
  const freed = await app.client.call('DELETE', `/dependencies/${gone.used_dependency_id}`, {
    as: app.people.owner.as,
  });
  assert.equal(freed.status, 200);
});

describe('sharing', () => {
  test('is independent of the compile: repeating it has no effect, and a new archive keeps it', async () => {
    const there = app.plant();
    const id = there.free_dependency_id;
    const path = `/dependencies/${id}`;
    compileAll(app.db, id);
    for (let time = 0; time < 2; time += 1)
      assert.equal((await post(`${path}/share`)).record.marketplace_state, 'shared');
    const seen = async () => {
      const answer = await app.client.get(path, app.people.stranger.as);
      return answer.status === 200 ? answer.record.marketplace_state : answer.status;
    };
    assert.equal(await seen(), 'shared');
    enqueueCompile(app.db, id);
    assert.equal(await seen(), 'enqueued_for_compile');
    moveDependency(app.db, id, 'start');
    moveDependency(app.db, id, 'compile');
    assert.equal(await seen(), 'shared');
    for (let time = 0; time < 2; time += 1)
      assert.equal((await post(`${path}/unshare`)).record.marketplace_state, 'compiled');
    assert.equal(await seen(), 404);
  });

  test('notifies the projects that use it, once', async () => {
    const there = app.plant();
    compileAll(app.db, there.used_dependency_id);
    await post(`/dependencies/${there.used_dependency_id}/share`);
    await post(`/dependencies/${there.used_dependency_id}/share`);
    const { list } = await get(`/projects/${there.project_id}/events`);
    assert.deepEqual(
      list.map(event => event.type).filter(type => String(type).startsWith('dependency.')),
      ['dependency.enqueued', 'dependency.started', 'dependency.finished', 'dependency.shared'],
    );
    const last = list.at(-1) as { dependency: { id: bigint; marketplace_state: string } };
    assert.deepEqual(
      [last.dependency.id, last.dependency.marketplace_state],
      [there.used_dependency_id, 'shared'],
    );
  });
});

test('a badge shows the newest finished commit, optionally of a branch, and nothing when it is off', async () => {
  const there = app.plant();
  const project = `/projects/${there.project_id}`;
  const badge = (query = '') => app.client.get(`${project}/badge.svg${query}`);
  const off = await badge();
  assert.deepEqual([off.status, off.json], [404, errors('generic', 'not_found')]);
  await app.client.call('PUT', project, { as: app.people.owner.as, form: { badge: 'true' } });
  const on = await badge();
  assert.equal(on.headers['content-type'], 'image/svg+xml; charset=utf-8');
  assert.match(on.text, /<title>assay: passed, 1 test passed<\/title>/);
  assert.doesNotMatch(
    on.text.replaceAll(/<title>.*<\/title>|aria-label="[^"]*"/g, ''),
    /test/,
    'the picture is the same',
  );
  assert.match((await badge('?branch=main')).text, /passed/);
  assert.match((await badge('?branch=other')).text, /unknown/);
});
