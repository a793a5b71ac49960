import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  type ActivityFilter,
  describeRequests,
  findWaitingBuild,
  listRecent,
  listUnfinished,
  scopeOf,
} from '../../src/store/activity.ts';
import { createBuildRequest } from '../../src/store/builds.ts';
import { deleteProject } from '../../src/store/cleanup/purge.ts';
import { listVisibleIds, PROJECTS_RANKED, rankProjects } from '../../src/store/project-ranking.ts';
import { createCollaborator, type Project } from '../../src/store/projects.ts';
import { moveBuild, moveRequest } from '../../src/store/transition.ts';
import { describeWall } from '../../src/store/wall.ts';
import { addAccount, addBuilds, addProject, addSnapshot, addSuite, openFixture } from './fixture.ts';

const everything: ActivityFilter = {
  mine: false,
  email: 'someone@example.com',
  state: undefined,
  branch: undefined,
  project: undefined,
};

const viewerOf = (account: { id: bigint }) => ({ accountId: account.id, standing: 'active' as const });

describe('Activity', () => {
  const fixture = openFixture();
  const { db } = fixture;
  after(() => fixture[Symbol.dispose]());

  const build = (project: Project, suites: readonly bigint[], ...ends: ('pass' | 'fail' | 'start' | '')[]) =>
    db.write(() => {
      const made = addBuilds(db, project, suites);
      ends.forEach((end, at) => {
        const id = made.builds[at] as bigint;
        if (end !== '') moveBuild(db, id, 'start');
        if (end === 'pass' || end === 'fail') moveBuild(db, id, end);
      });
      return made;
    });

  it('lists what runs, waits and ended in the projects of an account, and nothing of others', async () => {
    const owner = addAccount(db);
    const member = addAccount(db);
    const stranger = addAccount(db);
    const [one, two, alien] = [
      addProject(db, owner.id),
      addProject(db, owner.id),
      addProject(db, stranger.id),
    ] as const;
    const suites = [addSuite(db, one.id).id, addSuite(db, one.id).id];
    createCollaborator(db, one.id, member.id);
    const passed = build(one, suites, 'pass', 'pass').requestId;
    const failed = build(two, suites, 'pass', 'fail').requestId;
    const running = build(one, suites, 'pass', 'start').requestId;
    const waiting = build(one, suites).requestId;
    const requested = createBuildRequest(db, two, 'main', owner.email).id;
    const fetching = createBuildRequest(db, two, 'main', owner.email).id;
    moveRequest(db, fetching, 'fetch');
    for (const end of ['pass', 'start', ''] as const) build(alien, [suites[0] as bigint], end);

    const see = async (account: { id: bigint }, filter: Partial<ActivityFilter> = {}) => {
      const scope = scopeOf(db, viewerOf(account), { ...everything, ...filter });
      const recent = await listRecent(db, scope, { limit: 10, from: undefined, direction: 'older' });
      return { ...listUnfinished(db, scope), recent: recent.ids };
    };
    assert.deepEqual(await see(owner), {
      running: [fetching, running],
      waiting: [waiting, requested],
      recent: [failed, passed],
    });
    assert.deepEqual(await see(member), { running: [running], waiting: [waiting], recent: [passed] });
    assert.deepEqual(await see(addAccount(db)), { running: [], waiting: [], recent: [] });

    assert.deepEqual((await see(owner, { state: 'failed' })).recent, [failed]);
    assert.deepEqual((await see(owner, { project: two.name.toUpperCase() })).recent, [failed]);
    assert.deepEqual(await see(owner, { branch: 'release' }), { running: [], waiting: [], recent: [] });
    assert.deepEqual((await see(owner, { branch: 'main' })).recent, [failed, passed]);
    assert.deepEqual(await see(owner, { mine: true, email: owner.email }), {
      running: [fetching],
      waiting: [requested],
      recent: [],
    });
    const byAuthor = await see(owner, { mine: true, email: 'a@example.com' });
    assert.deepEqual(byAuthor.recent, [failed, passed], 'the author of the commits');

    assert.equal(findWaitingBuild(db, waiting)?.buildRequestId, waiting);
    assert.equal(findWaitingBuild(db, passed), undefined);

    deleteProject(db, two.id);
    assert.deepEqual((await see(owner)).recent, [passed], 'not those of a deleted project');
  });

  it('shows an account that owes payment only what others share with it', async () => {
    const owner = addAccount(db);
    const unpaid = addAccount(db);
    const own = addProject(db, unpaid.id);
    const shared = addProject(db, owner.id);
    createCollaborator(db, shared.id, unpaid.id);
    const suite = addSuite(db, shared.id).id;
    build(own, [suite], 'pass');
    const seen = build(shared, [suite], 'pass').requestId;
    const viewer = { accountId: unpaid.id, standing: 'payment_required' as const };
    const scope = scopeOf(db, viewer, everything);
    const page = await listRecent(db, scope, { limit: 10, from: undefined, direction: 'older' });
    assert.deepEqual(page.ids, [seen]);
    assert.deepEqual(listVisibleIds(db, viewer, 10), [shared.id]);
  });

  it('leads to older pages and back to the same newer ones', async () => {
    const owner = addAccount(db);
    const projects = [addProject(db, owner.id), addProject(db, owner.id), addProject(db, owner.id)];
    const made = db.write(() =>
      Array.from({ length: 250 }, (_, at) => {
        const { id } = createBuildRequest(db, projects[at % 3] as Project, 'main', owner.email);
        moveRequest(db, id, 'cancel');
        return id;
      }).reverse(),
    );
    const scope = scopeOf(db, viewerOf(owner), everything);
    const first = await listRecent(db, scope, { limit: 30, from: undefined, direction: 'older' });
    assert.deepEqual(first.ids, made.slice(0, 30));
    assert.deepEqual([first.hasOlder, first.hasNewer, first.continueBefore], [true, false, undefined]);
    const second = await listRecent(db, scope, { limit: 30, from: first.ids.at(-1), direction: 'older' });
    assert.deepEqual(second.ids, made.slice(30, 60));
    const third = await listRecent(db, scope, { limit: 30, from: second.ids.at(-1), direction: 'older' });
    const back = await listRecent(db, scope, { limit: 30, from: third.ids[0], direction: 'newer' });
    assert.deepEqual([back.ids, back.hasOlder, back.hasNewer], [second.ids, true, true]);
    const start = await listRecent(db, scope, { limit: 30, from: second.ids[0], direction: 'newer' });
    assert.deepEqual([start.ids, start.hasNewer], [first.ids, false]);
    const last = await listRecent(db, scope, { limit: 30, from: made[239], direction: 'older' });
    assert.deepEqual([last.ids, last.hasOlder], [made.slice(240), false]);
  });

  it('shows the suites that did not pass first, at most a dozen, and counts all', () => {
    const project = addProject(db);
    const suites = Array.from({ length: 20 }, () => addSuite(db, project.id).id);
    const ends = suites.map((_, at) => (at === 18 ? 'fail' : at === 19 ? 'start' : at === 3 ? '' : 'pass'));
    const { requestId, builds } = build(project, suites, ...(ends as 'pass'[]));
    const [row] = describeRequests(db, [requestId]);
    assert.deepEqual(
      row?.builds.slice(0, 4).map(({ id }) => id),
      [builds[18], builds[19], builds[3], builds[0]],
    );
    assert.deepEqual([row?.builds.length, row?.suites, row?.finishedSuites], [12, 20, 18]);
    assert.equal(row?.commit?.authorName, 'A');
  });

  it('ranks failing projects first, then those that build, then by their newest build request', async () => {
    const owner = addAccount(db);
    const [idle, passedFirst, failing, running, passedLast] = [1, 2, 3, 4, 5].map(() =>
      addProject(db, owner.id),
    ) as [Project, Project, Project, Project, Project];
    const suite = addSuite(db, idle.id).id;
    build(failing, [suite], 'fail');
    build(running, [suite], 'start');
    build(passedFirst, [suite], 'pass');
    build(passedLast, [suite], 'pass');
    // A local run does not count.
    addBuilds(db, idle, [suite], undefined, addSnapshot(db, { projectId: idle.id, accountId: owner.id }));
    const { ranked, isComplete } = await rankProjects(db, viewerOf(owner));
    assert.ok(isComplete);
    assert.deepEqual(
      ranked.map(({ id }) => id),
      [failing, running, passedLast, passedFirst, idle].map(({ id }) => id),
    );
  });

  describe('for an account with more projects than can be ranked', () => {
    const owner = addAccount(db);
    let active: Project;
    let passed: bigint;
    let waiting: bigint;
    before(() => {
      db.write(() => {
        active = addProject(db, owner.id);
        const suite = addSuite(db, active.id).id;
        passed = build(active, [suite], 'fail').requestId;
        waiting = build(active, [suite]).requestId;
        for (let n = 0; n < PROJECTS_RANKED; n += 1) addProject(db, owner.id);
      });
      const alien = addProject(db);
      build(alien, [addSuite(db, alien.id).id], 'pass');
    });

    it('finds the latest build requests and the projects that were active last', async () => {
      const scope = scopeOf(db, viewerOf(owner), everything);
      const page = await listRecent(db, scope, { limit: 10, from: undefined, direction: 'older' });
      assert.deepEqual(page.ids, [passed]);
      assert.deepEqual(listUnfinished(db, scope), { running: [], waiting: [waiting] });
      const { ranked, isComplete } = await rankProjects(db, viewerOf(owner));
      assert.equal(isComplete, false);
      assert.deepEqual(
        ranked.map(({ id }) => id),
        [active.id],
      );
    });
  });

  it('reads every list by index', async () => {
    const prepare = db.sqlite.prepare;
    const texts = new Set<string>();
    const other = openFixture();
    try {
      // Statements are prepared once for each database: this one has none yet.
      const prepareOther = other.db.sqlite.prepare;
      other.db.sqlite.prepare = ((text: string) => {
        texts.add(text);
        return prepareOther.call(other.db.sqlite, text);
      }) as typeof prepare;
      const failing = addProject(other.db);
      const { builds } = addBuilds(other.db, failing, [addSuite(other.db, failing.id).id]);
      moveBuild(other.db, builds[0] as bigint, 'start');
      moveBuild(other.db, builds[0] as bigint, 'fail');
      texts.clear();
      const viewer = viewerOf({ id: failing.ownerId });
      for (const filter of [
        everything,
        { ...everything, branch: 'main' },
        { ...everything, state: 'errored' as const },
        { ...everything, project: 'a' },
      ]) {
        const scope = scopeOf(other.db, viewer, filter);
        for (const direction of ['older', 'newer'] as const) {
          await listRecent(other.db, scope, { limit: 10, from: 1n, direction });
          await listRecent(other.db, { ...scope, ids: undefined }, { limit: 10, from: 1n, direction });
        }
        listUnfinished(other.db, scope);
        listUnfinished(other.db, { ...scope, ids: undefined });
      }
      const wall = await describeWall(other.db, viewer);
      assert.equal(wall.large[0]?.broken?.request.projectId, failing.id);
      describeRequests(other.db, [1n]);
      findWaitingBuild(other.db, 1n);
    } finally {
      other[Symbol.dispose]();
    }
    const scans: string[] = [];
    const searches = new Set<string>();
    for (const text of texts) {
      if (!/\bSELECT\b/.test(text) || text.includes('PRAGMA')) continue;
      const named = /@\w+/.test(text);
      const values = {
        from: 1n,
        farthest: 1n,
        projects: '[1]',
        branch: 'main',
        state: 'errored',
        projectId: 1n,
      };
      const count = text.split('?').length - 1;
      const statement = db.sqlite.prepare(`EXPLAIN QUERY PLAN ${text}`);
      const steps = (
        named ? statement.all(values) : statement.all(...Array.from({ length: count }, () => '1'))
      ) as { detail: string }[];
      for (const { detail } of steps) {
        searches.add(/USING (?:COVERING )?INDEX (\w+)/.exec(detail)?.[1] ?? '');
        if (/^SCAN (?!(one|project) VIRTUAL TABLE|json_each|newest|\()/.test(detail))
          scans.push(`${detail}: ${text}`);
      }
    }
    assert.ok(searches.has('build_requests_state'), 'the state in a project has an index');
    assert.ok(searches.has('build_requests_ended'), 'the state in all projects has an index');
    assert.ok(texts.size > 12, `${texts.size} statements`);
    const allowed =
      /USING (COVERING )?INDEX (builds_running|build_requests_fetching|build_requests_unfinished|projects_deleted)|^SCAN build_requests: SELECT id, project_id FROM build_requests WHERE 1 AND id/;
    assert.deepEqual(
      scans.filter(scan => !allowed.test(scan)),
      [],
    );
  });
});
