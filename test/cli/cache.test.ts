// `assay cache …` with a real Docker Engine: listing and emptying caches, and errors.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { findCache, openCache, recordCacheSize } from '../../src/store/caches.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { instanceOf } from '../../src/store/database/stored-values.ts';
import { addProject, addSuite } from '../store/fixture.ts';
import { docker } from '../support/appliance.ts';
import { runAssay, temporaryDirectory } from './program.ts';

const MIB = 1024 * 1024;

test('caches are listed largest first, emptied one by one or all at once, and their volumes are removed', async t => {
  using place = temporaryDirectory();
  const data = join(place.path, 'data');
  createDataDirectory(data);
  const db = openData(data, {});
  const project = addProject(db);
  const suites = [3, 9, 6].map(size => {
    const suite = addSuite(db, project.id);
    recordCacheSize(db, openCache(db, suite.id), { sizeBytes: size * MIB, measuredAt: db.now() });
    return suite;
  });
  const [small, large, middle] = suites as [(typeof suites)[0], (typeof suites)[0], (typeof suites)[0]];
  const volume = ({ id }: { id: bigint }) => `assay-${instanceOf(db)}-cache-${id}`;
  for (const suite of suites) await docker('volume', 'create', volume(suite));
  t.after(async () => {
    await docker('volume', 'rm', '-f', ...suites.map(volume));
    db.close();
  });
  const volumes = async () => {
    const names = await docker('volume', 'ls', '-q', '--filter', `name=assay-${instanceOf(db)}-cache`);
    return names.split('\n').filter(Boolean).toSorted();
  };

  const listed = await runAssay(['cache', 'list', '--data', data]);
  assert.equal(listed.status, 0, listed.stderr);
  assert.deepEqual(
    listed.stdout
      .trim()
      .split('\n')
      .map(line => line.split(/\s+/).slice(0, 3).join(' ')),
    [`${large.id} 9.0 MiB`, `${middle.id} 6.0 MiB`, `${small.id} 3.0 MiB`],
  );
  assert.match(listed.stdout, new RegExp(`${project.name}: ${large.name}$`, 'm'));

  const emptied = await runAssay(['cache', 'empty', String(large.id), '--data', data]);
  assert.equal(emptied.status, 0, emptied.stderr);
  assert.equal(emptied.stdout, 'the cache is emptied\n');
  assert.deepEqual(await volumes(), [volume(small), volume(middle)].toSorted());
  assert.equal(findCache(db, large.id)?.sizeBytes, 0);
  assert.equal(findCache(db, small.id)?.sizeBytes, 3 * MIB);

  // Docker is unreachable: the server removes the volume later.
  const away = await runAssay(['cache', 'empty', String(small.id), '--data', data], {
    DOCKER_HOST: 'unix:///nonexistent/docker.sock',
  });
  assert.equal(away.status, 0, away.stderr);
  assert.match(away.stdout, /the server frees the space/);

  const all = await runAssay(['cache', 'empty', 'all', '--data', data]);
  assert.match(all.stdout, /^3 caches are emptied/);
  assert.deepEqual(await volumes(), [volume(small)]);
  const records = JSON.parse((await runAssay(['cache', 'list', '--json', '--data', data])).stdout);
  assert.deepEqual(
    records.map((one: { size_bytes: number; suite: string }) => one.size_bytes),
    [0, 0, 0],
  );
});

test('a suite without a cache is refused with a reason, and nothing is emptied', async () => {
  using place = temporaryDirectory();
  const data = ['--data', join(place.path, 'data')];
  for (const bad of ['17', 'x', '0']) {
    const refused = await runAssay(['cache', 'empty', bad, ...data]);
    assert.equal(refused.status, 2);
    assert.match(refused.stderr, /no suite ".*" has a cache; "assay cache list" shows/);
  }
});
