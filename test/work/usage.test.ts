// The disk usage of a job. What Docker measures is tested in test/engine/docker/disk-usage.test.ts.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { createLog } from '../../src/log.ts';
import { jobDirectory } from '../../src/store/data/paths.ts';
import type { ContainerHost } from '../../src/work/container-host.ts';
import { createJobMeter } from '../../src/work/usage.ts';
import { openFixture } from '../store/fixture.ts';

test('the output of a job counts even if its container is gone', async () => {
  using fixture = openFixture();
  const dataDirectory = dirname(fixture.path);
  const directory = jobDirectory(dataDirectory, 'build', 7n);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'output'), Buffer.alloc(3 << 20, 'x'));
  const measure = createJobMeter({
    db: fixture.db,
    host: { engine: { listStorage: async () => [] } } as unknown as ContainerHost,
    caches: { measure: async () => new Map() },
    dataDirectory,
    log: createLog(() => {}),
  });
  const job = { kind: 'build' as const, id: 7n, topic: 'build:7', nonce: 'a', suiteId: 1n, startedAt: 0 };
  const usage = (await measure([job], { workspaces: true })).get('a');
  assert.ok(usage && usage.outputBytes >= 3 << 20, String(usage?.outputBytes));
  assert.equal(usage.workspaceBytes, 0);
});
