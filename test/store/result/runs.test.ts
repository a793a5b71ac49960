// The latest runs of suites: which builds count, by branch, and which suites of a large project are chosen.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createBuildRequest,
  enqueueBuilds,
  enqueueSomeBuilds,
  listBuildsOfRequest,
  recordCommit,
} from '../../../src/store/builds.ts';
import type { Db } from '../../../src/store/database/db.ts';
import type { Project } from '../../../src/store/projects.ts';
import { listBranches, listRuns, listTrends } from '../../../src/store/result/runs.ts';
import { createSuite, deleteSuite, type Suite } from '../../../src/store/suites.ts';
import { moveBuild, moveRequest } from '../../../src/store/transition.ts';
import { commitFields } from '../../support/app.ts';
import { addProject, openFixture } from '../fixture.ts';

let made = 0;

const addSuites = (db: Db, { id: projectId }: Project, ...names: string[]) =>
  names.map(name => createSuite(db, { projectId, name, description: '', command: 'true', image: null }));

function run(
  db: Db,
  project: Project,
  branch: string,
  ends: [suite: Suite, end: 'pass' | 'fail' | 'cancel' | ''][],
): bigint[] {
  const request = createBuildRequest(db, project, branch, 'a@example.org');
  moveRequest(db, request.id, 'fetch');
  const commit = recordCommit(db, project.id, commitFields((++made).toString(16).padStart(40, 'a')));
  enqueueBuilds(
    db,
    request.id,
    commit,
    branch,
    ends.map(([{ id, name }]) => ({ suiteId: id, suiteName: name, runs: true, rules: [] })),
  );
  while (enqueueSomeBuilds(db));
  const builds = listBuildsOfRequest(db, request.id);
  return ends.map(([suite, end]) => {
    const { id } = builds.find(({ suiteId }) => suiteId === suite.id) as { id: bigint };
    if (end !== '') moveBuild(db, id, 'start');
    if (end !== '') moveBuild(db, id, end);
    return id;
  });
}

test('the runs of a suite are its finished builds without canceled ones, oldest first', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [unit, lint] = addSuites(db, project, 'Unit', 'Lint') as [Suite, Suite];
  const [passed] = run(db, project, 'main', [
    [unit, 'pass'],
    [lint, 'fail'],
  ]);
  run(db, project, 'main', [[unit, 'cancel']]);
  const [failed] = run(db, project, 'topic', [[unit, 'fail']]);
  run(db, project, 'main', [[unit, '']]);
  const ids = (branch?: string, limit = 100) => listRuns(db, unit.id, { branch, limit }).map(({ id }) => id);
  assert.deepEqual(ids(), [passed, failed]);
  assert.deepEqual(ids('topic'), [failed]);
  assert.deepEqual(ids('gone'), []);
  assert.deepEqual(ids(undefined, 1), [failed], 'the newest ones');
  assert.deepEqual(listBranches(db, unit.id), ['main', 'topic'], 'the branch built last comes first');
});

test('trends prefer suites that did not pass, and leave out deleted ones', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suites = addSuites(db, project, 'A', 'B', 'C', 'D') as [Suite, Suite, Suite, Suite];
  const [a, b, c, d] = suites;
  run(
    db,
    project,
    'main',
    suites.map(suite => [suite, suite === d ? 'pass' : 'fail']),
  );
  run(db, project, 'main', [
    [a, 'fail'],
    [b, 'pass'],
    [c, 'pass'],
  ]);
  deleteSuite(db, c);
  const trends = listTrends(db, project.id, { suites: 2, runs: 10 });
  assert.deepEqual(
    trends.map(({ name, runs }) => [name, runs.map(({ buildState }) => buildState)]),
    [
      ['A', ['failed', 'failed']],
      ['B', ['failed', 'passed']],
    ],
  );
  assert.deepEqual(
    listTrends(db, project.id, { suites: 10, runs: 1 }).map(({ name }) => name),
    ['A', 'B', 'D'],
  );
  assert.deepEqual(listTrends(db, addProject(db).id, { suites: 10, runs: 1 }), []);
});
