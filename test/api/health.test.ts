// What monitoring is told: well while the database answers and is where the next server would look for it.
import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { test } from 'node:test';
import { databasePath } from '../../src/store/paths.ts';
import { bootApp } from '../support/app.ts';

test('an appliance whose database was taken away says that it is not well, and recovers', async t => {
  const app = await bootApp();
  t.after(() => app.close());
  const path = databasePath(app.data);
  const ask = async () => {
    const { status, text } = await app.client.get('/healthz');
    return [status, text];
  };
  assert.deepEqual(await ask(), [200, '{"response":"ok"}']);
  renameSync(path, `${path}.away`);
  assert.deepEqual(await ask(), [500, '{"error":{"generic":[]}}']);
  renameSync(`${path}.away`, path);
  assert.deepEqual(await ask(), [200, '{"response":"ok"}']);
});
