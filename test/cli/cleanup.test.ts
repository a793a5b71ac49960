// `assay cleanup`: removes everything of an instance from Docker and the firewall, and nothing of others.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createPrivateEngine, type PrivateEngine } from '../drill/support/engine.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';
import { runAssay, temporaryDirectory } from './program.ts';

const skip = process.getuid?.() !== 0 && 'a private engine needs root';

describe('assay cleanup', { skip }, () => {
  let engine: PrivateEngine;
  let assay: Appliance;
  before(async () => {
    // A private engine, because images are removed too and other tests need theirs.
    engine = await createPrivateEngine({ bytes: 300 * 1024 ** 2, ownNetwork: true });
    assay = await startAppliance({
      dockerHost: engine.dockerHost,
      network: 'bridge',
      minFreeDiskBytes: 0,
    });
    await (await assay.project()).runOne({ command: 'echo kept >/srv/cache/file' });
    await engine.docker('volume', 'create', '--label', 'assay.instance=another', 'theirs');
  });
  after(async () => {
    assay.client.close();
    await assay.sshd.close();
    await engine.close();
    rmSync(assay.data, { recursive: true, force: true });
  });

  const cleanUp = (...args: string[]) => runAssay(['cleanup', ...args], { DOCKER_HOST: engine.dockerHost });
  const label = () => `label=assay.instance=${assay.instance}`;
  const cache = () => engine.docker('volume', 'ls', '--filter', label(), '--format', '{{.Name}}');
  const rules = () => {
    const [program = '', ...args] = engine.inNetwork('iptables', '-S');
    return execFileSync(program, args, { encoding: 'utf8' })
      .split('\n')
      .filter(rule => rule.includes('--comment assay-'));
  };

  test('is refused while the server runs, with its data directory and with its instance', async () => {
    const byData = await cleanUp('--yes', '--data', assay.data);
    assert.equal(byData.status, 1);
    assert.match(byData.stderr, /^assay: another assay serve is using [^\n]+\n$/);
    const byInstance = await cleanUp('--yes', '--instance', assay.instance);
    assert.equal(byInstance.status, 1);
    assert.match(byInstance.stderr, /^assay: a server is using the instance [^\n]+\n$/);
    assert.notEqual(await cache(), '');
  });

  test('lists what it would remove, and asks first', async () => {
    await assay.app.close();
    const unconfirmed = await cleanUp('--data', assay.data);
    assert.equal(unconfirmed.status, 2);
    assert.match(unconfirmed.stderr, /--yes/);
    assert.ok(unconfirmed.stdout.includes(`  volume ${await cache()}\n`), unconfirmed.stdout);
  });

  test('removes containers, volumes, the network, firewall rules and images, and names them', async () => {
    const volume = await cache();
    const network = await engine.docker('network', 'ls', '--filter', label(), '--format', '{{.Name}}');
    assert.equal(rules().length, 4);
    const image = await engine.docker('images', '--format', '{{.Repository}}:{{.Tag}}');
    assert.match(image, /^assay\/host:\w+$/);
    await engine.docker(
      ...['create', '--name', 'left', '--label', `assay.instance=${assay.instance}`, image, '/bin/true'],
    );
    const done = await cleanUp('--yes', '--data', assay.data);
    assert.equal(done.status, 0, done.stderr);
    for (const what of ['container left', `volume ${volume}`, `network ${network}`, `image ${image}`])
      assert.ok(done.stdout.includes(`removed ${what}\n`), done.stdout);
    // Five with the rule of ip6tables, where that works.
    assert.match(done.stdout, /removed [45] firewall rules\n/);
    assert.equal(await engine.docker('ps', '-aq'), '');
    assert.equal(await engine.docker('volume', 'ls', '-q'), 'theirs');
    assert.equal(await engine.docker('network', 'ls', '-q', '--filter', label()), '');
    assert.equal(await engine.docker('images', '-q'), '');
    assert.deepEqual(rules(), []);
    assert.ok(existsSync(join(assay.data, 'assay.db')), 'the data directory stays');
  });

  test('a second run finds nothing, and --instance works without the data directory', async () => {
    const again = await cleanUp('--yes', '--data', assay.data);
    assert.equal(again.status, 0, again.stderr);
    assert.match(again.stdout, /^Docker has nothing of this instance\n/);
    using directory = temporaryDirectory();
    const absent = await cleanUp('--yes', '--data', join(directory.path, 'none'));
    assert.equal(absent.status, 1);
    assert.match(absent.stderr, /^assay: [^\n]*--instance[^\n]*\n$/);
    assert.ok(!existsSync(join(directory.path, 'none')));
    const theirs = await cleanUp('--yes', '--instance', 'another');
    assert.equal(theirs.status, 0, theirs.stderr);
    assert.match(theirs.stdout, /removed volume theirs\n/);
  });

  test('reports in one line that Docker cannot be reached', async () => {
    const { status, stderr } = await runAssay(['cleanup', '--yes', '--data', assay.data], {
      DOCKER_HOST: 'unix:///nonexistent/docker.sock',
    });
    assert.equal(status, 1);
    assert.match(stderr, /^assay: Docker at [^\n]*cannot be reached[^\n]*\n$/);
  });
});
