// The queue of compiles: what waits for what, in which order, and what is compiled again after a change.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createArtifact } from '../../src/store/artifacts.ts';
import { findWaitingCompile, listFirstCompiles } from '../../src/store/compile-queue.ts';
import type { Db } from '../../src/store/database/db.ts';
import {
  acceptArchive,
  cancelCompile,
  compileDependents,
  type Dependency,
  findDependency,
  setShared,
  updateDependency,
} from '../../src/store/dependencies.ts';
import { dependencyRecord, isOutdated } from '../../src/store/dependency-use.ts';
import { attachDependency } from '../../src/store/suites.ts';
import { moveDependency } from '../../src/store/transition.ts';
import {
  addAccount,
  addDependency,
  addProject,
  addSuite,
  eventTypes,
  lastId,
  openFixture,
} from './fixture.ts';

const archive = { archiveHash: 'a'.repeat(64), archiveContentType: 'application/x-tar', archiveFileSize: 1 };

/** Creates a chain: each relates to the one before it. */
function addChain(db: Db, length: number, ownerId = addAccount(db).id): Dependency[] {
  const chain: Dependency[] = [];
  for (let at = 0; at < length; at += 1) {
    const before = chain.at(-1);
    chain.push(addDependency(db, ownerId, before ? [before.id] : []));
  }
  return chain;
}

const fresh = (db: Db, { id }: Pick<Dependency, 'id'>) => findDependency(db, id) as Dependency;
const upload = (db: Db, { id }: Dependency) => acceptArchive(db, id, archive);
const startable = (db: Db) => listFirstCompiles(db).map(({ id }) => id);
const reasonOf = (db: Db, dependency: Dependency) => findWaitingCompile(db, fresh(db, dependency))?.reason;
const positionOf = (db: Db, dependency: Dependency) =>
  findWaitingCompile(db, fresh(db, dependency))?.position;

/** Compiles it with the artifacts that its related dependencies have now. */
function compile(db: Db, { id }: Dependency, hash: string, related: readonly Dependency[] = []): void {
  createArtifact(db, { hash, prefix: '/opt/x', sizeBytes: 1, files: 1 });
  moveDependency(db, id, 'start');
  finish(db, id, hash, related);
}
function finish(db: Db, id: bigint, hash: string, related: readonly Dependency[]): void {
  createArtifact(db, { hash, prefix: '/opt/x', sizeBytes: 1, files: 1 });
  const hashes = related.map(one => fresh(db, one).artifactHash);
  moveDependency(db, id, 'compile', { artifactHash: hash, relatedArtifacts: JSON.stringify(hashes) });
}

test('a chain that is uploaded in the wrong order is compiled in the right one', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second, third] = addChain(db, 3) as [Dependency, Dependency, Dependency];
  upload(db, third);
  assert.deepEqual(startable(db), []);
  assert.equal(reasonOf(db, third), `Waiting for the archive of ${second.name}.`);
  upload(db, second);
  assert.equal(reasonOf(db, third), `Waiting for ${second.name} to be compiled.`);
  assert.equal(reasonOf(db, second), `Waiting for the archive of ${first.name}.`);
  upload(db, first);
  assert.deepEqual(
    [first, second, third].map(one => positionOf(db, one)),
    [1, 2, 3],
  );
  assert.deepEqual(startable(db), [first.id]);
  compile(db, first, '1');
  assert.deepEqual(startable(db), [second.id]);
  assert.equal(reasonOf(db, second), undefined);
  moveDependency(db, second.id, 'start');
  assert.deepEqual(startable(db), []);
  assert.equal(reasonOf(db, third), `Waiting for ${second.name} to be compiled.`);
  finish(db, second.id, '2', [first]);
  assert.deepEqual(startable(db), [third.id]);
});

test('a compile waits for a newer compile of what it relates to, and for what that one relates to', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second, third] = addChain(db, 3) as [Dependency, Dependency, Dependency];
  for (const one of [first, second]) upload(db, one);
  compile(db, first, '1');
  compile(db, second, '2', [first]);
  upload(db, third);
  assert.deepEqual(startable(db), [third.id]);
  upload(db, first);
  assert.equal(reasonOf(db, third), `Waiting for ${first.name} to be compiled.`);
  // If it fails, its last artifact is still there.
  moveDependency(db, first.id, 'start');
  moveDependency(db, first.id, 'fail', { error: 'exit 1' });
  assert.deepEqual(startable(db), [third.id]);
});

test('a compile whose related one could not be compiled starts, in order to fail, whatever else it waits for', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { id: ownerId } = addAccount(db);
  const [failed, missing] = [addDependency(db, ownerId), addDependency(db, ownerId)];
  const between = addDependency(db, ownerId, [missing.id, failed.id]);
  const last = addDependency(db, ownerId, [between.id]);
  for (const one of [failed, between, last]) upload(db, one);
  assert.deepEqual(startable(db), [failed.id]);
  cancelCompile(db, fresh(db, failed));
  assert.equal(fresh(db, failed).compileState, 'compile_failed');
  assert.deepEqual(startable(db), [between.id]);
  assert.equal(reasonOf(db, last), `Waiting for ${between.name} to be compiled.`);
});

test('accounts take turns, and nobody learns the names of private dependencies of others', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const chain = addChain(db, 3);
  const [hidden, shared] = chain as [Dependency, Dependency, Dependency];
  setShared(db, shared, true);
  const other = addDependency(db, addAccount(db).id, [shared.id]);
  for (const one of [hidden, shared]) upload(db, one);
  compile(db, hidden, '1');
  compile(db, shared, '2', [hidden]);
  for (const one of [...chain, other]) upload(db, one);
  assert.equal(reasonOf(db, other), `Waiting for ${shared.name} to be compiled.`);
  moveDependency(db, shared.id, 'cancel', { error: 'canceled' });
  assert.equal(reasonOf(db, other), 'Waiting for a dependency of another account to be compiled.');
  const single = addDependency(db, addAccount(db).id);
  upload(db, single);
  assert.deepEqual(new Set(startable(db)), new Set([hidden.id, single.id]));
  assert.deepEqual(
    [hidden, chain[2] as Dependency, other, single].map(one => positionOf(db, one)),
    [3, 4, 3, 3],
  );
});

test('long chains and many relations cost little to read, and only waiting rows are read', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const { id: ownerId } = addAccount(db);
  db.write(() => {
    for (const one of addChain(db, 1000, ownerId).toReversed()) upload(db, one);
    let layer: bigint[] = [];
    for (let depth = 0; depth < 12; depth += 1) {
      layer = Array.from({ length: 6 }, () => addDependency(db, ownerId, layer).id);
      for (const id of layer) acceptArchive(db, id, archive);
    }
  });
  assert.equal(startable(db).length, 1);
  const [last] = db.sqlite.prepare('SELECT max(id) FROM dependencies').pluck().all() as bigint[];
  assert.match(
    reasonOf(db, { id: last } as Dependency) ?? '',
    /^Waiting for dependency-\d+ to be compiled\.$/,
  );
  dependencyRecord(db, fresh(db, { id: last as bigint }));

  using another = openFixture();
  const asked: string[] = [];
  const prepare = another.db.sqlite.prepare.bind(another.db.sqlite);
  another.db.sqlite.prepare = ((query: string) => {
    asked.push(query);
    return prepare(query);
  }) as typeof prepare;
  listFirstCompiles(another.db);
  const queries = asked.filter(query => query.includes('dependencies'));
  assert.equal(queries.length, 4);
  const scans = queries.flatMap(query =>
    (prepare(`EXPLAIN QUERY PLAN ${query.replaceAll('?', '1')}`).all() as { detail: string }[]).filter(
      ({ detail }) => detail.startsWith('SCAN') && !detail.includes('dependencies_unfinished'),
    ),
  );
  assert.deepEqual(scans, []);
});

test('a dependency is outdated when an artifact that it was compiled with changed, directly or not', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second, third] = addChain(db, 3) as [Dependency, Dependency, Dependency];
  for (const one of [first, second, third]) upload(db, one);
  compile(db, first, '1');
  compile(db, second, '2', [first]);
  compile(db, third, '3', [second, first]);
  const outdated = () => [first, second, third].map(one => isOutdated(db, fresh(db, one)));
  assert.deepEqual(outdated(), [false, false, false]);
  assert.equal('outdated' in dependencyRecord(db, fresh(db, third)), false);
  upload(db, first);
  compile(db, first, '1');
  assert.deepEqual(outdated(), [false, false, false], 'the artifact is the same');
  upload(db, first);
  compile(db, first, '1 changed');
  assert.deepEqual(outdated(), [false, true, true]);
  assert.equal(dependencyRecord(db, fresh(db, third)).outdated, true);
  assert.deepEqual(
    compileDependents(db, fresh(db, first)).map(({ id }) => id),
    [second.id, third.id],
  );
  assert.deepEqual(startable(db), [second.id]);
  assert.deepEqual(compileDependents(db, fresh(db, first)), [], 'both wait already');
  compile(db, second, '2', [first]);
  compile(db, third, '3', [second, first]);
  assert.deepEqual(outdated(), [false, false, false]);
  updateDependency(db, fresh(db, third), {}, [second.id, addDependency(db, third.ownerId).id]);
  assert.deepEqual(outdated(), [false, false, true], 'it relates to another one now');
  db.sqlite.prepare('UPDATE dependencies SET related_artifacts = NULL').run();
  assert.deepEqual(outdated(), [false, false, false], 'nobody knows what it was compiled with');
});

test('only dependencies of the caller are compiled with one call, those that failed included', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second] = addChain(db, 2) as [Dependency, Dependency];
  setShared(db, first, true);
  const foreign = addDependency(db, addAccount(db).id, [first.id]);
  for (const one of [first, second, foreign]) upload(db, one);
  compile(db, first, '1');
  compile(db, foreign, '2', [first]);
  moveDependency(db, second.id, 'start');
  moveDependency(db, second.id, 'fail', { error: 'exit 1' });
  upload(db, first);
  compile(db, first, '1 changed');
  assert.equal(isOutdated(db, fresh(db, foreign)), true);
  assert.deepEqual(
    compileDependents(db, fresh(db, first)).map(({ id }) => id),
    [second.id],
  );
  assert.equal(fresh(db, foreign).compileState, 'compiled');
});

test('dependents that ask for it are compiled again when an artifact changes, and only then', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second, third] = addChain(db, 3) as [Dependency, Dependency, Dependency];
  setShared(db, first, true);
  const foreign = addDependency(db, addAccount(db).id, [first.id]);
  const manual = addDependency(db, first.ownerId, [first.id]);
  for (const one of [second, third, foreign]) updateDependency(db, one, { recompile: true }, undefined);
  for (const one of [first, second, third, foreign, manual]) upload(db, one);
  compile(db, first, '1');
  compile(db, second, '2', [first]);
  compile(db, third, '3', [second, first]);
  compile(db, foreign, '4', [first]);
  compile(db, manual, '5', [first]);
  const states = () => [second, third, foreign, manual].map(one => fresh(db, one).compileState);
  const done = ['compiled', 'compiled', 'compiled', 'compiled'];
  assert.deepEqual(states(), done);

  upload(db, first);
  compile(db, first, '1');
  assert.deepEqual(states(), done, 'the artifact is the same');

  upload(db, first);
  compile(db, first, '1 changed');
  const [waits] = ['enqueued_for_compile'];
  assert.deepEqual(states(), [waits, waits, waits, 'compiled']);
  assert.deepEqual(new Set(startable(db)), new Set([second.id, foreign.id]));
  compile(db, second, '2', [first]);
  compile(db, third, '3', [second, first]);
  compile(db, foreign, '4', [first]);
  assert.deepEqual(states(), done, 'the same results lead to no further compiles');
});

test('a dependency that was compiled with an artifact that changed meanwhile is compiled again if it asks for it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second] = addChain(db, 2) as [Dependency, Dependency];
  updateDependency(db, second, { recompile: true }, undefined);
  upload(db, first);
  compile(db, first, '1');
  upload(db, second);
  moveDependency(db, second.id, 'start');
  upload(db, first);
  compile(db, first, '1 changed');
  assert.equal(fresh(db, second).compileState, 'compiling');
  createArtifact(db, { hash: '2', prefix: '/opt/x', sizeBytes: 1, files: 1 });
  moveDependency(db, second.id, 'compile', { artifactHash: '2', relatedArtifacts: '["1"]' });
  assert.equal(fresh(db, second).compileState, 'enqueued_for_compile');
  assert.equal(fresh(db, second).attempts, 0);
  compile(db, second, '2 changed', [first]);
  assert.equal(fresh(db, second).compileState, 'compiled');
});

test('nothing waits for a version that is kept, or is compiled again because of it', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [base, shared] = addChain(db, 2) as [Dependency, Dependency];
  const user = addDependency(db, addAccount(db).id, [shared.id]);
  updateDependency(db, user, { recompile: true }, undefined);
  for (const one of [base, shared]) upload(db, one);
  compile(db, base, '1');
  compile(db, shared, '2', [base]);
  setShared(db, fresh(db, shared), true);
  upload(db, user);
  compile(db, user, '3', [shared, base]);
  setShared(db, fresh(db, shared), false);
  assert.equal(isOutdated(db, fresh(db, user)), false);
  for (const one of [base, shared, user]) upload(db, one);
  assert.deepEqual(new Set(startable(db)), new Set([base.id, user.id]));
  const kept = [fresh(db, shared), fresh(db, base)].map(one => one.artifactHash);
  compile(db, base, '1 changed');
  compile(db, shared, '2 changed', [base]);
  moveDependency(db, user.id, 'start');
  moveDependency(db, user.id, 'compile', { artifactHash: '3', relatedArtifacts: JSON.stringify(kept) });
  assert.equal(fresh(db, user).compileState, 'compiled');
  assert.equal(isOutdated(db, fresh(db, user)), false);
});

test('two dependencies that exchanged their relation do not wait for each other', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [first, second] = addChain(db, 2) as [Dependency, Dependency];
  for (const one of [first, second]) upload(db, one);
  compile(db, first, '1');
  compile(db, second, '2', [first]);
  updateDependency(db, fresh(db, second), {}, []);
  updateDependency(db, fresh(db, first), {}, [second.id]);
  upload(db, first);
  assert.deepEqual(startable(db), [first.id]);
});

test('an automatic compile has the events of any other', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [first, second] = addChain(db, 2, project.ownerId) as [Dependency, Dependency];
  updateDependency(db, second, { recompile: true }, undefined);
  attachDependency(db, addSuite(db, project.id).id, second.id);
  for (const one of [first, second]) upload(db, one);
  compile(db, first, '1');
  compile(db, second, '2', [first]);
  upload(db, first);
  const before = lastId(db);
  compile(db, first, '1 changed');
  compile(db, second, '2 changed', [first]);
  assert.deepEqual(eventTypes(db, before), [
    'dependency.started',
    'dependency.finished',
    'dependency.enqueued',
    'dependency.started',
    'dependency.finished',
  ]);
});
