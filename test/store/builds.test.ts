// Lists of build requests.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBuildRequest, listBuildRequests } from '../../src/store/builds.ts';
import { addBuilds, addProject, openFixture } from './fixture.ts';

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
