// Like appliance.ts, but with the executable as server: a real Git host and a real Docker Engine, used only through the
// public API.
import assert from 'node:assert/strict';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { newSecret } from '../../src/domain/secret.ts';
import { createAccount } from '../../src/store/accounts.ts';
import { createDataDirectory, openData } from '../../src/store/data/data.ts';
import { instanceOf } from '../../src/store/database/stored-values.ts';
import { type Appliance, clearDocker, containersUntil, makeData } from './appliance.ts';
import { basic, createClient } from './client.ts';
import { serveExecutable } from './executable.ts';
import { createJourney } from './journey.ts';
import { startSshd } from './sshd.ts';

export type ServedAppliance = Omit<Appliance, 'app' | 'logged' | 'committed'>;

/** `environment` has the settings; `through` is a program to run the server under. */
export async function serveAppliance(
  environment: Record<string, string> = {},
  through: readonly string[] = [],
): Promise<ServedAppliance> {
  const sshd = await startSshd();
  const data = makeData(sshd);
  createDataDirectory(data);
  const db = openData(data);
  const instance = instanceOf(db);
  const key = newSecret('assay');
  const email = 'owner@example.org';
  createAccount(db, { email, kind: 'user', admin: true, passwordHash: null, apiKey: key });
  db.close();
  const server = await serveExecutable(data, {
    environment: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: '1MiB', ...environment },
    through,
  });
  const client = createClient(server.url, readFileSync(join(data, 'tls', 'ca.pem'), 'utf8'));
  return {
    ...createJourney({ client, as: basic(email, key), sshd }),
    token: `${email}:${key}`,
    client,
    data,
    sshd,
    instance,
    containersUntil: holds => containersUntil(instance, holds),
    async close() {
      client.close();
      const status = await server.stop();
      await sshd.close();
      await clearDocker(instance);
      rmSync(data, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
      assert.equal(status, 0, `the server ended with ${status}: ${server.logged.join('')}`);
    },
  };
}
