// Projects: deleting one with everything that belongs to it, and cached reads.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createBuildRequest } from '../../src/store/builds.ts';
import { deleteNotification, deleteProject, purgeSomeRows } from '../../src/store/cleanup/purge.ts';
import { openDb } from '../../src/store/database/db.ts';
import { deleteDependency, isDependencyInUse } from '../../src/store/dependencies.ts';
import {
  createNotification,
  findNotification,
  listDeliveries,
  listNotifications,
  pingNotification,
} from '../../src/store/notifications.ts';
import { listWaitingReceivers, receiverExists } from '../../src/store/outbox.ts';
import {
  createCollaborator,
  createProject,
  findProject,
  findVisibleProject,
  isProjectNameTaken,
  listVisibleNames,
  listVisibleProjects,
  updateProject,
} from '../../src/store/projects.ts';
import {
  listFirstWaitingBuilds,
  listFirstWaitingRequests,
  listRunningBuilds,
  listUnfinishedBuilds,
} from '../../src/store/queue.ts';
import { attachDependency, createRule, createVariable } from '../../src/store/suites.ts';
import { moveBuild } from '../../src/store/transition.ts';
import { processorMs } from '../support/processor.ts';
import {
  addAccount,
  addBuilds,
  addDependency,
  addProject,
  addSuite,
  keyPair,
  openFixture,
} from './fixture.ts';

test('the names of projects to choose from are those that the account sees now, the newest first', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, shared, hidden] = [addProject(db), addProject(db), addProject(db)];
  const newest = addProject(db, first.ownerId);
  createCollaborator(db, shared.id, first.ownerId);
  const names = () => listVisibleNames(db, first.ownerId).map(({ name }) => name);
  assert.deepEqual(names(), [newest.name, shared.name, first.name]);
  updateProject(db, first, { name: 'renamed' });
  deleteProject(db, newest.id);
  createCollaborator(db, hidden.id, first.ownerId);
  assert.deepEqual(names(), [hidden.name, shared.name, 'renamed']);
});

test('deleting a project deletes everything that belongs to it, and nothing else', () => {
  using fixture = openFixture();
  const { db } = fixture;
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
  const workedMs = processorMs(() => {
    deleteProject(db, project.id);
    while (purgeSomeRows(db));
  });
  const after = counts();
  // Accounts and dependencies do not belong to a project.
  assert.deepEqual({ ...after, accounts: 0, dependencies: 0 }, { ...before, accounts: 0, dependencies: 0 });
  assert.deepEqual(db.sqlite.pragma('foreign_key_check'), []);
  assert.equal(findProject(db, project.id), undefined);
  assert.ok(findProject(db, kept.id));
  assert.ok(workedMs < 2000, `${workedMs} ms for 300 requests with all that hangs on them`);
});

test('a deleted project disappears at once, and its rows are purged in batches, also over a restart', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const projects = [addProject(db), addProject(db)] as const;
  db.write(() => {
    for (const project of projects) {
      const suite = addSuite(db, project.id);
      for (let count = 0; count < 20; count += 1) {
        const { builds } = addBuilds(db, project, [suite.id]);
        moveBuild(db, builds[0] as bigint, 'start');
        if (count > 0) moveBuild(db, builds[0] as bigint, 'pass');
      }
      addBuilds(db, project, [suite.id]);
      createBuildRequest(db, project, 'main', 'someone@example.com');
      const event = db.sqlite.prepare("INSERT INTO events VALUES (?, ?, 'ping', 1, '', 1)");
      for (let count = 0; count < 9000; count += 1) event.run(db.newId(), project.id);
    }
  });
  const [going, kept] = projects;
  const count = (table: string, { id }: { id: bigint }) =>
    Number(db.sqlite.prepare(`SELECT count(*) FROM ${table} WHERE project_id = ?`).pluck().get(id));
  const tables = ['events', 'builds', 'build_requests', 'commits', 'suites'];
  const before = tables.map(table => count(table, kept));
  deleteProject(db, going.id);
  assert.equal(findProject(db, going.id), undefined);
  assert.equal(listVisibleProjects(db, going.ownerId, { limit: 10, before: undefined }).length, 0);
  assert.deepEqual(
    listRunningBuilds(db).map(({ projectId }) => projectId),
    [kept.id],
    'what runs for it is to end',
  );
  assert.deepEqual(
    [
      listFirstWaitingBuilds(db).map(({ projectId }) => projectId),
      listFirstWaitingRequests(db).map(({ projectId }) => projectId),
    ],
    [[kept.id], [kept.id]],
    'nothing of it starts',
  );
  assert.equal(isProjectNameTaken(db, going.ownerId, going.name), false, 'its name is free');
  createProject(db, {
    ownerId: going.ownerId,
    name: going.name,
    description: '',
    repositoryUrl: 'git@example.com:x.git',
    badge: false,
    cancelSuperseded: false,
    keyPair,
  });

  assert.ok(purgeSomeRows(db, 0));
  assert.ok(count('events', going) > 0, 'not all at once');
  // As after a crash: opens the database again.
  const next = openDb(fixture.path, fixture.vault, () => fixture.now.ms);
  assert.equal(findProject(next, going.id), undefined);
  let batches = 0;
  while (purgeSomeRows(next, 0)) batches += 1;
  next.close();
  assert.ok(batches > 1, `${batches} batches`);
  assert.deepEqual(
    tables.map(table => count(table, going)),
    [0, 0, 0, 0, 0],
  );
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM projects').pluck().get(), 2n);
  assert.deepEqual(
    tables.map(table => count(table, kept)),
    before,
  );
  assert.deepEqual(db.sqlite.pragma('foreign_key_check'), []);
});

test('a dependency that only a deleted project used can be deleted at once', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const dependency = addDependency(db, project.ownerId);
  attachDependency(db, addSuite(db, project.id).id, dependency.id);
  assert.ok(isDependencyInUse(db, dependency.id));
  deleteProject(db, project.id);
  assert.equal(isDependencyInUse(db, dependency.id), false);
  deleteDependency(db, dependency);
});

test('a deleted receiver gets nothing more, and its deliveries are purged in batches', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const receiver = () =>
    createNotification(db, {
      projectId: project.id,
      name: 'n',
      notifiableType: 'build',
      url: 'https://receiver.invalid',
      signingSecret: 's',
    });
  const [going, kept] = [receiver(), receiver()];
  db.write(() => {
    for (let count = 0; count < 1500; count += 1) {
      pingNotification(db, going);
      pingNotification(db, kept);
    }
    db.sqlite.prepare("UPDATE deliveries SET state = 'delivered' WHERE rowid % 2 = 0").run();
  });
  deleteNotification(db, going.id);
  assert.deepEqual(
    listWaitingReceivers(db).map(one => one.notificationId),
    [kept.id],
  );
  assert.equal(receiverExists(db, going.id), false);
  assert.equal(findNotification(db, project.id, going.id), undefined);
  assert.deepEqual(
    listNotifications(db, project.id, { limit: 10, before: undefined }).map(({ id }) => id),
    [kept.id],
  );
  createBuildRequest(db, project, 'main', 'someone@example.com');
  while (purgeSomeRows(db));
  assert.equal(listDeliveries(db, going.id, { limit: 1, before: undefined }).length, 0);
  assert.equal(listDeliveries(db, kept.id, { limit: 2000, before: undefined }).length, 1501);
  assert.equal(db.sqlite.prepare('SELECT count(*) FROM notifications').pluck().get(), 1n);
});

test('unfinished builds are found without scanning the finished ones', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { builds } = addBuilds(db, project, [addSuite(db, project.id).id]);
  const plans: string[] = [];
  const { prepare } = db.sqlite;
  db.sqlite.prepare = ((words: string) => {
    if (words.startsWith('select'))
      plans.push(
        ...(prepare.call(db.sqlite, `EXPLAIN QUERY PLAN ${words}`).all(1) as { detail: string }[]).map(
          step => step.detail,
        ),
      );
    return prepare.call(db.sqlite, words);
  }) as typeof prepare;
  const found = listUnfinishedBuilds(db, 50);
  db.sqlite.prepare = prepare;
  assert.deepEqual(
    found.map(({ build }) => build.id),
    builds,
  );
  assert.ok(plans.some(step => step.includes('builds_unfinished')));
  assert.deepEqual(
    plans.filter(step => step.startsWith('SCAN') && !step.includes('builds_unfinished')),
    [],
  );
});

test('a project is visible to its owner and its collaborators, and listed once for each, newest first', () => {
  using fixture = openFixture();
  const { db } = fixture;
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

test('a cached project is read again at once after a change by this process', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  assert.equal(findProject(db, project.id)?.name, project.name);
  updateProject(db, project, { name: 'another' });
  assert.equal(findProject(db, project.id)?.name, 'another');
  db.write(() => {
    updateProject(db, project, { name: 'inside' });
    assert.equal(findProject(db, project.id)?.name, 'inside');
  });
  assert.throws(() =>
    db.write(() => {
      updateProject(db, project, { name: 'taken back' });
      assert.equal(findProject(db, project.id)?.name, 'taken back');
      throw new Error('no');
    }),
  );
  assert.equal(findProject(db, project.id)?.name, 'inside');
});

test('a cached project is read again in the next turn after a change by another process', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const other = openDb(fixture.path, fixture.vault);
  assert.equal(findProject(db, project.id)?.name, project.name);
  updateProject(other, project, { name: 'another' });
  await setImmediate();
  await setImmediate();
  assert.equal(findProject(db, project.id)?.name, 'another');
  deleteProject(other, project.id);
  await setImmediate();
  await setImmediate();
  assert.equal(findProject(db, project.id), undefined);
  other.close();
});
