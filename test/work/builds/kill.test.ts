// Builds and compiles whose command kills processes, its own or Assay's: they run once, and are `failed`.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Appliance, startAppliance } from '../../support/appliance.ts';

const UNKNOWN =
  /\[assay\] the command killed the processes that wait for it .*: its exit status is not known\n$/;
const TERMINATED = /\[assay\] the command exited with 143 \(SIGTERM\)\n$/;

describe('A build whose command kills processes', { concurrency: 3 }, () => {
  let assay: Appliance;
  before(async () => {
    assay = await startAppliance({ concurrency: 3, timeoutMs: 60_000 });
  });
  after(() => assay.close());

  const kills: [command: string, state: string, exitCode: number | null, end: RegExp][] = [
    ['pkill -x cat; exit 0', 'passed', 0, /last words\n$/],
    ['pkill -x cat; exit 7', 'failed', 7, /\[assay\] the command exited with 7\n$/],
    ['pkill -x sh; sleep 100', 'failed', 143, TERMINATED],
    ['pkill -9 -x sh; sleep 100', 'failed', 137, /\[assay\] the command exited with 137 \(SIGKILL\)\n$/],
    ['pkill -u $(id -u); sleep 100', 'failed', 143, TERMINATED],
    ['kill -9 -1', 'failed', null, UNKNOWN],
    ['pkill -9 -u $(id -u)', 'failed', null, UNKNOWN],
    ['kill 1; kill -9 1', 'passed', 0, /last words\n$/],
    ['kill -9 $PPID; sleep 100', 'failed', 137, /\[assay\] the command exited with 137 \(SIGKILL\)\n$/],
  ];
  for (const [command, state, exitCode, end] of kills)
    test(`is run once and ${state}: ${command}`, async () => {
      const project = await assay.project();
      const { build, log } = await project.runOne({
        command: `sleep 1000 & echo run >>/srv/cache/runs; echo "run $(wc -l </srv/cache/runs)"; echo last words; ${command}`,
      });
      assert.equal(build.build_state, state, log);
      assert.equal(build.exit_code, exitCode);
      assert.equal(build.error, undefined);
      assert.match(log, end);
      assert.deepEqual(log.match(/^run \d+$/gm), ['run 1'], log);
      assert.match(log, /^last words$/m);
    });
});
