// A server is killed after it reads the exit record and before it records the verdict: the next server reads it again.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { recordPrefix } from '../../src/domain/container/entry-script.ts';
import { createLive } from '../../src/live.ts';
import { openLog } from '../../src/store/data/log-file.ts';
import type { ContainerHost } from '../../src/work/container-host.ts';
import { followContainer } from '../../src/work/follow-container.ts';
import { plainJob } from './plain-job.ts';

test('the verdict and every line are the same when they are read again', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'assay-verdict-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const job = plainJob(directory, {
    // The mask buffers what may be the start of a secret. At the end of a step it must not be lost.
    secrets: ['secret-secret'],
    describeStep: name => `step ${name}`,
  });
  const record = (payload: string) => `${recordPrefix('abc')}${payload}\x1e`;
  writeFileSync(
    job.outputFile,
    `${record('begin checkout')}out sec${record('end checkout 0')}${record('begin command')}line 1\nsecr${record('exit command 3')}`,
  );
  // The container has ended.
  const engine = { waitForExit: async () => undefined, inspectContainer: async () => undefined };
  const options = {
    host: { engine, reportUnavailable: () => {} } as unknown as ContainerHost,
    live: createLive(),
    stopping: new AbortController().signal,
  };
  const expected = '[assay] step checkout\nout sec\n[assay] step command\nline 1\nsecr';
  for (const time of ['first', 'again']) {
    const log = await openLog({ path: job.logPath, limitBytes: job.logLimitBytes });
    const outcome = await followContainer(options, job, log, undefined);
    await log.close();
    const exit = { kind: 'exit', step: 'command', status: 3, outOfMemory: false, hasNoArtifacts: false };
    assert.deepEqual(outcome, exit, time);
    assert.equal(readFileSync(job.logPath, 'utf8'), expected, time);
  }
});
