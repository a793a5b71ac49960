// How the end of a container becomes the result of a build.
import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { test } from 'node:test';
import { classifyOutcome, describeStatus } from '../../../src/domain/container/verdict.ts';

test('a status above 128 names the signal that ends a command, and no other status does', () => {
  const { SIGKILL, SIGSEGV, SIGSYS, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ } = constants.signals;
  for (const [name, number] of Object.entries({
    SIGKILL,
    SIGSEGV,
    SIGSYS,
    SIGTERM,
    SIGUSR1,
    SIGXCPU,
    SIGXFSZ,
  }))
    assert.equal(describeStatus(128 + number), `${128 + number} (${name})`);
  for (const status of [1, 9, 127, 128, 255]) assert.equal(describeStatus(status), `${status}`);
});

test('a launch command that fails or does not return makes the build errored, and says what to do', () => {
  const limits = {
    attempts: 1,
    retryLost: true,
    timeoutMs: 1,
    memoryBytes: 1,
    diskBytes: 1,
    cacheLimitBytes: 1,
  };
  const exit = { kind: 'exit', step: 'launch-1', status: 137, outOfMemory: false } as const;
  const findLaunched = (step: string) =>
    step === 'launch-1' ? { name: 'PostgreSQL', launchSeconds: 90 } : undefined;
  const overrun = classifyOutcome({ ...exit, overran: true }, { ...limits, findLaunched });
  assert.deepEqual([overrun.event, overrun.lines], ['error', [overrun.error]]);
  assert.match(
    overrun.error as string,
    /^The launch command of PostgreSQL did not return within 90 s\. Start a daemon in the background, .*">\/dev\/null 2>&1 &".* launch_timeout\.$/,
  );
  const unknown = classifyOutcome({ ...exit, overran: true }, limits);
  assert.match(
    unknown.error as string,
    /^The launch command of a dependency did not return within its launch_timeout\. /,
  );
  const failed = classifyOutcome(exit, { ...limits, findLaunched });
  assert.equal(failed.error, 'The launch command of PostgreSQL failed with 137 (SIGKILL): the log says why.');
});
