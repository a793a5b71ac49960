// A worker that cannot write closes its files, and its build ends when there is space again.
import assert from 'node:assert/strict';
import { readdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { buildLogPath } from '../../src/store/data/paths.ts';
import { type Appliance, startAppliance } from '../support/appliance.ts';

let appliance: Appliance;
before(async () => {
  appliance = await startAppliance({ concurrency: 1 });
});
after(() => appliance.close());

/** The files of that name that this process has open. */
const openFiles = (path: string) =>
  readdirSync('/proc/self/fd').filter(name => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`).startsWith(path);
    } catch {
      return false;
    }
  });

/** Resolves with the next logged line that matches. */
const logs = (fits: (line: string) => boolean) =>
  new Promise<void>(resolve => {
    const { logged } = appliance;
    logged.push = (...lines) => {
      if (lines.some(fits)) resolve();
      return Array.prototype.push.apply(logged, lines);
    };
  });

test('a build whose log cannot be written leaves no file open, and ends when it can', async t => {
  const project = await appliance.project();
  await project.suite({ command: 'sleep 6; echo done' });
  await project.request();
  const waiting = await project.buildOf(await project.request());
  const id = waiting.id_str as string;
  const path = buildLogPath(appliance.data, BigInt(id));
  // Every write fails with a full disk.
  const failed = logs(line => line.includes('worker failed') && line.includes(id));
  symlinkSync('/dev/full', path);
  t.after(() => rmSync(path, { force: true }));
  await failed;
  assert.deepEqual(openFiles(`${path}.times`), []);
  assert.deepEqual(openFiles('/dev/full'), []);
  rmSync(path);
  const ended = await project.finishedBuild(id);
  assert.ok(['passed', 'errored'].includes(ended.build_state as string), String(ended.build_state));
});
