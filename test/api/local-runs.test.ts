// Local runs and estimates, as callers see them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findBuild, rerunBuild } from '../../src/store/builds.ts';
import { listEvents } from '../../src/store/events.ts';
import { findProject, type Project } from '../../src/store/projects.ts';
import { moveBuild } from '../../src/store/transition.ts';
import { addBuilds, addSnapshot } from '../store/fixture.ts';
import { bootApp, type Planted, type TestApp } from '../support/app.ts';
import { errors, type Fields } from '../support/client.ts';
import { projectForm } from './contract.ts';
import { follow } from './event-stream.ts';
import { ok } from './shape.ts';

let app: TestApp;
let planted: Planted;
let project: string;
before(async () => {
  app = await bootApp();
  planted = app.plant();
  project = `/projects/${planted.project_id}`;
});
after(() => app.close());

const get = (path: string) => app.client.get(path, app.people.owner.as);
const send = (method: 'POST' | 'PUT', path: string, form: Fields = {}) =>
  app.client.call(method, path, { as: app.people.owner.as, form });

function runLocally() {
  const accountId = app.people.collaborator.account.id;
  const found = findProject(app.db, planted.project_id) as Project;
  const snapshotId = addSnapshot(app.db, { projectId: found.id, accountId });
  return addBuilds(app.db, found, [planted.suite_id], undefined, snapshotId);
}

test('a local run has a request, a commit and builds, but is not listed with the commits', async () => {
  const before = ok(await get(`${project}/commits`)).list;
  const { requestId, commitId, builds } = runLocally();
  const [request] = ok(await get(`${project}/build_requests`)).list;
  assert.equal(request?.id, requestId);
  assert.equal(request?.trigger, 'local');
  assert.deepEqual(ok(await get(`${project}/commits`)).list, before);
  assert.equal(ok(await get(`${project}/commits/${commitId}`)).record.id, commitId);
  assert.deepEqual(
    ok(await get(`${project}/commits/${commitId}/builds`)).list.map(({ id }) => id),
    builds,
  );
});

test('the commit of a local run cannot be deployed', async () => {
  const { commitId } = runLocally();
  const { deploy_strategy_id } = planted;
  const changes = app.changes();
  const answer = await send('POST', `${project}/deploys`, {
    deploy_strategy_id: `${deploy_strategy_id}`,
    commit_id: `${commitId}`,
  });
  assert.deepEqual([answer.status, answer.json], [404, errors('commit_id', 'not_found')]);
  assert.equal(app.changes(), changes);
});

test('local_variables is shown only while it is on', async () => {
  const created = ok(await send('POST', '/projects', projectForm()), 201).record;
  assert.ok(!('local_variables' in created));
  const path = `/projects/${created.id}`;
  assert.equal(ok(await send('PUT', path, { local_variables: 'true' })).record.local_variables, true);
  assert.equal(ok(await send('PUT', path, { description: 'x' })).record.local_variables, true);
  assert.ok(!('local_variables' in ok(await send('PUT', path, { local_variables: 'false' })).record));
});

test('an unfinished build has an estimate, in responses and its own firehose, but not in events', async () => {
  const first = findBuild(app.db, planted.project_id, planted.build_id);
  assert.ok(first);
  const suite = { id: planted.suite_id, name: 'Unit tests' };
  const passed = rerunBuild(app.db, first, suite);
  moveBuild(app.db, passed.id, 'start');
  const startedAt = app.db.now() - 90_000;
  moveBuild(app.db, passed.id, 'pass', { startedAt, finishedAt: startedAt + 90_000 });
  const build = rerunBuild(app.db, first, suite);
  const path = `${project}/builds/${build.id}`;
  const expected = ok(await get(path)).record.estimated_seconds;
  assert.ok(typeof expected === 'number' && expected > 0);
  const listed = ok(await get(`${project}/commits/${first.commitId}/builds`)).list;
  assert.deepEqual(
    listed.map(one => one.estimated_seconds).filter(one => one !== undefined),
    listed.filter(one => one.build_state === 'enqueued').map(() => expected),
  );
  const stream = await follow(app, `${path}/firehose`);
  assert.equal((await stream.next()).data.estimated_seconds, expected);
  moveBuild(app.db, build.id, 'cancel');
  assert.ok((await stream.rest()).every(({ data }) => !('estimated_seconds' in data)));
  assert.ok(!('estimated_seconds' in ok(await get(path)).record));
  const bodies = listEvents(app.db, planted.project_id, 0n, 1000).map(({ body }) => body);
  assert.ok(bodies.length > 0 && !bodies.some(body => body.includes('estimated_seconds')));
});
