// `assay image …` with a real Docker Engine: importing and choosing an image, and errors.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { openDocker } from '../../src/engine/docker/client.ts';
import { runAssay, temporaryDirectory } from './program.ts';

const dockerHost = process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock';
const name = `assay-test-${randomBytes(4).toString('hex')}`;

after(async () => {
  const { call } = openDocker({ dockerHost });
  await call('remove an image', docker => docker.getImage(`${name}:latest`).remove({ force: true })).catch(
    () => {},
  );
});

test('a root file system is imported under the name of its file, and can be made the default', async () => {
  using place = temporaryDirectory();
  const data = ['--data', join(place.path, 'data')];
  const root = join(place.path, 'root');
  mkdirSync(join(root, 'etc'), { recursive: true });
  writeFileSync(join(root, 'etc/hostname'), 'tiny\n');
  const tar = join(place.path, `${name.toUpperCase()}.tar.gz`);
  execFileSync('tar', ['-czf', tar, '-C', root, '.']);

  const before = JSON.parse((await runAssay(['image', 'list', '--json', ...data])).stdout);
  assert.deepEqual(
    before.map((one: { name: string; default: boolean }) => [one.name, one.default]),
    [['host', true]],
  );
  const imported = await runAssay(['image', 'import', tar, ...data]);
  assert.equal(imported.status, 0, imported.stderr);
  assert.match(imported.stdout, new RegExp(`^${name}: .*assay image use ${name}`));
  assert.equal((await runAssay(['image', 'use', name, ...data])).status, 0);

  const { stdout } = await runAssay(['image', 'list', ...data], { ASSAY_IMAGE: 'host' });
  assert.match(stdout, new RegExp(`^\\* ${name} +\\d`, 'm'));
  assert.match(stdout, /^ {2}host /m);
});

test('an unknown image, an invalid name and an unreachable Docker are refused with a reason', async () => {
  using place = temporaryDirectory();
  const data = ['--data', join(place.path, 'data')];
  const file = join(place.path, 'x.tar');
  writeFileSync(file, 'no tar at all');
  const unknown = await runAssay(['image', 'use', 'no-such-image', ...data]);
  assert.match(unknown.stderr, /Docker has no image no-such-image: import it/);
  assert.equal(unknown.status, 2);
  for (const bad of ['host', 'Upper case'])
    assert.equal((await runAssay(['image', 'import', file, `--name=${bad}`, ...data])).status, 2, bad);
  for (const none of [join(place.path, 'no'), place.path])
    assert.match(
      (await runAssay(['image', 'import', none, '--name', 'x', ...data])).stderr,
      /^assay: there is no file/,
    );
  const away = await runAssay(['image', 'list', ...data], { DOCKER_HOST: `unix://${place.path}/no.sock` });
  assert.equal(away.status, 1);
  assert.match(away.stderr, /^assay: Docker at .* cannot be reached/);
  const junk = await runAssay(['image', 'import', file, '--name', `${name}-junk`, ...data]);
  assert.equal(junk.status, 2);
  assert.match(junk.stderr, /^assay: .* is not a tar/);
});
