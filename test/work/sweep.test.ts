// Which containers the sweep takes away, and which it lets finish.
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { createLog } from '../../src/log.ts';
import { instanceOf } from '../../src/store/facts.ts';
import type { ContainerHost } from '../../src/work/container-host.ts';
import { startSweep } from '../../src/work/sweep.ts';
import { openRoom } from '../store/room.ts';

test('a container through which an artifact is filled stays as long as that takes, and goes after it', async () => {
  using room = openRoom();
  const dataDirectory = dirname(room.path);
  for (const name of ['jobs', 'mirrors', 'archives', 'artifacts', 'logs'])
    mkdirSync(join(dataDirectory, name));
  const instance = instanceOf(room.db);
  const hoursAgo = new Date(Date.now() - 3 * 3600_000);
  const container = (containerId: string, kind: string, id: string) => ({
    containerId,
    name: containerId,
    owner: { instance, kind, id },
    createdAt: hoursAgo,
  });
  const removed: string[] = [];
  const held = new Set(['big']);
  const sweeper = startSweep({
    db: room.db,
    log: createLog(() => {}, {}),
    host: {
      unavailable: () => undefined,
      engine: {
        listContainers: async () => [
          container('fills', 'artifact', 'big'),
          container('filled', 'artifact', 'small'),
          container('prepares', 'image', 'old'),
        ],
        listVolumes: async () => [],
        removeContainer: async (id: string) => void removed.push(id),
      },
    } as unknown as ContainerHost,
    artifacts: { isHeld: hash => held.has(hash), isVolumeNeeded: () => true },
    dataDirectory,
    retentionMs: 1,
  });
  try {
    await sweeper.sweep();
    assert.deepEqual(removed, ['filled', 'prepares']);
    held.clear();
    await sweeper.sweep();
    assert.ok(removed.includes('fills'));
  } finally {
    sweeper.stop();
  }
});
