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

test('a lost build is run again, unless RETRY_LOST is off', () => {
  const limits = { attempts: 1, timeoutMs: 1, memoryBytes: 1, diskBytes: 1, cacheLimitBytes: 1 };
  const lost = { kind: 'lost', reason: 'The node n2 does not respond.' } as const;
  const again = classifyOutcome(lost, { ...limits, retryLost: true });
  assert.deepEqual([again.event, again.error], ['requeue', null]);
  assert.match(again.lines[0] as string, /^The node n2 does not respond\. /);
  assert.equal(classifyOutcome(lost, { ...limits, attempts: 3, retryLost: true }).event, 'error');
  const ended = classifyOutcome(lost, { ...limits, retryLost: false });
  assert.equal(ended.event, 'error');
  assert.match(ended.error as string, /RETRY_LOST/);
});

test('a node that refuses a command makes the build errored, except while it sets its firewall rules', () => {
  const limits = {
    attempts: 1,
    retryLost: false,
    timeoutMs: 1,
    memoryBytes: 1,
    diskBytes: 1,
    cacheLimitBytes: 1,
  };
  const refused = (status: number, attempts = 1) =>
    classifyOutcome({ kind: 'exit', step: 'node', status, outOfMemory: false }, { ...limits, attempts });
  for (const status of [91, 92, 93, 95]) assert.equal(refused(status).event, 'error');
  assert.match(
    refused(92).error as string,
    /^The command did not run: the node would let .*no-new-privileges/,
  );
  assert.equal(refused(94).event, 'requeue');
  assert.equal(refused(94, 3).event, 'error');
  assert.match(refused(94, 3).error as string, /firewall rules/);
});
