// The size of volumes, measured by a container of the real engine.
import assert from 'node:assert/strict';
import { createServer, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { after, before, test } from 'node:test';
import { DOCKER_HOST, type Fixture, openFixture } from './fixture.ts';

const MIB = 1024 * 1024;
let fixture: Fixture;
before(async () => {
  fixture = await openFixture();
});
after(() => fixture.close());

async function makeVolume(name: string): Promise<string> {
  const owner = { instance: fixture.instance, kind: 'cache', id: name };
  const volume = `assay-${fixture.instance}-${name}`;
  await fixture.engine.createVolume({ name: volume, owner });
  await fixture.engine.claimVolume(volume);
  return volume;
}

test('measures each volume, including directories that their owner has made unreadable', async () => {
  const full = await makeVolume('full');
  const empty = await makeVolume('empty');
  const made = await fixture.run(
    `cd /srv/cache && mkdir closed && head -c 3M /dev/zero >closed/zeros && chmod 0 closed && head -c 2M /dev/zero >"$(printf 'a\\nb')" && truncate -s 1T sparse`,
    { mounts: [{ type: 'volume', source: full, target: '/srv/cache', readOnly: false }] },
  );
  assert.equal(made.exit?.kind === 'exit' && made.exit.status, 0, made.text);
  const sizes = await fixture.engine.measureVolumes([empty, full]);
  const size = sizes.get(full) as number;
  assert.ok(size >= 5 * MIB && size < 6 * MIB, String(size));
  assert.ok((sizes.get(empty) as number) < 64 * 1024, String(sizes.get(empty)));
  const left = await fixture.engine.listContainers();
  assert.deepEqual(
    left.filter(({ owner }) => owner.kind === 'disk-usage'),
    [],
  );
});

test('measures more volumes than one container mounts, each by its name', async () => {
  const names: string[] = [];
  for (let number = 0; number < 70; number++) names.push(await makeVolume(`many-${number}`));
  await fixture.run('head -c 2M /dev/zero >/srv/cache/zeros', {
    mounts: [{ type: 'volume', source: names[68] as string, target: '/srv/cache', readOnly: false }],
  });
  const sizes = await fixture.engine.measureVolumes(names);
  assert.deepEqual(new Set(sizes.keys()), new Set(names));
  assert.deepEqual(
    names.filter(name => (sizes.get(name) as number) > MIB),
    [names[68]],
  );
});

test('a missing volume counts as empty, and the one that Docker creates for it has our label', async () => {
  const gone = `assay-${fixture.instance}-gone`;
  assert.ok(((await fixture.engine.measureVolumes([gone])).get(gone) as number) < 64 * 1024);
  const made = (await fixture.engine.listVolumes()).find(({ name }) => name === gone);
  assert.deepEqual(made?.owner, { instance: fixture.instance, kind: 'cache', id: '' });
});

test('measures although a wait of Docker hangs, and leaves no container behind', async t => {
  const volume = await makeVolume('hanging');
  let waits = 0;
  const proxy = createServer((request, response) => {
    if (request.url?.endsWith('/wait')) {
      waits += 1;
      return;
    }
    const { method, url, headers } = request;
    const forwarded = httpRequest(
      { socketPath: DOCKER_HOST.slice('unix://'.length), method, path: url, headers },
      answer => {
        response.writeHead(answer.statusCode as number, answer.headers);
        pipeline(answer, response).catch(() => {});
      },
    );
    pipeline(request, forwarded).catch(() => {});
  });
  const socket = join(fixture.directory, 'proxy.sock');
  await new Promise<void>(resolve => proxy.listen(socket, resolve));
  const engine = fixture.openEngine({ dockerHost: `unix://${socket}`, watchIntervalMs: 200 });
  t.after(() => {
    engine.close();
    proxy.closeAllConnections();
    proxy.close();
  });
  assert.deepEqual([...(await engine.measureVolumes([volume])).keys()], [volume]);
  assert.ok(waits > 0);
  const left = await fixture.engine.listContainers();
  assert.deepEqual(
    left.filter(({ owner }) => owner.kind === 'disk-usage'),
    [],
  );
});
