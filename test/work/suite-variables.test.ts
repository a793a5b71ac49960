// The values to mask outlive the server that started the container.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createVault } from '../../src/store/database/vault.ts';
import { readSecrets, writeSecrets } from '../../src/work/suite-variables.ts';

test('secrets are read back unchanged, and an unreadable file is not treated as none', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'assay-variables-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const vault = createVault(Buffer.alloc(32, 7));
  assert.equal(await readSecrets(vault, 1n, directory), undefined);
  await writeSecrets(vault, 1n, directory, [{ id: 1n, name: 'TOKEN', content: 'a secret of mine' }]);
  assert.deepEqual(await readSecrets(vault, 1n, directory), ['a secret of mine']);
  await assert.rejects(readSecrets(vault, 2n, directory), 'secrets of another build');
  truncateSync(join(directory, 'secrets'), 10);
  await assert.rejects(readSecrets(vault, 1n, directory), 'truncated by a crash');
  rmSync(join(directory, 'secrets'));
  mkdirSync(join(directory, 'secrets'));
  await assert.rejects(readSecrets(vault, 1n, directory), 'unreadable');
});
