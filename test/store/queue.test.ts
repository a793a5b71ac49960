// The queue: the first job of each project, and the position of each waiting build.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextInTurn } from '../../src/domain/fair-queue.ts';
import { claimBuild, createBuildRequest } from '../../src/store/builds.ts';
import type { Db } from '../../src/store/database/db.ts';
import { listFirstWaitingBuilds, listFirstWaitingRequests, positionOf } from '../../src/store/queue.ts';
import { moveBuild } from '../../src/store/transition.ts';
import { addBuilds, addProject, openFixture } from './fixture.ts';

const suites = (count: number) => Array.from({ length: count }, (_, at) => BigInt(at + 1));

/** The IDs of the builds in the order in which the queue starts them. */
function serveAll(db: Db): bigint[] {
  const order: bigint[] = [];
  const servedAt = new Map<string, number>();
  for (;;) {
    const waiting = listFirstWaitingBuilds(db).map(({ id, projectId }) => ({
      id,
      owner: `project ${projectId}`,
      enqueuedAt: id,
    }));
    const next = nextInTurn(waiting, servedAt);
    if (!next) return order;
    servedAt.set(next.owner, order.length + 1);
    order.push(next.id);
    claimBuild(db, next.id);
    moveBuild(db, next.id, 'pass');
  }
}

test('no build starts later than its position says', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const projects = [5, 1, 3, 8, 3].map(count => {
    const project = addProject(db);
    return { project, ids: addBuilds(db, project, suites(count)).builds };
  });
  const places = new Map(
    projects.flatMap(({ project, ids }) =>
      ids.map(id => [id, positionOf(db, { id, projectId: project.id })] as const),
    ),
  );
  assert.deepEqual(
    projects.map(({ ids }) => ids.map(id => places.get(id))),
    [[5, 9, 13, 15, 17], [5], [5, 9, 13], [5, 9, 13, 15, 17, 18, 19, 20], [5, 9, 13]],
  );
  serveAll(db).forEach((id, at) => {
    assert.ok(at + 1 <= (places.get(id) as number), `build ${id} was served as number ${at + 1}`);
  });
});

test('positions are updated after each change of the queue', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { builds } = addBuilds(db, project, suites(3));
  const placeOfLast = () => positionOf(db, { id: builds[2] as bigint, projectId: project.id });
  assert.equal(placeOfLast(), 3);
  claimBuild(db, builds[0] as bigint);
  assert.equal(placeOfLast(), 2);
  db.write(() => {
    moveBuild(db, builds[1] as bigint, 'cancel');
    assert.equal(placeOfLast(), 1);
  });
  assert.equal(placeOfLast(), 1);
});

test('the oldest waiting build of each project is listed, and no other', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const waiting = Array.from({ length: 5 }, () => addProject(db));
  addProject(db);
  const first = waiting.map(project => addBuilds(db, project, suites(2)).builds[0] as bigint);
  for (const project of waiting) addBuilds(db, project, suites(1));
  const ended = addBuilds(db, addProject(db), suites(1)).builds[0] as bigint;
  moveBuild(db, ended, 'cancel');
  assert.deepEqual(
    listFirstWaitingBuilds(db).map(({ id }) => id),
    first,
  );
  assert.deepEqual(listFirstWaitingRequests(db), []);
  const asked = waiting.slice(1, 3);
  for (const project of [...asked, ...asked]) createBuildRequest(db, project, 'main', 'someone@example.com');
  assert.deepEqual(
    listFirstWaitingRequests(db).map(({ projectId }) => projectId),
    asked.map(({ id }) => id),
  );
});
