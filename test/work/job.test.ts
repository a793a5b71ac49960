// The lifecycle that builds and compiles share, with a scripted engine and row.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import type { Outcome } from '../../src/domain/container/verdict.ts';
import { EngineUnavailable } from '../../src/engine/engine.ts';
import { createLive } from '../../src/live.ts';
import { createLog } from '../../src/log.ts';
import { CannotRun, describeJob, type JobOptions, jobWork } from '../../src/work/job.ts';
import { openFixture } from '../store/fixture.ts';

type Script = {
  start?: (directory: string) => Promise<Outcome>;
  isRepeatable?: boolean;
  isCanceled?: boolean;
  /** Errors of the first calls that record the verdict. */
  recordErrors?: Error[];
};

/** Runs one job to its end. Returns what happened, in order. */
async function runScripted(script: Script) {
  using fixture = openFixture();
  const dataDirectory = dirname(fixture.path);
  const happened: string[] = [];
  const logged: string[] = [];
  const options = {
    db: fixture.db,
    dataDirectory,
    live: createLive(),
    log: createLog(line => logged.push(line), {}),
    stopping: new AbortController().signal,
    host: {
      reportUnavailable: () => happened.push('reports Docker unavailable'),
      engine: {
        removeContainer: async (name: string) => void happened.push(`removes ${name}`),
        removeVolume: async (name: string) => void happened.push(`removes ${name}`),
      },
    },
    disk: {
      hasFreeSpace: () => true,
      isNearlyFull: () => false,
      stopReason: () => undefined,
      evict: () => {},
    },
    settings: { timeoutMs: 60_000, logLimitBytes: 10_000 },
  } as unknown as JobOptions;
  const row = { id: 7n, nonce: 'abc', attempts: 2, spentMs: 5, startedAt: Date.now() };
  const base = describeJob(options, 'build', row, () => script.isCanceled ?? false);
  const errors = [...(script.recordErrors ?? [])];
  mkdirSync(join(dataDirectory, 'logs'), { recursive: true });
  const work = jobWork(options, 'build', {
    listWaiting: () => [{ id: 7n, owner: 'someone' }],
    claim: () => row,
    listRunning: () => [],
    createJob: () => ({
      ...base,
      secrets: ['very-secret'],
      resources: { containers: ['the container'], volumes: ['the volume'] },
      isRepeatable: script.isRepeatable ?? false,
      describeStep: () => undefined,
      start: () => script.start?.(base.directory) ?? Promise.resolve({ kind: 'lost' }),
      resume: async () => ({ kind: 'lost' }),
      classify: outcome => ({
        event: outcome.kind === 'not_started' ? 'requeue' : outcome.kind,
        error: 'reason' in outcome ? (outcome.reason ?? null) : null,
        lines: [`ended: ${outcome.kind}`, 'very-secret'],
      }),
      record: ({ event, error }, changes) => {
        const failure = errors.shift();
        if (failure) throw failure;
        happened.push(`records ${event} ${error} ${JSON.stringify(changes)}`);
      },
    }),
  });
  const run = work.listWaiting()[0]?.claim();
  assert.ok(run);
  let failure: unknown;
  await run(() => happened.push('releases its slot')).catch(error => {
    failure = error;
  });
  return { happened, logged, failure, log: readFileSync(base.logPath, 'utf8') };
}

const removal = ['removes the container', 'removes the volume'];
const passed = async (): Promise<Outcome> => ({
  kind: 'exit',
  step: 'command',
  status: 0,
  outOfMemory: false,
});

test('a job frees its slot, records its verdict, and removes what it had in Docker, in this order', async () => {
  const { happened, log } = await runScripted({ start: passed });
  assert.deepEqual(happened, ['releases its slot', 'records exit null {}', ...removal]);
  assert.equal(log, '[assay] ended: exit\n[assay] ***\n');
});

test('a repeatable job removes what it had in Docker before its verdict is recorded', async () => {
  const { happened } = await runScripted({ start: passed, isRepeatable: true });
  assert.deepEqual(happened, ['releases its slot', ...removal, 'records exit null {}']);
});

test('an attempt without a connection to Docker does not count, and one without an answer does', async () => {
  const unavailable = (reached: boolean) => () =>
    Promise.reject(new EngineUnavailable('Docker is unavailable.', reached));
  const notReached = await runScripted({ start: unavailable(false) });
  assert.deepEqual(notReached.happened, [
    'reports Docker unavailable',
    'releases its slot',
    ...removal,
    'records requeue null {"attempts":1,"spentMs":5}',
  ]);
  const notAnswered = await runScripted({ start: unavailable(true) });
  assert.ok(
    notAnswered.happened.includes('records lost Docker is unavailable. {}'),
    `${notAnswered.happened}`,
  );
});

test('a job that was canceled while Docker failed is canceled', async () => {
  for (const start of [
    async (): Promise<Outcome> => ({ kind: 'lost' }),
    () => Promise.reject(new EngineUnavailable('Docker is unavailable.', false)),
    () => Promise.reject(new Error('broken')),
  ]) {
    const { happened } = await runScripted({ start, isCanceled: true });
    assert.ok(happened.includes('records canceled null {}'), `${happened}`);
  }
});

test('a job that cannot run has a reason without host paths and secrets', async () => {
  const expected = await runScripted({
    start: () => Promise.reject(new CannotRun('There is no very-secret image.')),
  });
  assert.ok(
    expected.happened.includes('records cannot_run There is no *** image. {}'),
    `${expected.happened}`,
  );
  assert.deepEqual(expected.logged, []);
  const defect = await runScripted({
    start: directory => Promise.reject(new Error(`cannot read ${directory}`)),
  });
  const recorded = defect.happened.find(line => line.startsWith('records'));
  assert.equal(recorded, 'records cannot_run The service could not run it: cannot read DATA/jobs/build-7 {}');
  assert.match(defect.logged.join(), /job could not be run/);
});

test('on a full disk, a job removes what it had in Docker, and then records its verdict', async () => {
  const full = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  const once = await runScripted({ start: passed, recordErrors: [full] });
  assert.deepEqual(once.happened, ['releases its slot', ...removal, 'records exit null {}', ...removal]);
  assert.equal(once.log.match(/ended: exit/g)?.length, 1);
  const twice = await runScripted({ start: passed, recordErrors: [full, full] });
  assert.equal(twice.failure, full, 'its worker fails, and starts again later');
});
