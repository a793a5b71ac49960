// The versions of dependencies that other accounts keep when a dependency is no longer shared.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { orderDependencies } from '../../src/domain/container/artifact-mounts.ts';
import { createArtifact, deleteUnusedArtifacts } from '../../src/store/artifacts.ts';
import type { Db } from '../../src/store/database/db.ts';
import {
  acceptArchive,
  type Dependency,
  findDependency,
  isDependencyInUse,
  setShared,
  updateDependency,
} from '../../src/store/dependencies.ts';
import {
  countUsesByOthers,
  listProjectsUsing,
  listRelated,
  listRelatedVersions,
} from '../../src/store/dependency-use.ts';
import { deleteUnusedVersions } from '../../src/store/kept-versions.ts';
import { recordCompiledRelated } from '../../src/store/related-dependencies.ts';
import {
  attachDependency,
  detachDependency,
  listSuiteDependencies,
  moveDependencyLast,
} from '../../src/store/suites.ts';
import { moveDependency } from '../../src/store/transition.ts';
import { addAccount, addDependency, addProject, addSuite, openFixture } from './fixture.ts';

const hashOf = (letter: string) => letter.repeat(64);

/** Makes the artifact the result of the dependency's last compile. */
function compile(db: Db, { id }: Dependency, letter: string): Dependency {
  const hash = hashOf(letter);
  createArtifact(db, { hash, prefix: `/opt/${letter}`, sizeBytes: 1, files: 1 });
  db.sqlite
    .prepare("UPDATE dependencies SET artifact_hash = ?, compile_state = 'compiled' WHERE id = ?")
    .run(hash, id);
  recordCompiledRelated(
    db,
    id,
    listRelated(db, id).map(one => one.id),
  );
  return findDependency(db, id) as Dependency;
}

const read = (db: Db, { id }: Dependency) => findDependency(db, id) as Dependency;
const share = (db: Db, dependency: Dependency) => setShared(db, read(db, dependency), true);
const unshare = (db: Db, dependency: Dependency) => setShared(db, read(db, dependency), false);
const change = (db: Db, dependency: Dependency, changes: Parameters<typeof updateDependency>[2]) =>
  updateDependency(db, read(db, dependency), changes, undefined);

/** The artifacts that a suite gets, in search order: the first letter of each. */
const mounted = (db: Db, suiteId: bigint) =>
  orderDependencies(listSuiteDependencies(db, suiteId), used => listRelatedVersions(db, used))
    .search.map(({ artifactHash }) => artifactHash?.[0])
    .join('');
const versions = (db: Db) => db.sqlite.prepare('SELECT count(*) FROM kept_versions').pluck().get();

function openWorld() {
  const fixture = openFixture();
  const { db } = fixture;
  const owner = addAccount(db);
  const user = addAccount(db);
  const project = addProject(db, user.id);
  return {
    ...fixture,
    db,
    owner,
    user,
    project,
    suite: addSuite(db, project.id),
    own: addSuite(db, addProject(db, owner.id).id),
    [Symbol.dispose]: fixture[Symbol.dispose],
  };
}

test('suites of other accounts keep artifact, launch command, timeout, environment, name and prefix', () => {
  using world = openWorld();
  const { db, owner, suite, own } = world;
  const tool = compile(db, addDependency(db, owner.id), 'a');
  change(db, tool, { launchCommand: 'serve', launchSeconds: 30, environment: 'A=1', libraryPath: false });
  share(db, tool);
  for (const { id } of [suite, own]) attachDependency(db, id, tool.id);
  assert.deepEqual(countUsesByOthers(db, read(db, tool)), { suites: 1, dependencies: 0 });
  unshare(db, tool);
  compile(db, tool, 'b');
  change(db, tool, {
    name: 'secret plan',
    prefix: '/opt/other',
    launchCommand: 'other',
    launchSeconds: 60,
    environment: 'A=2',
    libraryPath: true,
  });

  const [kept] = listSuiteDependencies(db, suite.id);
  assert.ok(kept?.kept);
  assert.deepEqual(
    [kept.name, kept.prefix, kept.artifactHash, kept.launchCommand, kept.launchSeconds, kept.environment],
    [tool.name, '/opt/a', hashOf('a'), 'serve', 30, 'A=1'],
  );
  assert.equal(kept.libraryPath, false);
  const [current] = listSuiteDependencies(db, own.id);
  assert.deepEqual([current?.kept, current?.artifactHash], [null, hashOf('b')], 'the owner follows');

  share(db, tool);
  assert.equal(mounted(db, suite.id), 'b', 'shared again: the suite follows');
});

test('a dependency of another account keeps the version, also when its related ones are set again', () => {
  using world = openWorld();
  const { db, owner, user, suite } = world;
  const library = compile(db, addDependency(db, owner.id), 'a');
  share(db, library);
  const program = compile(db, addDependency(db, user.id, [library.id]), 'p');
  attachDependency(db, suite.id, program.id);
  unshare(db, library);
  compile(db, library, 'b');
  assert.equal(mounted(db, suite.id), 'pa');
  const other = compile(db, addDependency(db, user.id), 'o');
  updateDependency(db, read(db, program), {}, [other.id, library.id]);
  compile(db, program, 'q');
  assert.equal(mounted(db, suite.id), 'qoa');
  assert.deepEqual(
    listRelated(db, program.id).map(({ kept }) => kept !== null),
    [false, true],
  );
  updateDependency(db, read(db, program), {}, [other.id]);
  deleteUnusedVersions(db);
  assert.equal(mounted(db, suite.id), 'qoa', 'it is used until the next compile');
  compile(db, program, 'r');
  deleteUnusedVersions(db);
  assert.equal(versions(db), 0n);
});

test('what a kept version relates to is kept with it', () => {
  using world = openWorld();
  const { db, owner, suite } = world;
  const base = compile(db, addDependency(db, owner.id), 'a');
  const left = compile(db, addDependency(db, owner.id, [base.id]), 'b');
  const right = compile(db, addDependency(db, owner.id, [base.id]), 'c');
  const top = compile(db, addDependency(db, owner.id, [left.id, right.id]), 'd');
  share(db, top);
  attachDependency(db, suite.id, top.id);
  assert.equal(mounted(db, suite.id), 'dbca');
  unshare(db, top);
  assert.equal(versions(db), 4n, 'one for each dependency');
  for (const [at, dependency] of [base, left, right, top].entries())
    compile(db, dependency, 'wxyz'[at] as string);
  updateDependency(db, read(db, left), {}, []);
  assert.equal(mounted(db, suite.id), 'dbca');

  updateDependency(db, read(db, right), {}, []);
  updateDependency(db, read(db, top), {}, []);
  for (const dependency of [left, right, top]) compile(db, dependency, 'v');
  assert.equal(isDependencyInUse(db, base.id), true, 'only the kept version relates to it');
  detachDependency(db, suite.id, top.id);
  assert.equal(isDependencyInUse(db, base.id), false);
});

test('artifacts of kept versions are deleted when nobody uses them any more', () => {
  using world = openWorld();
  const { db, owner, suite } = world;
  const base = compile(db, addDependency(db, owner.id), 'a');
  const tool = compile(db, addDependency(db, owner.id, [base.id]), 'b');
  share(db, tool);
  attachDependency(db, suite.id, tool.id);
  unshare(db, tool);
  compile(db, base, 'x');
  compile(db, tool, 'y');
  const sweep = () => {
    deleteUnusedVersions(db);
    return deleteUnusedArtifacts(db, () => false).toSorted();
  };
  assert.deepEqual(sweep(), []);
  moveDependencyLast(db, suite.id, tool.id);
  assert.deepEqual(sweep(), [], 'the version stays when the dependency is moved');
  assert.equal(mounted(db, suite.id), 'ba');
  detachDependency(db, suite.id, tool.id);
  assert.deepEqual(sweep(), [hashOf('a'), hashOf('b')]);
  assert.equal(versions(db), 0n);
});

test('projects that keep a version get no events about the current one', () => {
  using world = openWorld();
  const { db, owner, user, project, suite } = world;
  const library = compile(db, addDependency(db, owner.id), 'a');
  share(db, library);
  const program = compile(db, addDependency(db, user.id, [library.id]), 'p');
  attachDependency(db, suite.id, library.id);
  attachDependency(db, suite.id, program.id);
  assert.deepEqual(listProjectsUsing(db, library.id), [project.id]);
  unshare(db, library);
  assert.deepEqual(listProjectsUsing(db, library.id), []);
  share(db, library);
  assert.deepEqual(listProjectsUsing(db, library.id), [project.id]);
});

test('each unsharing keeps the version of its time, and none is made if no other account uses it', () => {
  using world = openWorld();
  const { db, owner, suite, own, user } = world;
  const tool = compile(db, addDependency(db, owner.id), 'a');
  attachDependency(db, own.id, tool.id);
  share(db, tool);
  unshare(db, tool);
  assert.equal(versions(db), 0n);
  share(db, tool);
  attachDependency(db, suite.id, tool.id);
  unshare(db, tool);
  share(db, tool);
  compile(db, tool, 'b');
  const later = addSuite(db, addProject(db, user.id).id);
  attachDependency(db, later.id, tool.id);
  unshare(db, tool);
  compile(db, tool, 'c');
  assert.deepEqual(
    [suite, later, own].map(({ id }) => mounted(db, id)),
    ['b', 'b', 'c'],
  );
});

test('a suite that attaches a dependency itself gets that version, whatever others kept of it', () => {
  using world = openWorld();
  const { db, owner, suite } = world;
  const base = compile(db, addDependency(db, owner.id), 'a');
  const tool = compile(db, addDependency(db, owner.id, [base.id]), 'b');
  for (const one of [base, tool]) share(db, one);
  attachDependency(db, suite.id, tool.id);
  attachDependency(db, suite.id, base.id);
  unshare(db, tool);
  compile(db, base, 'x');
  const { search, launch } = orderDependencies(listSuiteDependencies(db, suite.id), used =>
    listRelatedVersions(db, used),
  );
  assert.deepEqual(
    [search, launch].map(list => list.map(({ artifactHash }) => artifactHash?.[0]).join('')),
    ['bx', 'xb'],
  );
});

test('a kept version stays what a compile used if it is removed from the list meanwhile', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [owner, other] = [addAccount(db).id, addAccount(db).id];
  const library = addDependency(db, owner);
  compile(db, library, 'a');
  share(db, library);
  const program = addDependency(db, other, [library.id]);
  unshare(db, library);
  compile(db, library, 'b');
  acceptArchive(db, program.id, { archiveHash: hashOf('0'), archiveContentType: '', archiveFileSize: 1 });
  moveDependency(db, program.id, 'start');
  updateDependency(db, read(db, program), {}, []);
  createArtifact(db, { hash: hashOf('c'), prefix: '/opt/c', sizeBytes: 1, files: 1 });
  moveDependency(db, program.id, 'compile', { artifactHash: hashOf('c') }, [library.id]);
  const suite = addSuite(db, addProject(db, other).id);
  attachDependency(db, suite.id, program.id);
  assert.equal(mounted(db, suite.id), 'ca');
  acceptArchive(db, program.id, { archiveHash: hashOf('1'), archiveContentType: '', archiveFileSize: 1 });
  moveDependency(db, program.id, 'start');
  moveDependency(db, program.id, 'compile', { artifactHash: hashOf('c') }, []);
  assert.equal(mounted(db, suite.id), 'c');
});
