// The same stage as app.ts, served by the executable: people and records are planted through a handle of the test's own
// beside the server, as the command line does it. There is no Docker for it, and nothing waits to be worked on.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import type { Db } from '../../src/store/database/db.ts';
import { listDeliveries } from '../../src/store/notifications.ts';
import { recordAttempt } from '../../src/store/outbox.ts';
import { moveDeploy } from '../../src/store/transition.ts';
import { furnish, type Planted, type Stage } from './app.ts';
import { type Client, createClient } from './client.ts';
import { type Served, serveExecutable } from './executable.ts';

export type ServedApp = Stage &
  Pick<Served, 'url' | 'pid' | 'logged' | 'untilLogged'> & {
    client: Client;
    /** Another number after each transaction in which the server wrote: what a refused request must leave as it was. */
    changes(): bigint;
    close(): Promise<void>;
  };

/** `through` is a program to run the server under. */
export async function serveApp(through: readonly string[] = []): Promise<ServedApp> {
  const data = await mkdtemp(join(tmpdir(), 'assay-served-'));
  createDataDirectory(data);
  const db = openData(data);
  const stage = furnish(db, data);
  const { stop, ...server } = await serveExecutable(data, {
    through,
    environment: { DOCKER_HOST: `unix://${data}/no-docker.sock`, ASSAY_MIN_FREE_DISK: '1MiB' },
  });
  const client = createClient(server.url, await readFile(join(data, 'tls', 'ca.pem'), 'utf8'));
  // SQLite counts in it what other connections commit, and nothing of what this one does.
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

/** In the transaction that made them: a server that is running takes on nothing of it. */
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
