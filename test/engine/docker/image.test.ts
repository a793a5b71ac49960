// Images that are imported from files, and prepared for the user of suites.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { cp, mkdir, realpath, rm, truncate, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ImageMissing, type PreparedImage } from '../../../src/engine/engine.ts';
import { busyboxRoot } from '../../support/busybox.ts';
import { type Fixture, openFixture, textOf } from './fixture.ts';

const run = promisify(execFile);
const TOOLS = ['sh', 'cat', 'env', 'date', 'timeout', 'setsid', 'id', 'ls', 'sleep', 'grep'];

/** A root file system with a dozen programs of this machine and their libraries. */
async function smallRoot(directory: string): Promise<void> {
  await mkdir(join(directory, 'bin'), { recursive: true });
  await mkdir(join(directory, 'etc'));
  await writeFile(join(directory, 'etc/passwd'), 'root:x:0:0::/root:/bin/sh');
  const libraries = new Set<string>();
  for (const tool of TOOLS) {
    const path = await realpath(`/usr/bin/${tool}`);
    await cp(path, join(directory, 'bin', tool));
    const { stdout } = await run('ldd', [path]);
    for (const [found] of stdout.matchAll(/\/\S+/g)) libraries.add(found);
  }
  for (const library of libraries) {
    await mkdir(join(directory, dirname(library)), { recursive: true });
    await cp(await realpath(library), join(directory, library));
  }
}

describe('an image from a file', () => {
  let fixture: Fixture;
  let name: string;
  const made = new Set<string>();
  before(async () => {
    fixture = await openFixture();
    name = `assay-test/${fixture.instance}`;
  });
  after(async () => {
    await fixture.close();
    for (const image of made) await fixture.docker.getImage(image).remove({ force: true });
  });

  async function importTar(make: (directory: string) => Promise<void>, tag: string, ...packing: string[]) {
    const root = join(fixture.directory, `root-${tag}`);
    await make(root);
    await run('tar', ['-C', root, ...packing, '-cf', `${root}.tar`, '.']);
    await fixture.engine.importImage(`${root}.tar`, `${name}:${tag}`);
    made.add(`${name}:${tag}`);
    const image = await fixture.engine.prepareImage(`${name}:${tag}`);
    made.add(image.reference);
    return image;
  }

  async function holds(image: PreparedImage) {
    const { text, exit } = await fixture.run(
      'id -un; ls -ld /srv/project /srv/cache /tmp "$HOME" | while read -r mode _ user _; do echo "$mode $user"; done; cat /etc/passwd | grep -c root; exit 6',
      { image },
    );
    assert.equal(exit?.status, 6, text);
    assert.match(text, /^assay\n(drwxr-xr-x assay\n){3}drwxrwxrwt (root|0)\n/);
    return text;
  }

  it('can be a root file system, gets the user and the workspace, and is prepared once', async () => {
    const image = await importTar(smallRoot, 'root');
    assert.match(await holds(image), /\n1\n$/);
    assert.equal(image.hasGit, false);
    assert.equal(image.imageId, (await fixture.docker.getImage(`${name}:root`).inspect()).Id);
    const again = await fixture.engine.prepareImage(`${name}:root`);
    assert.deepEqual(again, image);
    const ids = (await fixture.engine.listImages()).filter(({ names }) => names.includes(image.reference));
    assert.equal(ids.length, 1);
    const left = await fixture.engine.listContainers();
    assert.deepEqual(
      left.filter(({ owner }) => owner.kind === 'image'),
      [],
    );
  });

  it('can be an archive of docker save, plain or compressed', async () => {
    const file = join(fixture.directory, 'saved.tar');
    const saved = await fixture.docker.getImage(`${name}:root`).get();
    await pipeline(saved, createWriteStream(file));
    await run('gzip', ['-k', file]);
    for (const source of [file, `${file}.gz`]) {
      const tag = source.endsWith('gz') ? 'packed' : 'plain';
      await fixture.engine.importImage(source, `${name}:${tag}`);
      made.add(`${name}:${tag}`);
      await holds(await fixture.engine.prepareImage(`${name}:${tag}`));
    }
  });

  it('can be compressed in a way that only Docker reads', async () => {
    const image = await importTar(smallRoot, 'xz', '--xz');
    await holds(image);
  });

  it('can contain only busybox, and entry, launch steps and verdict work there too', async () => {
    const image = await importTar(busyboxRoot, 'busybox');
    await holds(image);
    const { text, exit } = await fixture.run('echo x >/dev/stderr; echo "$PATH" | cut -d: -f1; kill -9 $$', {
      image,
      used: [{ prefix: '/opt/a' }],
      steps: [
        {
          name: 'launch-1',
          script: 'mkdir /srv/run/x && echo up; sleep 1000 &',
          limitSeconds: 60,
          environment: 'suite',
        },
      ],
    });
    assert.equal(text, 'up\nx\n/opt/a/bin\n');
    assert.equal(exit?.status, 137);
    const slow = await fixture.run('true', {
      image,
      steps: [{ name: 'launch-1', script: 'sleep 1000', limitSeconds: 1, environment: 'suite' }],
    });
    assert.deepEqual([slow.exit?.name, slow.exit?.overran], ['launch-1', true]);
    const own = await fixture.run('true', {
      image,
      steps: [{ name: 'own', script: 'env', environment: 'service' }],
    });
    assert.match(own.text, /HOME=\/tmp/);
  });

  it('that replaces one of the same name frees its space, unless a build still uses it', async () => {
    const { docker } = fixture;
    const idOf = async (image: string) => (await docker.getImage(image).inspect()).Id;
    const write = (text: string) => async (directory: string) => {
      await rm(directory, { recursive: true, force: true });
      await busyboxRoot(directory);
      await writeFile(join(directory, 'version'), text);
    };
    const first = await importTar(write('one'), 'again');
    const firstId = await idOf(`${name}:again`);
    const second = await importTar(write('two'), 'again');
    const secondId = await idOf(`${name}:again`);
    const stored = async () => (await docker.listImages({ all: true })).map(({ Id }) => Id);
    assert.ok(!(await stored()).includes(firstId), 'the former one is gone');
    await assert.rejects(docker.getImage(first.reference).inspect(), /no such image/i);
    made.delete(first.reference);
    const running = await fixture.begin('cat /version; sleep 1000', { image: second });
    const containerId = await fixture.engine.startContainer(running.plan);
    await importTar(write('three'), 'again');
    assert.ok((await stored()).includes(secondId), 'the one in use is still there');
    assert.match(textOf((await fixture.run('cat /version', { image: second })).records), /^two/);
    await fixture.engine.removeContainer(containerId);
  });

  it('is looked up by name, and never pulled automatically', async () => {
    await assert.rejects(fixture.engine.prepareImage('assay-test/not-there'), ImageMissing);
    await assert.rejects(fixture.engine.pullImage('127.0.0.1:1/not-there'), /refused/);
  });

  it('from a file that is no archive is refused', async () => {
    const file = join(fixture.directory, 'no.tar');
    await writeFile(file, 'this is no archive, '.repeat(100));
    await assert.rejects(fixture.engine.importImage(file, `${name}:no`));
  });

  it('that is truncated is refused with a reason, and affects nothing else', async () => {
    const whole = join(fixture.directory, 'whole');
    await mkdir(whole);
    await writeFile(join(whole, 'file'), 'x'.repeat(100_000));
    await run('tar', ['-C', whole, '-cf', `${whole}.tar`, '.']);
    await truncate(`${whole}.tar`, 50_000);
    await assert.rejects(fixture.engine.importImage(`${whole}.tar`, `${name}:cut`), /not a complete archive/);
  });
});
