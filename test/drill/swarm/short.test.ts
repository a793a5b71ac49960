// The short version of `drill swarm`, run with the other tests.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SWARM_SKIP } from '../../support/swarm.ts';
import { createRandom } from '../support/random.ts';
import { drillSwarm } from './swarm.ts';

test('a swarm loses nothing and runs nothing twice when an engine is killed and a machine loses its power', {
  skip: SWARM_SKIP,
}, async () => {
  const table = await drillSwarm({
    jobs: 10,
    random: createRandom(1),
    slack: 3,
    signal: new AbortController().signal,
    strikes: [
      { fault: 'engine killed', machine: 1, lastsMs: 1_000 },
      { fault: 'powered off', machine: 2, lastsMs: 8_000 },
    ],
    deadlineMs: 120_000,
    lostAfterMs: 2_000,
    say: () => {},
  });
  assert.deepEqual(table.failures(), []);
});
