// Runs one container with an engine whose faults are scripted: late responses, none at all, and very long limits.
import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ContainerPlan } from '../../src/domain/container/container-plan.ts';
import { recordPrefix } from '../../src/domain/container/entry-script.ts';
import { type Engine, EngineUnavailable } from '../../src/engine/engine.ts';
import { createLive } from '../../src/live.ts';
import { openLog } from '../../src/store/data/log-file.ts';
import type { ContainerHost } from '../../src/work/container-host.ts';
import {
  type ContainerRun,
  followContainer,
  mayHaveStarted,
  startOnce,
} from '../../src/work/follow-container.ts';
import { plainJob } from './plain-job.ts';

async function createFixture(
  t: TestContext,
  engine: Partial<Engine>,
  of: Partial<ContainerRun> = {},
  logTo?: string,
) {
  const directory = mkdtempSync(join(tmpdir(), 'assay-follow-'));
  const job = plainJob(directory, of);
  writeFileSync(job.outputFile, '');
  if (logTo) symlinkSync(logTo, job.logPath);
  const log = await openLog({ path: job.logPath, limitBytes: job.logLimitBytes });
  t.after(async () => {
    await log.close();
    rmSync(directory, { recursive: true });
  });
  const never = <T>() => new Promise<T>(() => {});
  const { startContainer, ...others } = engine;
  const host = {
    startContainer: startContainer ?? (async () => 'id'),
    engine: {
      waitForExit: () => never(),
      stopContainer: async () => {},
      inspectContainer: async () => undefined,
      ...others,
    },
    reportUnavailable: () => {},
    // Until it is aborted.
    whenAvailable: (signal: AbortSignal) =>
      new Promise<void>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  } as unknown as ContainerHost;
  const live = createLive();
  const stopping = new AbortController();
  return {
    live,
    log,
    print: (text: string) => appendFileSync(job.outputFile, text),
    exit: () => appendFileSync(job.outputFile, `${recordPrefix('abc')}exit command 0\x1e`),
    mayHaveStarted: () => mayHaveStarted({ host, live, stopping: stopping.signal }, job),
    run: () =>
      followContainer(
        { host, live, stopping: stopping.signal },
        job,
        log,
        startOnce(host, {} as ContainerPlan),
      ),
  };
}

const PASSED = { kind: 'exit', step: 'command', status: 0, outOfMemory: false, hasNoArtifacts: false };

test('a limit of months does not end a job at once', async t => {
  let stops = 0;
  const stopContainer = async () => {
    stops += 1;
  };
  const fixture = await createFixture(t, { stopContainer }, { deadlineAt: Date.now() + 40 * 86_400_000 });
  const running = fixture.run();
  // Long enough for a timer that overflows.
  await new Promise(resolve => setTimeout(resolve, 20));
  fixture.exit();
  assert.deepEqual(await running, PASSED);
  assert.equal(stops, 0);
});

test('a job whose start is never answered can be canceled', async t => {
  const unavailable = async () => {
    throw new EngineUnavailable('Docker did not respond in time.');
  };
  let canceled = false;
  const asked = Promise.withResolvers<void>();
  const fixture = await createFixture(
    t,
    {
      startContainer: unavailable,
      stopContainer: unavailable,
      inspectContainer: () => {
        asked.resolve();
        return unavailable();
      },
    },
    { stopReason: () => (canceled ? 'canceled' : undefined) },
  );
  const running = fixture.run();
  await asked.promise;
  await turn();
  canceled = true;
  fixture.live.publish(['build:1']);
  assert.deepEqual(await running, { kind: 'canceled' });
});

test('a job whose output contains its end has ended, even if its start is never answered', async t => {
  const unavailable = async () => {
    throw new EngineUnavailable('The connection broke.');
  };
  const asked = Promise.withResolvers<void>();
  const inspectContainer = () => {
    asked.resolve();
    return unavailable();
  };
  const fixture = await createFixture(t, { startContainer: unavailable, inspectContainer });
  const running = fixture.run();
  await asked.promise;
  fixture.exit();
  assert.deepEqual(await running, PASSED);
});

test('a job whose log cannot be written because the disk is full is stopped, and that is recorded', async t => {
  const calls: string[] = [];
  const stopContainer = async () => void calls.push('stopped');
  const evict = () => void calls.push('evicted');
  // Every write fails with a full disk.
  const fixture = await createFixture(t, { stopContainer }, { evict }, '/dev/full');
  const running = fixture.run();
  fixture.print('some words\n');
  assert.deepEqual(await running, { kind: 'disk_full' });
  assert.deepEqual(calls, ['evicted', 'stopped']);
});

for (const [status, outcome] of [
  [0, { kind: 'killed', step: 'command' }],
  [137, { kind: 'lost' }],
  [255, { kind: 'lost' }],
] as const)
  test(`a container that ended with ${status} and without a verdict is ${outcome.kind}, also for a server that takes over`, async t => {
    const state = { running: false, exitCode: status, oomKilled: false, startedAt: new Date() };
    const engine = { waitForExit: async () => state, inspectContainer: async () => state };
    const fixture = await createFixture(t, engine);
    const output = `${recordPrefix('abc')}begin command\x1eone line\n`;
    fixture.print(output);
    assert.deepEqual(await fixture.run(), outcome);
    assert.equal(fixture.log.rawOffset, Buffer.byteLength(output));
    assert.deepEqual(await fixture.run(), outcome, 'with nothing left to read');
  });

test('a container that ended without a verdict on a full disk could not write its output, and that is the reason', async t => {
  const calls: string[] = [];
  const state = { running: false, exitCode: 255, oomKilled: false, startedAt: new Date() };
  const fixture = await createFixture(
    t,
    { waitForExit: async () => state, inspectContainer: async () => state },
    { isDiskFull: () => true, evict: () => void calls.push('evicted') },
  );
  fixture.print(`${recordPrefix('abc')}begin command\x1eone line\n`);
  assert.deepEqual(await fixture.run(), { kind: 'disk_full' });
  assert.deepEqual(calls, ['evicted']);
});

test('a job that Docker never reports as started is waited for no longer than its timeout', async t => {
  const inspectContainer = async () => {
    throw new EngineUnavailable('Docker did not respond in time.');
  };
  const fixture = await createFixture(t, { inspectContainer }, { deadlineAt: Date.now() + 100 });
  assert.equal(await fixture.mayHaveStarted(), true);
  assert.deepEqual(await fixture.run(), { kind: 'timed_out' });
});
