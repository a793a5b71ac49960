// Lists: newest first, in pages, with a link to the next page.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  createBuildRequest,
  enqueueBuilds,
  findBuild,
  recordCommit,
  rerunBuild,
} from '../../src/store/builds.ts';
import { findProject } from '../../src/store/projects.ts';
import { moveRequest } from '../../src/store/transition.ts';
import { bootApp, commitFields, type Planted, type TestApp } from '../support/app.ts';
import { errors, type Fields, type Wire } from '../support/client.ts';
import {
  contract,
  dependencyForm,
  notificationForm,
  projectForm,
  ruleForm,
  strategyForm,
  suiteForm,
  triggerForm,
  variableForm,
} from './contract.ts';
import { compileAll } from './states.ts';

let app: TestApp;
let planted: Planted;
before(async () => {
  app = await bootApp();
  planted = app.plant();
});
after(() => app.close());

const get = (path: string) => app.client.get(path, app.people.owner.as);
const project = () => `/projects/${planted.project_id}`;
const suite = () => `${project()}/suites/${planted.suite_id}`;

/** How to add a row to each list; returns its ID there. */
const lists: Record<string, { path: () => string; add: () => Promise<bigint> | bigint }> = {
  projects: { path: () => '/projects', add: () => create('/projects', projectForm()) },
  collaborators: {
    path: () => `${project()}/collaborators`,
    add: () => create(`${project()}/collaborators`, { email: `c${Math.random()}@example.org` }),
  },
  'build requests': {
    path: () => `${project()}/build_requests`,
    add: () => create(`${project()}/build_requests`, { commit_ref: 'main' }),
  },
  commits: { path: () => `${project()}/commits`, add: addCommit },
  builds: {
    path: () => `${project()}/commits/${planted.commit_id}/builds`,
    add: () => create(`${project()}/builds/${planted.build_id}/rerun`, {}),
  },
  'builds of a request': {
    path: () => `${project()}/build_requests/${planted.build_request_id}/builds`,
    add: () => create(`${project()}/builds/${planted.build_id}/rerun`, {}),
  },
  suites: { path: () => `${project()}/suites`, add: () => create(`${project()}/suites`, suiteForm()) },
  rules: { path: () => `${suite()}/rules`, add: () => create(`${suite()}/rules`, ruleForm()) },
  variables: {
    path: () => `${suite()}/environment_variables`,
    add: () => create(`${suite()}/environment_variables`, variableForm()),
  },
  strategies: {
    path: () => `${project()}/deploy_strategies`,
    add: () => create(`${project()}/deploy_strategies`, strategyForm()),
  },
  deploys: {
    path: () => `${project()}/deploys`,
    add: () =>
      create(`${project()}/deploys`, {
        deploy_strategy_id: String(planted.deploy_strategy_id),
        commit_id: String(planted.commit_id),
      }),
  },
  notifications: {
    path: () => `${project()}/notifications`,
    add: () => create(`${project()}/notifications`, notificationForm()),
  },
  deliveries: {
    path: () => `${project()}/notifications/${planted.notification_id}/deliveries`,
    add: () => create(`${project()}/notifications/${planted.notification_id}/test`, {}),
  },
  triggers: {
    path: () => `${project()}/triggers`,
    add: () => create(`${project()}/triggers`, triggerForm()),
  },
  firings: {
    path: () => `${project()}/triggers/${planted.schedule_id}/firings`,
    add: async () => {
      const path = `${project()}/triggers/${planted.schedule_id}/fire`;
      const { list } = await app.client.call('POST', path, { as: app.people.owner.as });
      return list[0]?.id as bigint;
    },
  },
  dependencies: { path: () => '/dependencies', add: () => create('/dependencies', dependencyForm()) },
  'shared dependencies': { path: () => '/dependencies?shared=true', add: shareOne },
};

async function create(path: string, form: Fields): Promise<bigint> {
  const answer = await app.client.call('POST', path, { as: app.people.owner.as, form });
  assert.equal(answer.status, 201, answer.text);
  return answer.record.id as bigint;
}

function addCommit(): bigint {
  return recordCommit(
    app.db,
    planted.project_id,
    commitFields(Math.random().toString(16).slice(2).padEnd(40, '0')),
  ).id;
}

async function shareOne(): Promise<bigint> {
  const { as } = app.people.stranger;
  const made = await app.client.call('POST', '/dependencies', { as, form: dependencyForm() });
  compileAll(app.db, made.record.id as bigint);
  const answer = await app.client.call('POST', `/dependencies/${made.record.id}/share`, { as });
  return answer.record.id as bigint;
}

const idsOf = (list: Wire[]) => list.map(one => one.id as bigint);
const linkOf = (answer: { headers: Record<string, string> }) =>
  /^<(.+)>; rel="next"$/.exec(answer.headers.link ?? '')?.[1];
const withQuery = (path: string, query: string) => `${path}${path.includes('?') ? '&' : '?'}${query}`;

test('every paged list of the contract is tested here', () => {
  const known = Object.values(lists).map(
    ({ path }) =>
      path()
        .replace(/\d{10,}/g, '<id>')
        .split('?')[0],
  );
  for (const row of contract.filter(one => one.method === 'GET'))
    if (
      /(s|requests)$/.test(row.path) &&
      !/(ping|events|metrics|mjs|times|tests|artifacts|files|suites\/:suite_id\/dependencies|:commit_id\/suites)$/.test(
        row.path,
      )
    )
      assert(known.includes(row.path.replace(/:\w+/g, '<id>')), row.path);
});

describe('a list is newest first, and its pages contain each row once', () => {
  for (const [name, { path, add }] of Object.entries(lists))
    test(name, async () => {
      const added: bigint[] = [];
      for (let count = 0; count < 5; count += 1) added.unshift(await add());
      const whole = await get(path());
      assert.equal(whole.headers.link, undefined);
      const ids = idsOf(whole.list);
      assert.deepEqual(ids.slice(0, 5), added);
      assert.deepEqual(
        ids,
        [...ids].sort((a, b) => (a < b ? 1 : -1)),
      );

      const walked: bigint[] = [];
      let next: string | undefined = withQuery(path(), 'limit=2');
      let pages = 0;
      while (next) {
        const page = await get(next);
        assert.equal(page.status, 200, page.text);
        assert(page.list.length <= 2);
        walked.push(...idsOf(page.list));
        pages += 1;
        const link = linkOf(page);
        if (link) assert(link.startsWith(app.url), link);
        next = link?.slice(app.url.length);
      }
      assert.deepEqual(walked, ids);
      assert.equal(pages, Math.ceil(ids.length / 2));

      const exact = await get(withQuery(path(), `limit=${ids.length}`));
      assert.equal(exact.headers.link, undefined, 'nothing is left after the last row');
      const older = await get(withQuery(path(), `before=${added[1]}`));
      assert.deepEqual(idsOf(older.list), ids.slice(2));
      assert.deepEqual((await get(withQuery(path(), 'before=1'))).list, []);
    });
});

test('a page has 100 rows by default, and at most 1000', async () => {
  const there = app.plant();
  const path = `/projects/${there.project_id}/build_requests`;
  const row = findProject(app.db, there.project_id);
  assert(row);
  app.db.write(() => {
    for (let count = 0; count < 1004; count += 1)
      createBuildRequest(app.db, row, 'main', 'owner@example.org');
  });
  for (const [query, length] of [
    ['', 100],
    ['?limit=1000', 1000],
    ['?limit=1', 1],
    ['?limit=500&limit=3', 3],
  ] as const) {
    const answer = await get(`${path}${query}`);
    assert.equal(answer.list.length, length);
    assert(linkOf(answer));
  }
});

describe('limit and before must be valid', () => {
  for (const limit of ['0', '1001', '-1', 'abc', '1.5', '', '1e2', '0x10', '99999999999999999999'])
    test(`limit=${limit}`, async () => {
      const answer = await get(`${project()}/suites?limit=${limit}`);
      assert.deepEqual([answer.status, answer.json], [403, errors('limit', 'invalid_format')]);
    });
  for (const before of ['', '-1', 'abc', '1.5', '9223372036854775808', "1'", '%00'])
    test(`before=${before}`, async () => {
      const answer = await get(`${project()}/suites?before=${before}`);
      assert.deepEqual([answer.status, answer.json], [403, errors('before', 'invalid_format')]);
    });
  test('both at once', async () => {
    const answer = await get(`${project()}/suites?before=x&limit=x`);
    assert.deepEqual(answer.json, { error: { limit: ['invalid_format'], before: ['invalid_format'] } });
  });
});

test('a link keeps the other parameters of the query, but never a token', async () => {
  const token = app.token(app.people.owner, 'suites').slice('Bearer '.length);
  await create(`${project()}/suites`, suiteForm());
  const answer = await app.client.get(
    `${project()}/suites?limit=1&x=a%20b&oauth_token=${token}&callback=f&before=9223372036854775807`,
  );
  const link = new URL(linkOf(answer) ?? '');
  assert.equal(link.searchParams.get('x'), 'a b');
  assert.equal(link.searchParams.get('callback'), 'f');
  assert.equal(link.searchParams.get('limit'), '1');
  assert.equal(link.searchParams.getAll('before').length, 1);
  assert(!link.href.includes(token));
  assert(!link.searchParams.has('oauth_token'));
});

test('the dependencies of a suite are listed in the order in which they were attached', async () => {
  const there = app.plant();
  const path = `/projects/${there.project_id}/suites/${there.suite_id}/dependencies`;
  const made = [
    await create('/dependencies', dependencyForm()),
    await create('/dependencies', dependencyForm()),
  ];
  for (const id of [made[1], made[0], there.free_dependency_id])
    await create(path, { dependency_id: String(id) });
  const attached = [there.used_dependency_id, made[1], made[0], there.free_dependency_id];
  assert.deepEqual(idsOf((await get(path)).list), attached);

  const walked: bigint[][] = [];
  let next: string | undefined = `${path}?limit=3`;
  while (next) {
    const page = await get(next);
    walked.push(idsOf(page.list));
    next = linkOf(page)?.slice(app.url.length);
  }
  assert.deepEqual(walked, [attached.slice(0, 3), attached.slice(3)]);
  assert.deepEqual((await get(`${path}?before=1`)).list, []);
  const answer = await get(`${path}?limit=0&before=x`);
  assert.deepEqual(
    [answer.status, answer.json],
    [403, { error: { limit: ['invalid_format'], before: ['invalid_format'] } }],
  );
});

test('own dependencies and shared ones of others are separate lists', async () => {
  const shared = await shareOne();
  assert(!idsOf((await get('/dependencies')).list).includes(shared));
  assert(idsOf((await get('/dependencies?shared=true')).list).includes(shared));
  const own = await app.client.get('/dependencies?shared=true', app.people.stranger.as);
  assert(!idsOf(own.list).includes(shared));
  const unpaid: [query: string, status: number][] = [
    ['shared=true', 200],
    ['shared=1', 200],
    ['shared=false&shared=true', 200],
    ['shared=true&shared=false', 402],
    ['', 402],
  ];
  for (const [query, status] of unpaid)
    assert.equal(
      (await app.client.get(`/dependencies?${query}`, app.people.unpaid.as)).status,
      status,
      query,
    );
  const answer = await get('/dependencies?shared=perhaps');
  assert.deepEqual([answer.status, answer.json], [403, errors('shared', 'invalid_format')]);
});

test('events are oldest first, after a given one, with a link while there are more', async () => {
  const there = app.plant();
  const path = `/projects/${there.project_id}/events`;
  const all = (await get(path)).list;
  assert.deepEqual(
    all.map(event => event.type),
    [
      'build_request.enqueued',
      'build.enqueued',
      'build.started',
      'build.finished',
      'build_request.finished',
      'deploy.enqueued',
      'ping',
    ],
  );
  const walked: bigint[] = [];
  let next: string | undefined = `${path}?limit=3`;
  while (next) {
    const page = await get(next);
    walked.push(...idsOf(page.list));
    next = linkOf(page)?.slice(app.url.length);
  }
  assert.deepEqual(walked, idsOf(all));
  assert.deepEqual(idsOf((await get(`${path}?after=${walked[3]}`)).list), walked.slice(4));
  for (const [query, key] of [
    ['after=x', 'after'],
    ['after=', 'after'],
    ['limit=0', 'limit'],
    ['limit=1001', 'limit'],
  ] as const) {
    const answer = await get(`${path}?${query}`);
    assert.deepEqual([answer.status, answer.json], [403, errors(key, 'invalid_format')]);
  }
});

test("a commit's builds include reruns, newest first", async () => {
  const there = app.plant();
  const first = findBuild(app.db, there.project_id, there.build_id);
  assert(first);
  const again = rerunBuild(app.db, first, { id: there.suite_id, name: 'Unit tests' });
  const row = findProject(app.db, there.project_id);
  assert(row);
  const second = app.db.write(() => {
    const request = createBuildRequest(app.db, row, 'main', 'owner@example.org');
    moveRequest(app.db, request.id, 'fetch');
    const commit = recordCommit(app.db, row.id, commitFields(first.commitRef));
    assert.equal(commit.id, there.commit_id, 'a commit that was seen before keeps its id');
    enqueueBuilds(app.db, request.id, commit, 'main', [
      { suiteId: there.suite_id, suiteName: 'Unit tests', runs: true, rules: [] },
    ]);
    return request;
  });
  const { list } = await get(`/projects/${there.project_id}/commits/${there.commit_id}/builds`);
  assert.deepEqual(idsOf(list).slice(1), [again.id, first.id]);
  assert.equal(list[0]?.build_request_id, second.id);
});

test('build requests are listed by branch and by state, also before they are fetched', async () => {
  const there = app.plant();
  const row = findProject(app.db, there.project_id);
  assert(row);
  const path = `/projects/${there.project_id}/build_requests`;
  const waiting = createBuildRequest(app.db, row, 'topic', 'owner@example.org');
  const tagged = createBuildRequest(app.db, row, 'v1', 'owner@example.org');
  app.db.write(() => {
    moveRequest(app.db, tagged.id, 'fetch');
    moveRequest(app.db, tagged.id, 'skip', { tag: 'v1' });
  });
  const listed = async (query: string) => idsOf((await get(`${path}?${query}`)).list);
  assert.deepEqual(await listed('branch=topic'), [waiting.id]);
  assert.deepEqual(await listed('branch=v1'), [], 'a tag is no branch');
  assert.deepEqual(await listed('branch=main'), [there.build_request_id]);
  assert.deepEqual(await listed('state=skipped'), [tagged.id]);
  assert.deepEqual(await listed('branch=topic&state=skipped'), []);
  const refusedState = await get(`${path}?state=sad`);
  assert.deepEqual([refusedState.status, refusedState.json], [403, errors('state', 'invalid_format')]);
});

test('an unpaid account lists the projects that it collaborates on, but not its own', async () => {
  app.plant(app.people.unpaid);
  const { list } = await app.client.get('/projects', app.people.unpaid.as);
  assert(list.length > 0 && list.every(one => one.owned === false));
});
