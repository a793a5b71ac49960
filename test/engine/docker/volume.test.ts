// Volumes filled and read through containers that never start, and the tars that artifacts are kept as.
import assert from 'node:assert/strict';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { Mount } from '../../../src/domain/container/container-plan.ts';
import {
  captureTar,
  directoriesTar,
  GivenUp,
  openArtifact,
} from '../../../src/engine/archive/artifact-tar.ts';
import type { DockerDoor } from '../../../src/engine/docker/docker.ts';
import { VolumeLost } from '../../../src/engine/docker/docker.ts';
import {
  type Carrier,
  claimVolume,
  fillVolume,
  findDirectories,
  findMountpoint,
  readVolume,
  standInFor,
} from '../../../src/engine/docker/volume.ts';
import { openRoom, type Room, RUN_AS } from './room.ts';

let room: Room;
before(async () => {
  room = await openRoom();
});
after(() => room.close());

async function makeVolume(name: string): Promise<Carrier> {
  const owner = { instance: room.instance, kind: 'artifact', id: name };
  const volume = `assay-${room.instance}-${name}`;
  await room.engine.createVolume({ name: volume, labels: owner });
  return { volume, image: room.host.reference, owner };
}

const mounted = (volume: string, readOnly = false) => ({
  mounts: [
    { type: 'volume' as const, source: volume, target: '/opt/prefix', readOnly, copy: false as const },
  ],
});

test('what is captured of a volume fills another one with the same tree, links and all', async () => {
  const source = await makeVolume('source');
  await claimVolume(room.engine.door, source);
  const made = await room.run(
    'cd /opt/prefix && mkdir bin && echo tool >bin/tool && chmod 750 bin/tool && ln bin/tool bin/hard && ln -s ../../../usr/bin/env out && ln -s /etc abs && printf x >"$(printf %0150d 0)" && mkfifo pipe',
    mounted(source.volume),
  );
  assert.equal(made.exit?.kind === 'exit' && made.exit.status, 0, made.text);
  const file = join(room.directory, 'artifact');
  const capture = () =>
    readVolume(room.engine.door, source, '', tar =>
      captureTar(tar, { file, prefix: '/opt/prefix', owner: RUN_AS, goOn: () => true }),
    );
  const captured = await capture();
  assert.equal(captured.files, 6);
  assert.equal(captured.sizeBytes, 6);
  assert.equal((await capture()).hash, captured.hash);

  const target = await makeVolume('target');
  await fillVolume(room.engine.door, target, () => openArtifact(file));
  const show = 'cd /opt/prefix && find . -printf "%y %m %u %n %p %l\\n" | sort';
  const before = await room.run(show, mounted(source.volume));
  const now = await room.run(show, mounted(target.volume, true));
  assert.equal(now.text, before.text);
  assert.match(now.text, /f 750 assay 2 \.\/bin\/hard/);
  assert.deepEqual(
    await findDirectories(room.engine.door, target, ['bin', 'bin/tool', 'abs', 'none']),
    new Set(['bin']),
  );
});

test('a container is not started with an empty volume in the place of one that Docker has lost', async () => {
  const { engine, instance } = room;
  const kept = await makeVolume('kept');
  await claimVolume(engine.door, kept);
  const lost = await makeVolume('lost');
  await engine.removeVolume(lost.volume);
  const mounts = [
    ...mounted(kept.volume, true).mounts,
    { ...mounted(lost.volume, true).mounts[0], target: '/opt/lost' } as Mount,
  ];
  const { plan } = await room.begin('true', { mounts });
  await assert.rejects(engine.startContainer(plan), VolumeLost);
  assert.equal(await findMountpoint(engine.door, lost.volume), undefined);
  assert.notEqual(await findMountpoint(engine.door, kept.volume), undefined);
  assert.deepEqual(
    (await engine.listContainers(instance)).filter(({ name }) => name === plan.name),
    [],
  );
  await makeVolume('lost');
  const made = await room.run('true', { mounts });
  assert.equal(made.exit?.kind === 'exit' && made.exit.status, 0, made.text);
});

test('what a crash leaves of a volume that was lost is not taken for it', async () => {
  const { engine } = room;
  const carrier = await makeVolume('forgotten');
  await engine.removeVolume(carrier.volume);
  // As the creation of a container leaves it that is never started.
  await engine.door.docker.createVolume({ Name: carrier.volume, ...standIn(room.instance) });
  assert.equal(await findMountpoint(engine.door, carrier.volume), undefined);
  await makeVolume('forgotten');
  const made = await room.run('ls /opt/prefix | wc -l', mounted(carrier.volume, true));
  assert.equal(made.text.trim(), '0');
});

const standIn = (instance: string) => {
  const { Labels, DriverConfig } = standInFor({ instance, kind: '', id: '' });
  return { Labels, Driver: DriverConfig.Name, DriverOpts: DriverConfig.Options };
};

test('a reader that is slow is not cut off by the deadline of the answer', async () => {
  const carrier = await makeVolume('slow');
  await claimVolume(room.engine.door, carrier);
  await room.run('head -c 64M /dev/urandom >/opt/prefix/big', mounted(carrier.volume));
  const { door } = room.engine;
  // Of this one call: to make and remove a container may take longer on a busy disk.
  const impatient: DockerDoor = {
    ...door,
    call: (what, work, limits) =>
      door.call(what, work, what === 'read a volume' ? { ...limits, deadlineMs: 4_000 } : limits),
  };
  const bytes = await readVolume(impatient, carrier, '', async tar => {
    await wait(5_000);
    let count = 0;
    for await (const chunk of tar) count += (chunk as Buffer).length;
    return count;
  });
  assert.ok(bytes > 64 * 2 ** 20);
});

test('a capture that is given up ends at once', async () => {
  const carrier = await makeVolume('given-up');
  await claimVolume(room.engine.door, carrier);
  await room.run('head -c 64M /dev/urandom >/opt/prefix/big', mounted(carrier.volume));
  const file = join(room.directory, 'given-up');
  await assert.rejects(
    readVolume(room.engine.door, carrier, '', tar =>
      captureTar(tar, { file, prefix: '/', owner: RUN_AS, goOn: () => false }),
    ),
    GivenUp,
  );
  assert.ok(statSync(file).size < 64 * 2 ** 20);
});

test('an artifact that is damaged or gone is noticed when a volume is filled with it', async () => {
  const carrier = await makeVolume('damaged');
  await claimVolume(room.engine.door, carrier);
  await room.run('head -c 1M /dev/urandom >/opt/prefix/big', mounted(carrier.volume));
  const file = join(room.directory, 'damaged');
  await readVolume(room.engine.door, carrier, '', tar =>
    captureTar(tar, { file, prefix: '/', owner: RUN_AS, goOn: () => true }),
  );
  const whole = readFileSync(file);
  const changed = Buffer.from(whole);
  changed[500_000] = (changed[500_000] as number) ^ 1;
  for (const content of [whole.subarray(0, 500_000), changed, Buffer.from('nothing of the kind')]) {
    writeFileSync(file, content);
    await assert.rejects(fillVolume(room.engine.door, carrier, () => openArtifact(file)));
  }
  await assert.rejects(fillVolume(room.engine.door, carrier, () => openArtifact(`${file}.absent`)));
});

test('a tar of directories makes each of them, for the container’s user', async () => {
  const carrier = await makeVolume('directories');
  await fillVolume(room.engine.door, carrier, () => directoriesTar(['a/b', 'a/c/d'], RUN_AS));
  const { text } = await room.run(
    'cd /opt/prefix && find . -printf "%u %p\\n" | sort',
    mounted(carrier.volume),
  );
  assert.deepEqual(
    text.trim().split('\n'),
    ['.', './a', './a/b', './a/c', './a/c/d'].map(path => `assay ${path}`),
  );
});
