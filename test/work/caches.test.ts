// Caches of suites on the real engine: their limits, emptying them, and running builds.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { promisify } from 'node:util';
import { createDockerEngine } from '../../src/engine/docker/docker-engine.ts';
import { createLog } from '../../src/log.ts';
import { findCache } from '../../src/store/caches.ts';
import { recordImage } from '../../src/store/images.ts';
import { createCaches } from '../../src/work/caches.ts';
import { createContainerHost } from '../../src/work/container-host.ts';
import { type Appliance, DOCKER_HOST, docker, startAppliance, volumeGone } from '../support/appliance.ts';
import { busyboxRoot } from '../support/busybox.ts';

const MIB = 1024 * 1024;
const fill = (mebibytes: number) => `head -c ${mebibytes}M /dev/zero >/srv/cache/zeros`;
const GATE = 'while ! test -e /srv/cache/go; do sleep 0.05; done';

suite('caches', { concurrency: 2, timeout: 300_000 }, () => {
  let appliance: Appliance;
  before(async () => {
    appliance = await startAppliance({ cacheLimitBytes: 20 * MIB, concurrency: 3 });
  });
  after(() => appliance.close());

  const cacheOf = (suiteId: string) => findCache(appliance.app.db, BigInt(suiteId));
  const volumesOf = async (suiteId: string) => {
    const names = await docker('volume', 'ls', '-q', '--filter', `name=-cache-${suiteId}`);
    return names.split('\n').filter(Boolean);
  };

  test('a build whose cache grows past the limit is stopped, says so, and the next one begins with an empty cache', async () => {
    const project = await appliance.project();
    const suiteId = await project.suite({
      command: `test -e /srv/cache/zeros && exit 3; ls /srv/cache; test -e stop || { ${fill(40)}; sleep 600; }`,
    });
    const first = (await project.run()).of(suiteId);
    assert.equal(first.build.build_state, 'errored');
    assert.match(
      first.log,
      /cache grew past 20971520 bytes \(CACHE_LIMIT\)\. The next build starts with an empty cache\./,
    );
    assert.match(String(cacheOf(suiteId)?.emptiedBecause), /CACHE_LIMIT/);
    await volumeGone(`-cache-${suiteId}`);
    await project.ask('PUT', `/suites/${suiteId}`, { command: 'test ! -e /srv/cache/zeros && echo empty' });
    const second = (await project.run()).of(suiteId);
    assert.equal(second.build.build_state, 'passed', second.log);
  });

  test('a cache that a short build left too large is found afterwards, and emptied', async () => {
    const project = await appliance.project();
    const { build, suiteId } = await project.runOne({ command: fill(30) });
    assert.equal(build.build_state, 'passed');
    await appliance.committed(async () => (cacheOf(suiteId)?.emptiedAt ? true : undefined));
    assert.match(String(cacheOf(suiteId)?.emptiedBecause), /CACHE_LIMIT/);
    await volumeGone(`-cache-${suiteId}`);
  });

  test('a cache is measured after its build and kept for the next; after emptying, the next one begins empty', async () => {
    const project = await appliance.project();
    const { suiteId } = await project.runOne({
      command: `test -e /srv/cache/zeros && echo kept; ${fill(5)}`,
    });
    const measured = await appliance.committed(async () => {
      const bytes = cacheOf(suiteId)?.sizeBytes;
      return bytes ? bytes : undefined;
    });
    assert.ok(measured >= 5 * MIB && measured < 6 * MIB, String(measured));
    assert.match((await project.run()).of(suiteId).log, /^kept$/m);
    assert.deepEqual(await project.ask('DELETE', `/suites/${suiteId}/cache`), { destroyed: true });
    assert.match(String(cacheOf(suiteId)?.emptiedBecause), /^by owner@example\.org$/);
    assert.doesNotMatch((await project.run()).of(suiteId).log, /^kept$/m);
  });

  test('a running build keeps its files when its cache is emptied, and they are removed after it', async () => {
    const project = await appliance.project();
    const suiteId = await project.suite({
      command: `echo x >/srv/cache/mine; echo ready; ${GATE}; cat /srv/cache/mine`,
    });
    const { id_str: id } = await project.buildOf(await project.request());
    await project.logHas(id as string, 'ready');
    const [old] = await volumesOf(suiteId);
    await project.ask('DELETE', `/suites/${suiteId}/cache`);
    await project.ask('PUT', `/suites/${suiteId}`, { command: 'test ! -e /srv/cache/mine' });
    const next = (await project.run()).of(suiteId);
    assert.equal(next.build.build_state, 'passed', next.log);
    await docker('exec', '--detach', `assay-${appliance.instance}-build-${id}`, 'touch', '/srv/cache/go');
    const ended = await project.finishedBuild(id as string);
    assert.equal(ended.build_state, 'passed');
    assert.match(await project.log(id as string), /^x$/m);
    // The exact name: that of the next generation begins with it.
    await volumeGone(`${old}$`);
    assert.equal((await volumesOf(suiteId)).length, 1);
  });
});

test('the least recently used caches are emptied first: beyond CACHE_TOTAL, and when the disk is full', async t => {
  const appliance = await startAppliance({ cacheTotal: { bytes: 0 } });
  t.after(() => appliance.close());
  const project = await appliance.project();
  const suites: string[] = [];
  for (let number = 0; number < 4; number++) {
    const suiteId = await project.suite({
      command: fill(10),
      rules: [['commit.message', 'contains', `number ${number}`]],
    });
    suites.push(suiteId);
    project.repository.add({ message: `number ${number}\n`, files: { n: String(number) } });
    assert.equal((await project.run()).state, 'passed');
  }
  const { db } = appliance.app;
  const log = createLog(() => {}, {});
  const runAs = { uid: 1000, gid: 1000 };
  const network = 'none';
  const host = createContainerHost({
    engine: createDockerEngine({ dockerHost: DOCKER_HOST, instance: appliance.instance, network, runAs }),
    log,
    onAvailable: () => {},
    isBusy: () => false,
  });
  t.after(() => host.stop());
  await host.whenAvailable(AbortSignal.timeout(30_000));
  const caches = createCaches({
    ...{ db, host, log, limitBytes: 0, total: { share: 0.25 } },
    // A quarter of it has space for three of the four.
    fileSystemBytes: () => 4 * 35 * MIB,
  });
  const held = () => suites.map(id => (findCache(db, BigInt(id))?.sizeBytes ?? 0) > MIB);
  const there = async () => {
    const names = (
      await docker('volume', 'ls', '-q', '--filter', `name=assay-${appliance.instance}-cache`)
    ).split('\n');
    return suites.map(id => names.includes(`assay-${appliance.instance}-cache-${id}`));
  };
  await caches.review(await host.engine.listVolumes());
  assert.deepEqual(held(), [false, true, true, true]);
  assert.deepEqual(await there(), held());
  assert.equal(await caches.emptyLeastRecentlyUsed(), true);
  assert.deepEqual(held(), [false, false, true, true]);
  assert.deepEqual(await there(), held());
  assert.equal(await caches.emptyLeastRecentlyUsed(), true);
  assert.equal(await caches.emptyLeastRecentlyUsed(), true);
  assert.equal(await caches.emptyLeastRecentlyUsed(), false);
  assert.deepEqual(await there(), [false, false, false, false]);
});

test('a cache of an older version, without a row, is found, measured and kept', async t => {
  const appliance = await startAppliance();
  t.after(() => appliance.close());
  const project = await appliance.project();
  const { suiteId } = await project.runOne({ command: `${fill(5)}; echo old >/srv/cache/old` });
  const { db } = appliance.app;
  db.write(() => db.sqlite.prepare('DELETE FROM caches').run());
  // The next sweep comes when another cache is emptied.
  const other = await project.suite({ command: 'true' });
  await project.ask('DELETE', `/suites/${other}/cache`);
  await appliance.committed(async () => {
    const bytes = findCache(db, BigInt(suiteId))?.sizeBytes;
    return bytes && bytes > 5 * MIB ? bytes : undefined;
  });
  await project.ask('PUT', `/suites/${suiteId}`, { command: 'cat /srv/cache/old' });
  assert.match((await project.run()).of(suiteId).log, /^old$/m);
});

test('DISK counts the workspace of a suite whose image has no git', async t => {
  const appliance = await startAppliance({ diskBytes: 20 * MIB });
  const image = `assay-test/busybox-${appliance.instance}`;
  const directory = mkdtempSync(join(tmpdir(), 'assay-busybox-'));
  t.after(async () => {
    await appliance.close();
    await docker('image', 'rm', '-f', image);
    rmSync(directory, { recursive: true });
  });
  const [root, tar] = [join(directory, 'root'), join(directory, 'root.tar')];
  await busyboxRoot(root);
  await promisify(execFile)('tar', ['-C', root, '-cf', tar, '.']);
  await docker('import', tar, image);
  recordImage(appliance.app.db, image, 'imported');
  const project = await appliance.project();
  const ran = await project.runOne({ image, command: 'head -c 50000000 /dev/zero >zeros; sleep 600' });
  assert.equal(ran.build.build_state, 'errored', ran.log);
  assert.match(ran.log, /workspace grew past 20971520 bytes \(DISK\)/);
  // The cache has its own limit.
  const cached = await project.runOne({
    image,
    command: 'head -c 50000000 /dev/zero >/srv/cache/zeros; sleep 12',
  });
  assert.equal(cached.build.build_state, 'passed', cached.log);
});
