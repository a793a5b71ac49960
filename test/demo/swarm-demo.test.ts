// `assay demo --swarm`, as a user runs it.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { SWARM_SKIP } from '../support/swarm.ts';

const MAIN = join(import.meta.dirname, '../../src/main.ts');

test('the demo of a swarm runs a build on each machine, and one again after its machine lost its power', {
  skip: SWARM_SKIP,
}, async t => {
  // Paths of sockets must be short.
  const temporary = mkdtempSync(join(tmpdir(), 'demo-'));
  t.after(() => rmSync(temporary, { recursive: true, force: true }));
  const args = [MAIN, 'demo', '--swarm', '--once', '--listen', '127.0.0.1:0'];
  const { status, stdout } = await new Promise<{ status: number; stdout: string }>(resolve => {
    const child = execFile(
      process.execPath,
      args,
      { timeout: 180_000, env: { ...process.env, TMPDIR: temporary } },
      (_, output, errors) => resolve({ status: child.exitCode ?? -1, stdout: output + errors }),
    );
  });
  assert.equal(status, 0, stdout);
  for (const name of ['machine-1', 'machine-2', 'machine-3'])
    assert.match(stdout, new RegExp(`Suite \\d: running on ${name}$`, 'm'));
  assert.match(
    stdout,
    /^✓ Suite \d .*began on machine-3, which lost its power, and ran again on machine-[12]$/m,
  );
  assert.match(stdout, /Clean-up: nothing is left behind/);
  assert.deepEqual(readdirSync(temporary), []);
});
