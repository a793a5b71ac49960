// What the sweep takes away, and what it leaves to those who need it.
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { createLog } from '../../src/log.ts';
import { findBuild } from '../../src/store/builds.ts';
import { buildLogPath } from '../../src/store/data/paths.ts';
import type { Db } from '../../src/store/database/db.ts';
import { instanceOf } from '../../src/store/database/settings.ts';
import { moveBuild } from '../../src/store/transition.ts';
import type { ContainerHost } from '../../src/work/container-host.ts';
import { type SweepParts, startSweep } from '../../src/work/sweep.ts';
import { addBuilds, addProject, addSuite, openRoom } from '../store/room.ts';

const DAY_MS = 24 * 3600_000;

/** A sweep whose Docker holds just these containers, and notes which of them are removed. */
function sweeperOf(
  { db, path }: { db: Db; path: string },
  parts: Partial<SweepParts>,
  containers: unknown[] = [],
) {
  const dataDirectory = dirname(path);
  for (const name of ['jobs', 'mirrors', 'archives', 'artifacts', 'logs'])
    mkdirSync(join(dataDirectory, name));
  const removed: string[] = [];
  const { sweep, stop } = startSweep({
    db,
    log: createLog(() => {}, {}),
    host: {
      unavailable: () => undefined,
      isGuard: (id: string) => id === 'guard',
      engine: {
        listContainers: async () => containers,
        listVolumes: async () => [],
        removeContainer: async (id: string) => void removed.push(id),
      },
    } as unknown as ContainerHost,
    artifacts: { isHeld: () => false, isVolumeNeeded: () => true },
    caches: { listNeeded: () => new Set<string>(), review: async () => {} },
    dataDirectory,
    retentionMs: DAY_MS,
    ...parts,
  });
  return { dataDirectory, removed, sweep, [Symbol.dispose]: stop };
}

test('logs go when their time is over; younger ones, those of what runs, and every record stay', async () => {
  using room = openRoom();
  const { db, now } = room;
  using sweeper = sweeperOf(room, { retentionMs: 2 * DAY_MS });
  const project = addProject(db);
  const suites = Array.from({ length: 3 }, () => addSuite(db, project.id).id);
  const { builds } = addBuilds(db, project, suites);
  const [old, young, running] = builds as [bigint, bigint, bigint];
  for (const id of builds) {
    moveBuild(db, id, 'start', { nonce: 'n' });
    const log = buildLogPath(sweeper.dataDirectory, id);
    for (const file of [log, `${log}.times`]) writeFileSync(file, 'hello\n');
  }
  moveBuild(db, old, 'pass', { exitCode: 0 });
  now.ms += DAY_MS;
  moveBuild(db, young, 'pass', { exitCode: 0 });
  const kept = () => readdirSync(join(sweeper.dataDirectory, 'logs')).sort();
  const filesOf = (...ids: bigint[]) => ids.flatMap(id => [`build-${id}.log`, `build-${id}.log.times`]);
  await sweeper.sweep();
  assert.deepEqual(kept(), filesOf(old, young, running), 'nothing is due yet');
  now.ms += DAY_MS + 1;
  await sweeper.sweep();
  assert.deepEqual(kept(), filesOf(young, running));
  now.ms += 300 * DAY_MS;
  await sweeper.sweep();
  assert.deepEqual(kept(), filesOf(running));
  for (const id of builds) assert.ok(findBuild(db, project.id, id));
});

test('a container through which an artifact is filled stays as long as that takes, and goes after it', async () => {
  using room = openRoom();
  const instance = instanceOf(room.db);
  const container = (containerId: string, kind: string, id: string) => ({
    containerId,
    name: containerId,
    owner: { instance, kind, id },
    createdAt: new Date(Date.now() - 3 * 3600_000),
  });
  const held = new Set(['big']);
  using sweeper = sweeperOf(
    room,
    { artifacts: { isHeld: hash => held.has(hash), isVolumeNeeded: () => true } },
    [
      container('fills', 'artifact', 'big'),
      container('filled', 'artifact', 'small'),
      container('prepares', 'image', 'old'),
      container('guard', 'guard', 'bridge'),
      container('former', 'guard', 'bridge'),
    ],
  );
  await sweeper.sweep();
  assert.deepEqual(sweeper.removed, ['filled', 'prepares', 'former']);
  held.clear();
  await sweeper.sweep();
  assert.ok(sweeper.removed.includes('fills'));
});
