// Lists of build requests, and the node that a build or a compile runs on.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBuildRequest, findBuild, listBuildRequests, recordNode } from '../../src/store/builds.ts';
import { acceptArchive, findDependency, recordCompileNode } from '../../src/store/dependencies.ts';
import { moveBuild, moveDependency } from '../../src/store/transition.ts';
import { addAccount, addBuilds, addDependency, addProject, openFixture } from './fixture.ts';

test('the requests of a branch are those that were fetched and those that wait, newest first, in pages', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const fetched = (branch: string) => {
    const { requestId } = addBuilds(db, project, [1n]);
    db.sqlite.prepare('UPDATE build_requests SET branch = ? WHERE id = ?').run(branch, requestId);
    return requestId;
  };
  const waiting = (ref: string) => createBuildRequest(db, project, ref, 'a@example.org').id;
  const ids = [fetched('main'), waiting('main'), fetched('main'), waiting('main'), fetched('main')];
  for (const other of ['next', 'main-2']) {
    fetched(other);
    waiting(other);
  }
  const list = (limit: number, before?: bigint, state?: 'enqueued') =>
    listBuildRequests(db, project.id, { limit, before }, { branch: 'main', state }).map(({ id }) => id);
  const newestFirst = ids.toReversed();
  assert.deepEqual(list(10), newestFirst);
  assert.deepEqual(list(2), newestFirst.slice(0, 3), 'one more shows that there is another page');
  assert.deepEqual(list(2, newestFirst[1]), newestFirst.slice(2));
  assert.deepEqual(list(10, undefined, 'enqueued'), [ids[3], ids[1]]);
  assert.deepEqual(
    listBuildRequests(db, project.id, { limit: 10, before: undefined }, { branch: 'none' }),
    [],
  );
});

test('the node of a build is recorded while it runs, forgotten when it is queued again, and kept at its end', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [id = 0n] = addBuilds(db, project, [1n]).builds;
  const node = () => findBuild(db, project.id, id)?.node;
  recordNode(db, id, 'too-early');
  assert.equal(node(), null);
  moveBuild(db, id, 'start');
  recordNode(db, id, 'builder-1');
  assert.equal(node(), 'builder-1');
  moveBuild(db, id, 'requeue');
  assert.equal(node(), null, 'nobody knows where it will run');
  moveBuild(db, id, 'start');
  recordNode(db, id, 'builder-2');
  moveBuild(db, id, 'pass', { exitCode: 0 });
  recordNode(db, id, 'too-late');
  assert.equal(node(), 'builder-2');
  recordNode(db, 1n, 'of a build that was deleted');
});

test('readers are notified of the node of a build once, not each time that it is reported', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [id = 0n] = addBuilds(db, addProject(db), [1n]).builds;
  moveBuild(db, id, 'start');
  const touched: string[] = [];
  db.onCommit = topics => {
    touched.push(...topics);
  };
  recordNode(db, id, 'builder-1');
  assert.ok(touched.includes(`build:${id}`) && touched.includes('queue'), touched.join(' '));
  touched.length = 0;
  recordNode(db, id, 'builder-1');
  assert.deepEqual(touched, []);
});

test('the node of a compile is recorded while it runs, and forgotten when it is queued again', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { id } = addDependency(db, addAccount(db).id);
  const node = () => findDependency(db, id)?.node;
  acceptArchive(db, id, { archiveHash: 'a'.repeat(64), archiveContentType: 'x', archiveFileSize: 1 });
  recordCompileNode(db, id, 'too-early');
  assert.equal(node(), null);
  moveDependency(db, id, 'start');
  recordCompileNode(db, id, 'builder-1');
  assert.equal(node(), 'builder-1');
  moveDependency(db, id, 'requeue');
  assert.equal(node(), null);
  moveDependency(db, id, 'start');
  recordCompileNode(db, id, 'builder-3');
  moveDependency(db, id, 'fail', { error: 'It failed.' });
  recordCompileNode(db, id, 'too-late');
  assert.equal(node(), 'builder-3');
});
