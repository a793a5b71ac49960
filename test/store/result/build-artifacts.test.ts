// The index of a build's artifacts, which a server may have to insert again after a crash.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Build, findBuild } from '../../../src/store/builds.ts';
import { deleteProject, purgeSomeRows } from '../../../src/store/cleanup/purge.ts';
import { sumArtifacts } from '../../../src/store/counts.ts';
import { deleteArtifacts } from '../../../src/store/result/artifact-retention.ts';
import {
  deleteBuildArtifacts,
  type NewBuildArtifact,
  replaceBuildArtifacts,
} from '../../../src/store/result/build-artifacts.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { addBuilds, addProject, openFixture } from '../fixture.ts';

const artifact = (path: string): NewBuildArtifact => ({
  path,
  sizeBytes: 10,
  storedBytes: 10,
  offset: 0,
  method: 0,
  crc32: 0,
  sha256: '',
  report: false,
});
const artifacts = (count: number) => Array.from({ length: count }, (_, at) => artifact(`file-${at}`));

test('the index of a build replaces what an interrupted server had inserted', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [build, other] = addBuilds(db, project, [1n, 2n]).builds as [bigint, bigint];
  const pathsOf = (id: bigint) =>
    db.sqlite.prepare('SELECT path FROM build_artifacts WHERE build_id = ? ORDER BY id').pluck().all(id);
  await replaceBuildArtifacts(db, other, artifacts(3));
  await replaceBuildArtifacts(db, build, artifacts(450));
  await replaceBuildArtifacts(db, build, [...artifacts(201), artifact('more')]);
  assert.deepEqual(
    pathsOf(build),
    [...artifacts(201), artifact('more')].map(({ path }) => path),
  );
  await deleteBuildArtifacts(db, build);
  assert.deepEqual(pathsOf(build), []);
  assert.equal(pathsOf(other).length, 3);
});

test('the index of a build that was deleted meanwhile is not inserted', async () => {
  using fixture = openFixture();
  await replaceBuildArtifacts(fixture.db, 1n, artifacts(3));
  assert.equal(fixture.db.sqlite.prepare('SELECT count(*) FROM build_artifacts').pluck().get(), 0n);
});

test('the artifacts of a deleted project are purged in batches, and never together with their builds', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suites = Array.from({ length: 150 }, (_, at) => BigInt(at + 1));
  const { builds } = addBuilds(db, project, suites);
  for (const build of builds) await replaceBuildArtifacts(db, build, artifacts(3));
  const count = (table: string) => Number(db.sqlite.prepare(`SELECT count(*) FROM ${table}`).pluck().get());
  deleteProject(db, project.id);
  for (let before = count('build_artifacts'); purgeSomeRows(db, 0); ) {
    const left = count('build_artifacts');
    assert.ok(before - left <= 100, `${before - left} at once`);
    before = left;
  }
  assert.deepEqual([count('build_artifacts'), count('builds'), count('projects')], [0, 0, 0]);
});

test('the sum of all artifacts follows verdicts, deletes and purged projects', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const [build, other, without] = addBuilds(db, project, [1n, 2n, 3n]).builds as [bigint, bigint, bigint];
  assert.deepEqual(sumArtifacts(db), { builds: 0, sizeBytes: 0 });
  const counted = { artifacts: 2, artifactsBytes: 30, artifactsTruncated: false };
  for (const id of [build, other, without]) moveBuild(db, id, 'start');
  moveBuild(db, build, 'pass', counted);
  moveBuild(db, other, 'fail', counted);
  moveBuild(db, without, 'pass');
  assert.deepEqual(sumArtifacts(db), { builds: 2, sizeBytes: 60 });
  await deleteArtifacts(db, '/nonexistent', findBuild(db, project.id, build) as Build);
  assert.deepEqual(sumArtifacts(db), { builds: 1, sizeBytes: 30 });
  deleteProject(db, project.id);
  while (purgeSomeRows(db));
  assert.deepEqual(sumArtifacts(db), { builds: 0, sizeBytes: 0 });
});
