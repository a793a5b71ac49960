// Projects: deleting one with everything that belongs to it, and reads that are kept only while nothing changes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { openDb } from '../../src/store/db.ts';
import { createNotification } from '../../src/store/notifications.ts';
import {
  createCollaborator,
  deleteProject,
  findProject,
  findVisibleProject,
  listVisibleProjects,
  updateProject,
} from '../../src/store/projects.ts';
import { attachDependency, createRule, createVariable } from '../../src/store/suites.ts';
import { moveBuild } from '../../src/store/transition.ts';
import { addAccount, addBuilds, addDependency, addProject, addSuite, openRoom } from './room.ts';

test('deleting a project takes with it everything that belongs to it, however much, and nothing of others', () => {
  using room = openRoom();
  const { db } = room;
  const fillProject = () => {
    const project = addProject(db);
    const suite = addSuite(db, project.id);
    createRule(db, { suiteId: suite.id, subject: 'commit.message', operator: 'contains', value: 'x' });
    createVariable(db, suite.id, 'A', 'b');
    attachDependency(db, suite.id, addDependency(db, project.ownerId).id);
    createCollaborator(db, project.id, addAccount(db).id);
    createNotification(db, {
      projectId: project.id,
      name: 'n',
      notifiableType: 'build',
      url: 'https://example.com',
      signingSecret: 's',
    });
    db.write(() => {
      for (let count = 0; count < 300; count += 1) {
        const { builds } = addBuilds(db, project, [suite.id]);
        moveBuild(db, builds[0] as bigint, 'start');
        moveBuild(db, builds[0] as bigint, 'pass');
      }
    });
    return project;
  };
  const kept = fillProject();
  const counts = () => {
    const tables = db.sqlite
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('facts')")
      .pluck()
      .all() as string[];
    return Object.fromEntries(
      tables.map(name => [name, db.sqlite.prepare(`SELECT count(*) FROM "${name}"`).pluck().get()]),
    );
  };
  const before = counts();
  const project = fillProject();
  const startedAt = performance.now();
  deleteProject(db, project.id);
  const tookMs = performance.now() - startedAt;
  const after = counts();
  // Accounts and dependencies do not belong to a project.
  assert.deepEqual({ ...after, accounts: 0, dependencies: 0 }, { ...before, accounts: 0, dependencies: 0 });
  assert.deepEqual(db.sqlite.pragma('foreign_key_check'), []);
  assert.equal(findProject(db, project.id), undefined);
  assert.ok(findProject(db, kept.id));
  assert.ok(tookMs < 2000, `${tookMs} ms for 300 requests with all that hangs on them`);
});

test('a project is seen by its owner and its collaborators, and listed once for each, newest first', () => {
  using room = openRoom();
  const { db } = room;
  const owner = addAccount(db);
  const friend = addAccount(db);
  const own = addProject(db, friend.id);
  const shared = addProject(db, owner.id);
  addProject(db, owner.id);
  createCollaborator(db, shared.id, friend.id);
  assert.equal(findVisibleProject(db, owner.id, shared.id)?.id, shared.id);
  assert.equal(findVisibleProject(db, friend.id, shared.id)?.id, shared.id);
  assert.equal(findVisibleProject(db, addAccount(db).id, shared.id), undefined);
  const listed = listVisibleProjects(db, friend.id, { limit: 10, before: undefined });
  assert.deepEqual(
    listed.map(project => project.id),
    [shared.id, own.id],
  );
});

test('a project that was read before is read anew after a change of this process, at once', () => {
  using room = openRoom();
  const { db } = room;
  const project = addProject(db);
  assert.equal(findProject(db, project.id)?.name, project.name);
  updateProject(db, project.id, { name: 'another' });
  assert.equal(findProject(db, project.id)?.name, 'another');
  db.write(() => {
    updateProject(db, project.id, { name: 'inside' });
    assert.equal(findProject(db, project.id)?.name, 'inside');
  });
  assert.throws(() =>
    db.write(() => {
      updateProject(db, project.id, { name: 'taken back' });
      assert.equal(findProject(db, project.id)?.name, 'taken back');
      throw new Error('no');
    }),
  );
  assert.equal(findProject(db, project.id)?.name, 'inside');
});

test('a project that was read before is read anew in the next turn after another process changed it', async () => {
  using room = openRoom();
  const { db } = room;
  const project = addProject(db);
  const other = openDb(room.path, room.vault);
  assert.equal(findProject(db, project.id)?.name, project.name);
  updateProject(other, project.id, { name: 'another' });
  await setImmediate();
  await setImmediate();
  assert.equal(findProject(db, project.id)?.name, 'another');
  deleteProject(other, project.id);
  await setImmediate();
  await setImmediate();
  assert.equal(findProject(db, project.id), undefined);
  other.close();
});
