// How much volumes hold, counted by a container of the real engine.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { measureVolumes } from '../../../src/engine/docker/disk-usage.ts';
import { claimVolume } from '../../../src/engine/docker/volume.ts';
import { openRoom, type Room } from './room.ts';

const MIB = 1024 * 1024;
let room: Room;
before(async () => {
  room = await openRoom();
});
after(() => room.close());

async function makeVolume(name: string): Promise<string> {
  const owner = { instance: room.instance, kind: 'cache', id: name };
  const volume = `assay-${room.instance}-${name}`;
  await room.engine.createVolume({ name: volume, labels: owner });
  await claimVolume(room.engine.door, { volume, image: room.host.reference, owner });
  return volume;
}

const measure = (names: readonly string[]) =>
  measureVolumes(room.engine.door, { instance: room.instance, hostImage: room.host, names });

test('counts what each volume holds, directories that their owner has closed included', async () => {
  const full = await makeVolume('full');
  const empty = await makeVolume('empty');
  const made = await room.run(
    `cd /srv/cache && mkdir closed && head -c 3M /dev/zero >closed/zeros && chmod 0 closed && head -c 2M /dev/zero >"$(printf 'a\\nb')" && truncate -s 1T sparse`,
    { mounts: [{ type: 'volume', source: full, target: '/srv/cache', readOnly: false }] },
  );
  assert.equal(made.exit?.kind === 'exit' && made.exit.status, 0, made.text);
  const sizes = await measure([empty, full]);
  const size = sizes.get(full) as number;
  assert.ok(size >= 5 * MIB && size < 6 * MIB, String(size));
  assert.ok((sizes.get(empty) as number) < 64 * 1024, String(sizes.get(empty)));
  const left = await room.engine.listContainers(room.instance);
  assert.deepEqual(
    left.filter(({ owner }) => owner.kind === 'disk-usage'),
    [],
  );
});

test('counts more volumes than one container takes, each by its name', async () => {
  const names: string[] = [];
  for (let number = 0; number < 20; number++) names.push(await makeVolume(`many-${number}`));
  await room.run('head -c 2M /dev/zero >/srv/cache/zeros', {
    mounts: [{ type: 'volume', source: names[18] as string, target: '/srv/cache', readOnly: false }],
  });
  const sizes = await measure(names);
  assert.deepEqual(new Set(sizes.keys()), new Set(names));
  assert.deepEqual(
    names.filter(name => (sizes.get(name) as number) > MIB),
    [names[18]],
  );
});

test('a volume that is gone counts as empty, and what stands for it carries our label', async () => {
  const gone = `assay-${room.instance}-gone`;
  assert.ok(((await measure([gone])).get(gone) as number) < 64 * 1024);
  const made = (await room.engine.listVolumes(room.instance)).find(({ name }) => name === gone);
  assert.deepEqual(made?.owner, { instance: room.instance, kind: 'cache', id: '' });
});
