// Which artifacts of builds expire, and which files are removed.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { findBuild, rerunBuild } from '../../../src/store/builds.ts';
import { deleteProject, purgeSomeRows } from '../../../src/store/cleanup/purge.ts';
import { buildFilesDirectory, buildFilesPath } from '../../../src/store/data/paths.ts';
import type { Db } from '../../../src/store/database/db.ts';
import { keepArtifacts, listExpiredArtifacts } from '../../../src/store/result/artifact-retention.ts';
import { listBuildArtifacts } from '../../../src/store/result/build-artifacts.ts';
import { deleteSuite } from '../../../src/store/suites.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { sweepArtifactFiles, sweepExpiredArtifacts } from '../../../src/work/result/sweep-artifacts.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../../store/fixture.ts';
import { addArtifacts } from '../../support/artifacts.ts';

const DAY_MS = 86_400_000;
const files = { 'report/index.html': '<h1>98 %</h1>', 'app.log': 'x' };

function openWorld() {
  const fixture = openFixture();
  const data = dirname(fixture.path);
  mkdirSync(buildFilesDirectory(data));
  const { db } = fixture;
  const project = addProject(db);
  const suite = addSuite(db, project.id);
  return {
    ...fixture,
    data,
    project,
    suite,
    has: (id: bigint) => ({
      counted: (findBuild(db, project.id, id)?.artifacts ?? 0) > 0,
      listed: listBuildArtifacts(db, id, { limit: 9 }).length > 0,
      file: existsSync(buildFilesPath(data, id)),
    }),
    /** A finished build with artifacts. */
    async add(end: 'pass' | 'fail' = 'pass', request: { branch?: string; pullRequest?: number } = {}) {
      const { builds, requestId } = addBuilds(db, project, [suite.id]);
      const [id] = builds as [bigint];
      setRequest(db, requestId, { branch: 'main', ...request });
      moveBuild(db, id, 'start', { nonce: 'n' });
      await addArtifacts(db, data, id, files);
      moveBuild(db, id, end, { exitCode: 0 });
      return id;
    },
    sweep: () => sweepExpiredArtifacts(db, data, 30 * DAY_MS),
  };
}

function setRequest(db: Db, id: bigint, { branch, pullRequest }: { branch: string; pullRequest?: number }) {
  db.sqlite
    .prepare('UPDATE build_requests SET branch = ?, pull_request = ? WHERE id = ?')
    .run(branch, pullRequest === undefined ? null : BigInt(pullRequest), id);
}

const all = { counted: true, listed: true, file: true };
const none = { counted: false, listed: false, file: false };

test('artifacts expire, except kept ones and those of the newest passed build of a suite on each branch', async () => {
  using world = openWorld();
  const { db, now, project } = world;
  const expiring = {
    'an older passed build': await world.add(),
    'a failed build': await world.add('fail'),
    'a pull request from a fork': await world.add('pass', { branch: 'main', pullRequest: 7 }),
    'a build of a tag or a hash': await world.add('pass', { branch: '' }),
  };
  const kept = await world.add('fail');
  keepArtifacts(db, findBuild(db, project.id, kept) as never, true);
  const staying = {
    'the newest passed one of main': await world.add(),
    'the newest passed one of another branch': await world.add('pass', { branch: 'release' }),
    'a kept one': kept,
  };
  now.ms += 29 * DAY_MS;
  const young = await world.add('fail');
  await world.sweep();
  for (const id of [...Object.values(expiring), ...Object.values(staying)])
    assert.deepEqual(world.has(id), all);
  now.ms += 2 * DAY_MS;
  await world.sweep();
  for (const [name, id] of Object.entries(expiring)) assert.deepEqual(world.has(id), none, name);
  for (const [name, id] of Object.entries(staying)) assert.deepEqual(world.has(id), all, name);
  assert.deepEqual(world.has(young), all);
  for (const id of Object.values(expiring)) assert.ok(findBuild(db, project.id, id), 'the record stays');

  keepArtifacts(db, findBuild(db, project.id, kept) as never, false);
  await world.sweep();
  assert.deepEqual(world.has(kept), none);
});

test('the newest passed build is that of the newest request, and a deleted suite has none', async () => {
  using world = openWorld();
  const { db, now, project, suite } = world;
  const older = await world.add();
  const newest = await world.add();
  const rerun = rerunBuild(db, findBuild(db, project.id, older) as never, suite);
  moveBuild(db, rerun.id, 'start', { nonce: 'n' });
  await addArtifacts(db, world.data, rerun.id, files);
  moveBuild(db, rerun.id, 'pass', { exitCode: 0 });
  now.ms += 31 * DAY_MS;
  await world.sweep();
  assert.deepEqual([world.has(older), world.has(rerun.id), world.has(newest)], [none, none, all]);
  deleteSuite(db, suite);
  await world.sweep();
  assert.deepEqual(world.has(newest), none);
});

test('a search for expired artifacts reads no builds that are too young', () => {
  using world = openWorld();
  const { sqlite } = world.db;
  const prepare = sqlite.prepare;
  const texts: string[] = [];
  sqlite.prepare = ((text: string) => {
    texts.push(text);
    return prepare.call(sqlite, text);
  }) as typeof prepare;
  listExpiredArtifacts(world.db, world.now.ms, 0n, 50);
  sqlite.prepare = prepare;
  const [text = ''] = texts;
  const plan = sqlite.prepare(`EXPLAIN QUERY PLAN ${text}`).all(0n, 1n, 0n, 1n, 50n) as { detail: string }[];
  assert.match(plan.map(({ detail }) => detail).join(), /INDEX builds_artifacts \(id>\? AND id<\?\)/);
});

test('more builds than are read at once expire in one pass', async () => {
  using world = openWorld();
  const ids: bigint[] = [];
  for (let count = 0; count < 60; count += 1) ids.push(await world.add('fail'));
  world.now.ms += 31 * DAY_MS;
  await world.sweep();
  assert.deepEqual(
    ids.filter(id => world.has(id).file),
    [],
  );
});

test('files without a build that needs them are removed: of a deleted project, and of an interrupted deletion', async () => {
  using world = openWorld();
  const { db, data, project } = world;
  const normal = await world.add();
  // The server was killed after the record was changed, before the rows and the file were gone.
  const interrupted = await world.add();
  db.sqlite.prepare('UPDATE builds SET artifacts = 0 WHERE id = ?').run(interrupted);
  const { builds } = addBuilds(db, project, [world.suite.id]);
  const [running] = builds as [bigint];
  moveBuild(db, running, 'start', { nonce: 'n' });
  await addArtifacts(db, data, running, files);
  db.sqlite.prepare('UPDATE builds SET artifacts = 0 WHERE id = ?').run(running);
  writeFileSync(buildFilesPath(data, 12_345n), 'x');
  writeFileSync(`${buildFilesDirectory(data)}/notes.txt`, 'not ours');
  await sweepArtifactFiles(db, data);
  const rows = (id: bigint) =>
    Number(db.sqlite.prepare('SELECT count(*) FROM build_artifacts WHERE build_id = ?').pluck().get(id));
  assert.deepEqual([world.has(normal), rows(normal)], [all, 2]);
  assert.deepEqual([world.has(interrupted), rows(interrupted)], [none, 0]);
  assert.equal(existsSync(buildFilesPath(data, 12_345n)), false);
  assert.deepEqual([world.has(running).file, rows(running)], [true, 2], 'it may be about to be counted');
  assert.ok(existsSync(`${buildFilesDirectory(data)}/notes.txt`));

  deleteProject(db, project.id);
  while (purgeSomeRows(db));
  await sweepArtifactFiles(db, data);
  for (const id of [normal, running]) assert.equal(existsSync(buildFilesPath(data, id)), false);
});
