// What the sweep removes, and what it keeps.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { createLog } from '../../src/log.ts';
import { createArtifact } from '../../src/store/artifacts.ts';
import { findBuild } from '../../src/store/builds.ts';
import {
  artifactIndexPath,
  artifactPath,
  buildLogPath,
  compiledLogPath,
  dependencyLogPath,
  mirrorPath,
  submoduleMirrors,
} from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { instanceOf } from '../../src/store/database/stored-values.ts';
import {
  type Dependency,
  deleteDependency,
  findDependency,
  setShared,
} from '../../src/store/dependencies.ts';
import { attachDependency, detachDependency } from '../../src/store/suites.ts';
import { moveBuild } from '../../src/store/transition.ts';
import type { ContainerHost } from '../../src/work/container-host.ts';
import { type SweepOptions, startSweep } from '../../src/work/sweep.ts';
import { addAccount, addBuilds, addDependency, addProject, addSuite, openFixture } from '../store/fixture.ts';

const DAY_MS = 24 * 3600_000;

/** A sweep whose Docker has exactly these containers, and records which are removed. */
function sweeperOf(
  { db, path }: { db: Db; path: string },
  overrides: Partial<SweepOptions>,
  containers: unknown[] = [],
) {
  const dataDirectory = dirname(path);
  for (const name of ['jobs', 'mirrors', 'archives', 'artifacts', 'files', 'logs'])
    mkdirSync(join(dataDirectory, name));
  const removed: string[] = [];
  const options: SweepOptions = {
    db,
    log: createLog(() => {}, {}),
    host: {
      unavailable: () => undefined,
      engine: {
        listContainers: async () => containers,
        listVolumes: async () => [],
        removeContainer: async (id: string) => void removed.push(id),
      },
    } as unknown as ContainerHost,
    artifacts: { isHeld: () => false, isVolumeNeeded: () => true },
    caches: { listNeeded: () => new Set<string>(), review: async () => {} },
    filters: { repair: () => {} },
    hashes: { repair: () => {} },
    early: { holds: () => false },
    dataDirectory,
    retentionMs: DAY_MS,
    artifactsMs: DAY_MS,
    ...overrides,
  };
  const begin = () => {
    const { sweep, stop } = startSweep(options);
    return { sweep, [Symbol.dispose]: stop };
  };
  return { dataDirectory, removed, ...begin(), begin };
}

test('logs are removed when they expire; younger ones, those of running jobs, and all records stay', async () => {
  using fixture = openFixture();
  const { db, now } = fixture;
  using sweeper = sweeperOf(fixture, { retentionMs: 2 * DAY_MS });
  const project = addProject(db);
  const suites = Array.from({ length: 3 }, () => addSuite(db, project.id).id);
  const { builds } = addBuilds(db, project, suites);
  const [old, young, running] = builds as [bigint, bigint, bigint];
  for (const id of builds) {
    moveBuild(db, id, 'start', { nonce: 'n' });
    const log = buildLogPath(sweeper.dataDirectory, id);
    for (const file of [log, `${log}.grams`, `${log}.times`]) writeFileSync(file, 'hello\n');
  }
  moveBuild(db, old, 'pass', { exitCode: 0 });
  now.ms += DAY_MS;
  moveBuild(db, young, 'pass', { exitCode: 0 });
  const kept = () => readdirSync(join(sweeper.dataDirectory, 'logs')).sort();
  const filesOf = (...ids: bigint[]) =>
    ids.flatMap(id => ['', '.grams', '.times'].map(end => `build-${id}.log${end}`));
  await sweeper.sweep();
  assert.deepEqual(kept(), filesOf(old, young, running), 'nothing is due yet');
  now.ms += DAY_MS + 1;
  await sweeper.sweep();
  assert.deepEqual(kept(), filesOf(young, running));
  now.ms += 300 * DAY_MS;
  await sweeper.sweep();
  assert.deepEqual(kept(), filesOf(running));
  for (const id of builds) assert.ok(findBuild(db, project.id, id));
});

test('an artifact is removed with its index when no dependency and no kept version uses it', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  using sweeper = sweeperOf(fixture, {});
  const owner = addAccount(db);
  const dependency = addDependency(db, owner.id);
  const compile = (hash: string) => {
    createArtifact(db, { hash, prefix: '/opt/x', sizeBytes: 1, files: 1 });
    for (const pathOf of [artifactPath, artifactIndexPath])
      writeFileSync(pathOf(sweeper.dataDirectory, hash), 'content');
    db.sqlite.prepare('UPDATE dependencies SET artifact_hash = ? WHERE id = ?').run(hash, dependency.id);
  };
  const setSharedTo = (shared: boolean) =>
    setShared(db, findDependency(db, dependency.id) as Dependency, shared);
  const suite = addSuite(db, addProject(db).id);
  compile('a'.repeat(64));
  setSharedTo(true);
  attachDependency(db, suite.id, dependency.id);
  setSharedTo(false);
  compile('b'.repeat(64));
  const left = async () => {
    await sweeper.sweep();
    return readdirSync(join(sweeper.dataDirectory, 'artifacts')).map(name => name[0] + name.slice(64));
  };
  assert.deepEqual((await left()).toSorted(), ['a.index', 'a.tar.zst', 'b.index', 'b.tar.zst']);
  detachDependency(db, suite.id, dependency.id);
  assert.deepEqual((await left()).toSorted(), ['b.index', 'b.tar.zst']);
});

test('the logs of a deleted dependency are removed, with that of the compile of its artifact', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  using sweeper = sweeperOf(fixture, {});
  const owner = addAccount(db).id;
  const [gone, stays] = [addDependency(db, owner), addDependency(db, owner)];
  const logsOf = ({ id }: { id: bigint }) =>
    [dependencyLogPath, compiledLogPath].flatMap(pathOf => {
      const path = pathOf(sweeper.dataDirectory, id);
      return [path, `${path}.times`];
    });
  for (const file of [...logsOf(gone), ...logsOf(stays)]) writeFileSync(file, 'hello\n');
  deleteDependency(db, gone);
  await sweeper.sweep();
  assert.deepEqual(logsOf(gone).filter(existsSync), []);
  assert.deepEqual(logsOf(stays).filter(existsSync), logsOf(stays));
});

test('containers without a running job are removed, and those of running jobs stay', async () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const suites = [addSuite(db, project.id).id, addSuite(db, project.id).id];
  const [running, ended] = addBuilds(db, project, suites).builds as [bigint, bigint];
  for (const id of [running, ended]) moveBuild(db, id, 'start', { nonce: 'n' });
  moveBuild(db, ended, 'pass', { exitCode: 0 });
  const container = (containerId: string, kind: string, id = '') => ({
    containerId,
    name: containerId,
    owner: { instance: instanceOf(db), kind, id },
  });
  using sweeper = sweeperOf(fixture, {}, [
    container('running', 'build', String(running)),
    container('ended', 'build', String(ended)),
    container('left by an engine that was killed', 'volume'),
  ]);
  await sweeper.sweep();
  assert.deepEqual(sweeper.removed, ['ended', 'left by an engine that was killed']);
});

describe('Content of Git LFS and mirrors of submodules', () => {
  /** Three LFS objects and two mirrors of submodules, each last used so many days ago. */
  function addSources(dataDirectory: string, projectId: bigint, nowMs: number) {
    const modules = submoduleMirrors(dataDirectory, projectId);
    const objectOf = (mirror: string, oid: string) =>
      join(mirror, 'lfs/objects', oid.slice(0, 2), oid.slice(2, 4), oid);
    const own = mirrorPath(dataDirectory, projectId);
    const used = {
      oldObject: [objectOf(own, 'aabb01'), 3],
      youngObject: [objectOf(own, 'aabb02'), 1],
      objectOfSubmodule: [objectOf(join(modules, 'young.git'), 'ccdd01'), 3],
      oldSubmodule: [join(modules, 'old.git/HEAD'), 3],
      youngSubmodule: [join(modules, 'young.git/HEAD'), 1],
    } as const;
    for (const [path] of [[join(own, 'HEAD')], ...Object.values(used)]) {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, 'x');
    }
    for (const [path, days] of Object.values(used)) {
      const at = (nowMs - days * DAY_MS) / 1000;
      utimesSync(path.replace(/\/HEAD$/, ''), at, at);
    }
    // What a killed server was removing.
    mkdirSync(join(modules, 'old.git.1.gone/objects'), { recursive: true });
    // A project's own mirror is removed only with its project.
    utimesSync(own, 0, 0);
    return {
      kept: () => Object.entries(used).flatMap(([name, [path]]) => (existsSync(path) ? [name] : [])),
      hasMirror: () => existsSync(join(own, 'HEAD')),
      left: () => readdirSync(modules).sort(),
    };
  }
  const EVERYTHING = ['oldObject', 'youngObject', 'objectOfSubmodule', 'oldSubmodule', 'youngSubmodule'];

  test("are removed when they are unused for the retention time; the project's own mirror stays", async () => {
    using fixture = openFixture({ ms: Date.now() + 1_000 });
    using sweeper = sweeperOf(fixture, { retentionMs: 2 * DAY_MS });
    const project = addProject(fixture.db);
    const sources = addSources(sweeper.dataDirectory, project.id, fixture.now.ms);
    await sweeper.sweep();
    assert.deepEqual(sources.kept(), ['youngObject', 'youngSubmodule']);
    assert.deepEqual(sources.left(), ['young.git'], 'nothing else is left');
    assert.ok(sources.hasMirror());
  });

  for (const [when, startedAt, laterMs] of [
    ['long ago', Date.now() + 1_000, DAY_MS],
    [
      'before this server',
      Math.floor(performance.timeOrigin) - 60_000,
      120_000 + Date.now() - performance.timeOrigin,
    ],
  ] as const)
    test(`stay while a job runs that started ${when}; a younger one has marked its own`, async () => {
      using fixture = openFixture({ ms: startedAt });
      const { db, now } = fixture;
      using sweeper = sweeperOf(fixture, { retentionMs: 2 * DAY_MS });
      const project = addProject(db);
      const suites = [addSuite(db, project.id).id, addSuite(db, project.id).id];
      const [old, young] = addBuilds(db, project, suites).builds as [bigint, bigint];
      moveBuild(db, old, 'start', { nonce: 'n' });
      now.ms += Math.ceil(laterMs);
      moveBuild(db, young, 'start', { nonce: 'n' });
      const sources = addSources(sweeper.dataDirectory, project.id, now.ms);
      await sweeper.sweep();
      assert.deepEqual(sources.kept(), EVERYTHING);

      moveBuild(db, old, 'pass', { exitCode: 0 });
      using next = sweeper.begin();
      await next.sweep();
      assert.deepEqual(sources.kept(), ['youngObject', 'youngSubmodule']);
    });

  test('are checked in batches over several sweeps', async () => {
    using fixture = openFixture({ ms: Date.now() + 1_000 });
    using sweeper = sweeperOf(fixture, { retentionMs: 2 * DAY_MS });
    const project = addProject(fixture.db);
    const objects = join(mirrorPath(sweeper.dataDirectory, project.id), 'lfs/objects');
    for (let n = 0; n < 6_000; n += 1) {
      const directory = join(objects, (n % 100).toString().padStart(2, '0'));
      mkdirSync(directory, { recursive: true });
      writeFileSync(join(directory, `${n}`), '');
      utimesSync(join(directory, `${n}`), 0, 0);
    }
    const count = () =>
      readdirSync(objects, { recursive: true, withFileTypes: true }).filter(one => one.isFile()).length;
    await sweeper.sweep();
    const left = count();
    assert.ok(left > 0 && left < 6_000, `${left} left`);
    await sweeper.sweep();
    assert.equal(count(), 0);
  });
});
