// Volumes that are filled and read through containers that never start, and the tars of artifacts.
import assert from 'node:assert/strict';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { Mount } from '../../../src/domain/container/container-plan.ts';
import {
  CaptureStopped,
  captureTar,
  directoriesTar,
  openArtifact,
} from '../../../src/engine/archive/artifact-tar.ts';
import { openDocker } from '../../../src/engine/docker/client.ts';
import { placeholderFor } from '../../../src/engine/docker/create-container.ts';
import { createVolumes } from '../../../src/engine/docker/volume.ts';
import { VolumeLost } from '../../../src/engine/engine.ts';
import { DOCKER_HOST, type Fixture, openFixture, RUN_AS } from './fixture.ts';

let fixture: Fixture;
before(async () => {
  fixture = await openFixture();
});
after(() => fixture.close());

async function makeVolume(id: string): Promise<string> {
  const name = `assay-${fixture.instance}-${id}`;
  await fixture.engine.createVolume({ name, owner: { instance: fixture.instance, kind: 'artifact', id } });
  return name;
}

const mounted = (volume: string, readOnly = false) => ({
  mounts: [
    { type: 'volume' as const, source: volume, target: '/opt/prefix', readOnly, copy: false as const },
  ],
});

test('a captured volume fills another one with the same tree, including links', async () => {
  const source = await makeVolume('source');
  await fixture.engine.claimVolume(source);
  const made = await fixture.run(
    'cd /opt/prefix && mkdir bin && echo tool >bin/tool && chmod 750 bin/tool && ln bin/tool bin/hard && ln -s ../../../usr/bin/env out && ln -s /etc abs && printf x >"$(printf %0150d 0)" && mkfifo pipe',
    mounted(source),
  );
  assert.equal(made.exit?.kind === 'exit' && made.exit.status, 0, made.text);
  const file = join(fixture.directory, 'artifact');
  const capture = () =>
    fixture.engine.readVolume({ volume: source, inside: '' }, tar =>
      captureTar(tar, { file, prefix: '/opt/prefix', owner: RUN_AS, mayContinue: () => true }),
    );
  const captured = await capture();
  assert.equal(captured.files, 6);
  assert.equal(captured.sizeBytes, 6);
  assert.equal((await capture()).hash, captured.hash);

  const target = await makeVolume('target');
  await fixture.engine.fillVolume(target, () => openArtifact(file));
  const show = 'cd /opt/prefix && find . -printf "%y %m %u %n %p %l\\n" | sort';
  const before = await fixture.run(show, mounted(source));
  const now = await fixture.run(show, mounted(target, true));
  assert.equal(now.text, before.text);
  assert.match(now.text, /f 750 assay 2 \.\/bin\/hard/);
  const isDirectory = (inside: string) => fixture.engine.hasDirectory({ volume: target, inside });
  assert.deepEqual(await Promise.all(['bin', 'bin/tool', 'abs', 'none'].map(isDirectory)), [
    true,
    false,
    false,
    false,
  ]);
});

test('a container does not start with an empty volume in place of one that Docker has lost', async () => {
  const { engine } = fixture;
  const kept = await makeVolume('kept');
  await fixture.engine.claimVolume(kept);
  const lost = await makeVolume('lost');
  await engine.removeVolume(lost);
  const mounts = [
    ...mounted(kept, true).mounts,
    { ...mounted(lost, true).mounts[0], target: '/opt/lost' } as Mount,
  ];
  const { plan } = await fixture.begin('true', { mounts });
  await assert.rejects(engine.startContainer(plan), VolumeLost);
  assert.equal(await engine.hasVolume(lost), false);
  assert.equal(await engine.hasVolume(kept), true);
  assert.deepEqual(
    (await engine.listContainers()).filter(({ name }) => name === plan.name),
    [],
  );
  await makeVolume('lost');
  const made = await fixture.run('true', { mounts });
  assert.equal(made.exit?.kind === 'exit' && made.exit.status, 0, made.text);
});

test('the remains of a lost volume after a crash are not used', async () => {
  const { engine } = fixture;
  const volume = await makeVolume('forgotten');
  await engine.removeVolume(volume);
  // As left by a container that was created and never started.
  const { Labels, DriverConfig } = placeholderFor(fixture.instance);
  const { Name: Driver, Options: DriverOpts } = DriverConfig;
  await fixture.docker.createVolume({ Name: volume, Labels, Driver, DriverOpts });
  assert.equal(await engine.hasVolume(volume), false);
  await makeVolume('forgotten');
  const made = await fixture.run('ls /opt/prefix | wc -l', mounted(volume, true));
  assert.equal(made.text.trim(), '0');
});

test('a slow reader is not cut off by the deadline of the response', async () => {
  const volume = await makeVolume('slow');
  await fixture.engine.claimVolume(volume);
  await fixture.run('head -c 64M /dev/urandom >/opt/prefix/big', mounted(volume));
  const client = openDocker({ dockerHost: DOCKER_HOST });
  // Only this call gets a short deadline: creating and removing a container may take longer on a busy disk.
  const call: typeof client.call = (what, work, limits) =>
    client.call(what, work, what === 'read a volume' ? { ...limits, deadlineMs: 4_000 } : limits);
  const scope = { ...client, call, instance: fixture.instance, internalContainers: new Set<string>() };
  const impatient = createVolumes(scope, async () => fixture.host);
  const bytes = await impatient.readVolume({ volume, inside: '' }, async tar => {
    await wait(5_000);
    let count = 0;
    for await (const chunk of tar) count += (chunk as Buffer).length;
    return count;
  });
  assert.ok(bytes > 64 * 2 ** 20);
});

test('an aborted capture ends at once', async () => {
  const volume = await makeVolume('given-up');
  await fixture.engine.claimVolume(volume);
  await fixture.run('head -c 64M /dev/urandom >/opt/prefix/big', mounted(volume));
  const file = join(fixture.directory, 'given-up');
  await assert.rejects(
    fixture.engine.readVolume({ volume, inside: '' }, tar =>
      captureTar(tar, { file, prefix: '/', owner: RUN_AS, mayContinue: () => false }),
    ),
    CaptureStopped,
  );
  assert.ok(statSync(file).size < 64 * 2 ** 20);
});

test('a damaged or missing artifact is detected when a volume is filled from it', async () => {
  const volume = await makeVolume('damaged');
  await fixture.engine.claimVolume(volume);
  await fixture.run('head -c 1M /dev/urandom >/opt/prefix/big', mounted(volume));
  const file = join(fixture.directory, 'damaged');
  await fixture.engine.readVolume({ volume, inside: '' }, tar =>
    captureTar(tar, { file, prefix: '/', owner: RUN_AS, mayContinue: () => true }),
  );
  const whole = readFileSync(file);
  const changed = Buffer.from(whole);
  changed[500_000] = (changed[500_000] as number) ^ 1;
  for (const content of [whole.subarray(0, 500_000), changed, Buffer.from('nothing of the kind')]) {
    writeFileSync(file, content);
    await assert.rejects(fixture.engine.fillVolume(volume, () => openArtifact(file)));
  }
  await assert.rejects(fixture.engine.fillVolume(volume, () => openArtifact(`${file}.absent`)));
});

test('a tar of directories creates each of them, for the container’s user', async () => {
  const volume = await makeVolume('directories');
  await fixture.engine.fillVolume(volume, () => directoriesTar(['a/b', 'a/c/d'], RUN_AS));
  const { text } = await fixture.run('cd /opt/prefix && find . -printf "%u %p\\n" | sort', mounted(volume));
  assert.deepEqual(
    text.trim().split('\n'),
    ['.', './a', './a/b', './a/c', './a/c/d'].map(path => `assay ${path}`),
  );
});

test('a volume that Docker has lost is neither read nor filled, and nothing replaces it', async () => {
  const { engine } = fixture;
  const volume = await makeVolume('lost-content');
  await engine.removeVolume(volume);
  const ignore = async () => {};
  await assert.rejects(engine.readVolume({ volume, inside: '' }, ignore), VolumeLost);
  await assert.rejects(
    engine.fillVolume(volume, () => directoriesTar(['a'], RUN_AS)),
    VolumeLost,
  );
  const owner = { instance: fixture.instance, kind: 'union', id: '' };
  const union = { name: `${volume}-union`, owner, layers: [{ volume, inside: '' }] };
  await assert.rejects(engine.createUnion(union), VolumeLost);
  const left = (await engine.listVolumes()).map(({ name }) => name);
  assert.ok(!left.includes(volume) && !left.includes(union.name), left.join());
});

test('a container that the engine uses for its own work is listed only to other processes', async () => {
  const volume = await makeVolume('in-use');
  await fixture.engine.claimVolume(volume);
  const other = fixture.openEngine();
  const internalContainersSeenBy = async (engine: typeof other) =>
    (await engine.listContainers()).filter(({ owner }) => owner.kind === 'volume').length;
  const seen = await fixture.engine.readVolume({ volume, inside: '' }, async tar => {
    tar.resume();
    return [await internalContainersSeenBy(fixture.engine), await internalContainersSeenBy(other)];
  });
  assert.deepEqual(seen, [0, 1]);
  assert.equal(await internalContainersSeenBy(other), 0);
  other.close();
});

test('a union has the layers of the last call, and reports if there are too many', async () => {
  const { engine } = fixture;
  const first = await makeVolume('first-layer');
  const second = await makeVolume('second-layer');
  const third = await makeVolume('third-layer');
  await engine.fillVolume(first, () => directoriesTar(['a', 'both'], RUN_AS));
  await engine.fillVolume(second, () => directoriesTar(['b', 'both'], RUN_AS));
  await engine.fillVolume(third, () => directoriesTar(['c'], RUN_AS));
  const name = `assay-${fixture.instance}-union`;
  const owner = { instance: fixture.instance, kind: 'union', id: '' };
  const show = async (...volumes: string[]) => {
    const layers = volumes.map(volume => ({ volume, inside: '' }));
    assert.equal(await engine.createUnion({ name, owner, layers }), true);
    const { text, containerId } = await fixture.run('ls /opt/prefix', mounted(name, true));
    await engine.removeContainer(containerId);
    return text;
  };
  assert.equal(await show(first, second), 'a\nb\nboth\n');
  assert.equal(await show(second, third), 'b\nboth\nc\n');
  const many = Array.from({ length: 100 }, () => ({ volume: first, inside: 'a' }));
  assert.equal(await engine.createUnion({ name: `${name}-many`, owner, layers: many }), false);
});
