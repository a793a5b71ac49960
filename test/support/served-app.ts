// Like app.ts, but served by the executable. The test writes accounts and records through its own database connection,
// as the command line does. There is no Docker, and no work is queued.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import type { Db } from '../../src/store/database/db.ts';
import { listDeliveries } from '../../src/store/notifications.ts';
import { recordAttempt } from '../../src/store/outbox.ts';
import { moveDeploy } from '../../src/store/transition.ts';
import { createFixture, type Fixture, type Planted } from './app.ts';
import { type Client, createClient } from './client.ts';
import { type Served, serveExecutable } from './executable.ts';

export type ServedApp = Fixture &
  Pick<Served, 'url' | 'pid' | 'logged' | 'untilLogged'> & {
    client: Client;
    /** Changes with every transaction of the server. A refused request must not change it. */
    changes(): bigint;
    close(): Promise<void>;
  };

/** `through` is a program to run the server under. */
export async function serveApp(through: readonly string[] = []): Promise<ServedApp> {
  const data = await mkdtemp(join(tmpdir(), 'assay-served-'));
  createDataDirectory(data);
  const db = openData(data);
  const stage = createFixture(db, data);
  const { stop, ...server } = await serveExecutable(data, {
    through,
    environment: { DOCKER_HOST: `unix://${data}/no-docker.sock`, ASSAY_MIN_FREE_DISK: '1MiB' },
  });
  const client = createClient(server.url, await readFile(join(data, 'tls', 'ca.pem'), 'utf8'));
  // PRAGMA data_version counts commits of other connections only.
  const version = db.sqlite.prepare<[], bigint>('PRAGMA data_version').pluck();
  return {
    ...stage,
    ...server,
    client,
    plant: owner => db.write(() => finished(db, stage.plant(owner))),
    changes: () => version.get() as bigint,
    async close() {
      client.close();
      const status = await stop();
      db.close();
      await rm(data, { recursive: true, force: true });
      assert.equal(status, 0, `the server ended with ${status}: ${server.logged.join('')}`);
    },
  };
}

/** In the same transaction, so that a running server starts none of it. */
function finished(db: Db, planted: Planted): Planted {
  moveDeploy(db, planted.deploy_id, 'start');
  moveDeploy(db, planted.deploy_id, 'deploy');
  for (const { id } of listDeliveries(db, planted.notification_id, { limit: 100, before: undefined }))
    recordAttempt(db, id, {
      state: 'delivered',
      attempts: 1,
      responseStatus: 204,
      responseMs: 1,
      responseExcerpt: '',
      lastError: null,
      nextAttemptAt: null,
    });
  return planted;
}
