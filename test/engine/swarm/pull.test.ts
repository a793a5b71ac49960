// Nodes of a real swarm pull composed images from Assay over TLS: what their containers see, how often layers are sent, and
// what happens without Assay, with wrong credentials and when a layer is cut off.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { type Server, startServer } from '../../../src/api/http/server.ts';
import { mountImages, type PulledImages } from '../../../src/api/images.ts';
import { createMetrics } from '../../../src/api/metrics.ts';
import { createRouter, serve } from '../../../src/api/router.ts';
import { registryOf } from '../../../src/domain/swarm.ts';
import { ensureCertificate } from '../../../src/engine/certificate.ts';
import { readProgress } from '../../../src/engine/docker/client.ts';
import { createImages, exportImage, findImageId } from '../../../src/engine/docker/image.ts';
import { createImageStore, type ImageStore } from '../../../src/engine/swarm/image-store.ts';
import { rejectionOf } from '../../../src/engine/swarm/tasks.ts';
import { createLog } from '../../../src/log.ts';
import { registryAuthOf } from '../../../src/store/node-credentials.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { openFixture } from '../../store/fixture.ts';
import { tarOf } from '../../support/saved-image.ts';
import { SWARM_SKIP, startSwarm, type Task, type TestSwarm } from '../../support/swarm.ts';
import { createStoreFixture, manifestOf, type StoreFixture } from './fixture.ts';

const LARGE_BYTES = 100 << 20;
const ROOT = { path: '', type: 'directory', mode: 0o755 } as const;
const OWNER = { uid: 1000, gid: 1000 };

describe('nodes that pull from Assay', { skip: SWARM_SKIP, timeout: 300_000 }, () => {
  let swarm: TestSwarm;
  let store: ImageStore;
  let artifacts: StoreFixture;
  let server: Server;
  let registry: string;
  const logged: string[] = [];
  /** Digests of the layers that were sent, with the first byte of each. */
  const sent: { digest: string; start: number }[] = [];
  /** Layers that break off after some bytes, once. */
  const cutOff = new Set<string>();
  const database = openFixture();

  const watched: PulledImages = {
    findManifest: digest => store.findManifest(digest),
    async findBlob(digest) {
      const found = await store.findBlob(digest);
      return (
        found && {
          ...found,
          open(range) {
            sent.push({ digest, start: range?.start ?? 0 });
            const content = found.open(range);
            return cutOff.delete(digest) ? breakingOff(content) : content;
          },
        }
      );
    },
  };
  const listen = async (port: number) => {
    const log = createLog(line => logged.push(line), {});
    const router = createRouter({ log } as never, []);
    mountImages(router, { db: database.db, log, trustedProxies: [] }, watched);
    server = await startServer({
      host: swarm.hostAddress,
      port,
      certificate: await ensureCertificate({
        directory: join(swarm.directory, 'tls'),
        hosts: [swarm.hostAddress],
      }),
      fetch: serve(router, { metrics: createMetrics() }),
      log,
      clientKeyOf: () => undefined,
    });
  };

  before(async () => {
    swarm = await startSwarm();
    artifacts = createStoreFixture();
    await listen(0);
    registry = registryOf(`https://${swarm.hostAddress}:${server.port}`);
    for (const machine of swarm.machines)
      await machine.trust({ host: registry, caFile: join(swarm.directory, 'tls', 'ca.pem') });
    store = createImageStore({
      directory: join(swarm.directory, 'images'),
      registry,
      identify: reference => findImageId(swarm.context, reference),
      exportImage: reference => exportImage(swarm.context, reference),
    });
  });
  after(async () => {
    await server?.close();
    await swarm?.close();
    artifacts?.close();
    database[Symbol.dispose]();
  });

  const auth = () => registryAuthOf(database.db, registry);
  const compose = (...layers: Parameters<ImageStore['compose']>[1]) =>
    store.compose(swarm.image.reference, layers);
  const lastLayer = async (image: string) => (await manifestOf(store, image)).layers.at(-1)?.digest as string;
  const timesSent = (digest: string) => sent.filter(one => one.digest === digest).length;
  const artifactOf = (prefix: string, path: string, content: string | Buffer) =>
    artifacts.artifact(prefix, [ROOT, { path, content }]);

  let largeImage: string;

  test('a layer of 100 MB is sent once to each node, and later containers do not need Assay', async () => {
    const large = await artifactOf(
      '/opt/large',
      'file',
      Buffer.alloc(LARGE_BYTES).fill(randomBytes(4 << 20)),
    );
    largeImage = await compose(large);
    const digest = await lastLayer(largeImage);
    const script = 'stat -c "%s %u %a" /opt/large/file';
    const runAll = (image: string) =>
      Promise.all(swarm.machines.map(machine => swarm.run(script, { image, machine, auth: auth() })));
    for (const output of await runAll(largeImage)) assert.equal(output.trim(), `${LARGE_BYTES} 0 644`);
    assert.equal(timesSent(digest), 3);
    // Another image with the same layer: nodes have it.
    const other = await compose(await artifactOf('/opt/small', 'file', 'small'), large);
    await runAll(other);
    assert.equal(timesSent(digest), 3);
    const before = sent.length;
    const { port } = server;
    await server.close();
    try {
      for (const output of await runAll(largeImage)) assert.equal(output.trim(), `${LARGE_BYTES} 0 644`);
    } finally {
      await listen(port);
    }
    assert.equal(sent.length, before);
  });

  test('a container sees the union of its dependencies, which it cannot change', async () => {
    const first = await artifacts.artifact('/opt/both', [
      { ...ROOT, mode: 0o700 },
      { path: 'same', content: 'first' },
      { path: 'place', content: 'a file' },
      { path: 'program', content: '#!/bin/sh\necho runs', mode: 0o4700 },
      { path: 'hard', type: 'link', linkname: 'same' },
      { path: 'soft', type: 'symlink', linkname: 'same' },
      { path: `${'long-'.repeat(40)}name`, content: 'long' },
    ]);
    const second = await artifacts.artifact('/opt/both', [
      ROOT,
      { path: 'place', type: 'directory' },
      { path: 'place/inside', content: 'hidden' },
      { path: 'same', content: 'second' },
      { path: 'only', content: 'second' },
    ]);
    const output = await swarm.run(
      `cd /opt/both; cat same only place hard soft long-*; ./program; stat -c %a program
       ls place/inside; echo x >new; echo x >same; rm same; mv same other; chmod 777 . ; cat same; id -u`,
      { image: await compose(first, second), auth: auth() },
    );
    assert.match(output, /^firstseconda filefirstfirstlongruns\n755\n/);
    assert.equal(output.match(/Permission denied|not permitted|Read-only/g)?.length, 5, output);
    assert.match(output, /first1000\n$/);
  });

  test('a compile installs into a prefix that it shares, and what the image has there is hidden', async () => {
    const related = await artifacts.artifact('/srv/shared', [
      { ...ROOT, mode: 0o555 },
      { path: 'lib', type: 'directory', mode: 0o555 },
      { path: 'lib/related', content: 'related' },
    ]);
    // It is in the image.
    const occupied = await artifactOf('/srv/run', 'file', 'own');
    const output = await swarm.run(
      `cd /srv/shared && echo new >lib/new && mkdir lib/pkg && echo other >lib/replaced && mv lib/replaced lib/related
       cat lib/related lib/new; stat -c "%u %a" . lib lib/pkg; ls -A /srv/run; touch /srv/run/x /srv/x`,
      {
        image: await compose(related, occupied, { kind: 'writable', prefix: '/srv/shared', owner: OWNER }),
        auth: auth(),
      },
    );
    assert.match(output, /^other\nnew\n1000 755\n1000 755\n1000 755\nfile\n/);
    assert.equal(output.match(/Permission denied/g)?.length, 2, output);
  });

  test('an image of several layers keeps its links, and directories above a prefix their mode', async () => {
    const { call } = swarm.context;
    const directories = ['dev', 'etc', 'proc', 'sbin', 'sys', 'srv', 'usr', 'var'];
    const root = await tarOf([
      ...directories.map(name => ({ name, type: 'directory' as const, mode: 0o755 })),
      ...['bin', 'lib', 'lib64'].map(name => ({ name, type: 'symlink' as const, linkname: `usr/${name}` })),
      { name: 'opt', type: 'symlink', linkname: 'var/opt' },
      { name: 'var/opt', type: 'directory', mode: 0o711, uid: 7 },
      { name: 'var/opt/x', type: 'directory', mode: 0o755 },
      { name: 'var/opt/x/old', content: 'of the image' },
      { name: 'var/opt/kept', content: 'kept' },
    ]);
    await call('import an image', async docker =>
      readProgress(await docker.importImage(root as never, { repo: 'layered', tag: '1' })),
    );
    const prepared = await createImages(swarm.context, { runAs: OWNER }).prepareImage('layered:1');
    const image = await store.compose(prepared.reference, [await artifactOf('/opt/x', 'file', 'own')]);
    assert.equal((await manifestOf(store, image)).layers.length, 4);
    const output = await swarm.run(
      'readlink /opt; ls -A /opt/x; cat /opt/x/file /var/opt/kept; stat -c " %u %a" /var/opt; stat -c "%u %a" /opt/x',
      { image, auth: auth() },
    );
    assert.equal(output, 'var/opt\nfile\nownkept 7 711\n0 755\n');
  });

  test('a layer that is cut off is requested again from where it ended', async () => {
    const image = await compose(await artifactOf('/opt/cut', 'file', randomBytes(20 << 20)));
    const digest = await lastLayer(image);
    cutOff.add(digest);
    const output = await swarm.run('stat -c %s /opt/cut/file', { image, auth: auth() });
    assert.equal(output.trim(), String(20 << 20));
    const starts = sent.filter(one => one.digest === digest).map(({ start }) => start);
    assert.equal(starts[0], 0);
    assert.equal(starts.length, 2);
    assert.ok((starts[1] as number) > 0, String(starts));
    assert.ok(logged.some(line => line.includes('a layer could not be sent') && line.includes(digest)));
  });

  test('with wrong credentials the task is rejected with a reason, and Assay logs it', async () => {
    const image = await compose(await artifactOf('/opt/refused', 'file', 'x'));
    const wrong = { ...auth(), password: 'wrong' };
    const service = await swarm.begin('true', { image, auth: wrong });
    const isRejected = (tasks: Task[]) => tasks.some(({ Status }) => Status.State === 'rejected');
    const [task] = await pollUntil(30_000, () => swarm.tasksOf(service.name), isRejected, 50);
    assert.match(
      rejectionOf(task as Task),
      /^The node could not pull the image from this server: check .* \(No such image: .*assay\/image@sha256:\w+\)\.$/,
    );
    await service.remove();
    assert.ok(logged.some(line => line.includes('wrong credentials')));
    assert.ok(logged.every(line => !line.includes(auth().password)));
  });

  test('an image that was swept or never composed is rejected with a reason', async () => {
    const image = `${registry}/assay/image@sha256:${'0'.repeat(64)}`;
    await assert.rejects(swarm.run('true', { image, auth: auth() }), /rejected .*No such image/);
  });
});

function breakingOff(content: Readable): Readable {
  return Readable.from(
    (async function* () {
      let bytes = 0;
      for await (const chunk of content as AsyncIterable<Buffer>) {
        yield chunk;
        bytes += chunk.length;
        if (bytes > 5 << 20) throw new Error('cut off by the test');
      }
    })(),
    { objectMode: false },
  );
}
