// Out of memory, even for the container's first process: the suite is still failed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Appliance, startAppliance } from '../support/appliance.ts';

let appliance: Appliance;
before(async () => {
  appliance = await startAppliance({ memoryBytes: 40 * 1024 * 1024 });
});
after(() => appliance.close());

test('a suite that fills its memory with files is failed once, and its log says why', async () => {
  const project = await appliance.project();
  const { build, log } = await project.runOne({ command: 'cat /dev/zero >/dev/shm/zeros && echo unreached' });
  assert.equal(build.build_state, 'failed', log);
  assert.equal(build.exit_code, 137);
  assert.match(log, /out of memory: a process was killed at the limit of 41943040 bytes/);
  assert.doesNotMatch(log, /run again/);
});
