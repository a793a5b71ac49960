// How the end of a container becomes the result of a build.
import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { test } from 'node:test';
import { describeStatus } from '../../../src/domain/container/verdict.ts';

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
