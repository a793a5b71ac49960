// `drill load`: a very long queue, very many clients, very many IDs in one millisecond, a clock that jumps, and very
// many sign-ins. No status 500, no duplicate ID, response times close to those of an idle server, and bounded memory.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Db, openDb } from '../../../src/store/database/db.ts';
import { createVault } from '../../../src/store/database/vault.ts';
import { residentBytesOf } from '../../bench/support.ts';
import type { Answer } from '../../support/client.ts';
import { createRepository } from '../../support/repository.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import type { Random } from '../support/random.ts';
import { createTable, type Table } from '../support/table.ts';
import { type Call, callAll, callTogether, percentile, type Responses } from './callers.ts';
import { createClock } from './clock.ts';
import { fillQueue } from './queue.ts';
import { drillSignIns } from './sign-ins.ts';

export type LoadOptions = {
  random: Random;
  command: readonly string[];
  builds: number;
  callers: number;
  /** Response times below this are ignored, because a busy machine causes them too. */
  ignoredMs: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

const HOUR_MS = 3600_000;
const TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS;
const SEEN_MS = 60_000;
const IDS = 5_000;
const IDS_AT_ONCE = 100;
const MEMORY_BYTES = 512 * 1024 * 1024;
const MIB = 1024 * 1024;

export async function drillLoad(options: LoadOptions): Promise<Table> {
  const table = createTable(`drill load --seed ${options.random.seed}`, options.slack);
  giveOutIds(table);
  options.say('a clock that jumps');
  await jump(options, table);
  options.say(`${options.builds} builds in the queue`);
  await queue(options, table);
  options.say('password guessing');
  await drillSignIns({ ...options, guessesPerSecond: 400, forMs: 10_000 }, table);
  return table;
}

/**
 * Creates IDs through the store: from two connections, like a server and a command, in one millisecond of a stopped
 * clock; after a restart in the same millisecond; and after one with a clock that was set back.
 */
function giveOutIds(table: Table): void {
  const directory = mkdtempSync(join(tmpdir(), 'assay-ids-'));
  const now = Date.now();
  const ids: bigint[] = [];
  const giveOut = (at: number) => {
    const vault = createVault(randomBytes(32));
    const open = () => openDb(join(directory, 'ids.db'), vault, () => at);
    const [server, command] = [open(), open()];
    try {
      for (let given = 0; given < IDS; given += IDS_AT_ONCE)
        giveOutTo(ids, given % (2 * IDS_AT_ONCE) === 0 ? server : command);
    } finally {
      server.close();
      command.close();
    }
  };
  try {
    giveOut(now);
    giveOut(now);
    giveOut(now - HOUR_MS);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  table.report('store IDs in one millisecond, after a restart, an hour back', `${IDS}, ${IDS}, ${IDS}`);
  table.mustBeTrue(
    '  unique and increasing',
    ids.length === 3 * IDS && ids.every((id, at) => at === 0 || id > (ids[at - 1] as bigint)),
  );
}

const giveOutTo = (ids: bigint[], db: Db) =>
  db.write(() => {
    for (let count = 0; count < IDS_AT_ONCE; count++) ids.push(db.newId());
  });

async function makeProject(environment: DrillEnvironment): Promise<string> {
  createRepository(join(environment.sshd.repositoriesDirectory, 'load.git'), [
    { files: { 'README.md': 'Hello\n' } },
  ]);
  const made = await environment.ask('POST', '/projects', {
    name: 'Load',
    repository_url: environment.sshd.urlFor('load.git'),
  });
  environment.sshd.addKey(made.record.ssh_public_key as string);
  return made.record.id_str as string;
}

async function jump({ command }: LoadOptions, table: Table): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-clock-'));
  const clock = createClock(directory);
  const environment = await openEnvironment({ command, environment: clock.environment });
  const running = await environment.program.start();
  try {
    const projectId = await makeProject(environment);
    const path = `/projects/${projectId}`;
    const ids: bigint[] = [];
    const wrong: string[] = [];
    const note = (answer: Answer) => {
      if (answer.status === 201) ids.push(BigInt(answer.record.id_str as string));
      else wrong.push(`${answer.status} ${answer.text}`);
    };
    for (const [aheadMs, at] of [
      [0, 'now'],
      [-HOUR_MS, 'an hour back'],
      [TEN_YEARS_MS, 'ten years ahead'],
      [0, 'now again'],
    ] as const) {
      clock.set(aheadMs);
      for (let count = 0; count < 50; count++)
        note(await environment.ask('POST', `${path}/suites`, { name: `${at} ${count}`, command: 'true' }));
      const read = await environment.ask('GET', `${path}/suites?limit=1`);
      if (read.list[0]?.id_str !== String(ids.at(-1))) wrong.push(`${at}: the newest is not first`);
      // A program that ignores the set clock would prove nothing.
      const request = await environment.ask('POST', `${path}/build_requests`, { commit_ref: 'main' });
      note(request);
      const seenAt = Date.parse(request.record.created_at as string);
      if (!(Math.abs(seenAt - Date.now() - aheadMs) < SEEN_MS))
        wrong.push(`${at}: the program's time is ${request.record.created_at}`);
    }
    table.report('records created while the clock jumped', ids.length);
    table.mustBeEmpty('  wrong answers', wrong);
    table.mustBeTrue(
      '  IDs unique and increasing',
      ids.every((id, index) => index === 0 || id > (ids[index - 1] as bigint)),
    );
  } finally {
    await running.kill();
    await environment.close();
    clock.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function queue(options: LoadOptions, table: Table): Promise<void> {
  const { random } = options;
  const environment = await openEnvironment({
    command: options.command,
    environment: { ASSAY_NETWORK: 'none', ASSAY_CONCURRENCY: '1' },
  });
  let running = await environment.program.start();
  try {
    const projectId = await makeProject(environment);
    const path = `/projects/${projectId}`;
    const paths = [
      path,
      `${path}/suites`,
      `${path}/build_requests`,
      '/projects',
      '/whoami',
      `${path}/commits`,
    ];
    const read = (): Call => ({ method: 'GET', path: random.pick(paths) });
    const idle = await callAll(environment, { count: 4, each: 100, restMs: 20, random, next: read });
    const idleP99 = percentile(idle.times, 0.99);
    table.report('idle: p50, p99', `${percentile(idle.times, 0.5).toFixed(1)}, ${idleP99.toFixed(1)} ms`);

    await running.kill('SIGTERM');
    fillQueue(environment.data, BigInt(projectId), options.builds);
    running = await environment.program.start();
    table.report('builds in the queue', options.builds);
    table.report('  ready in', `${Math.round(running.readyMs)} ms`);
    await delay(2_000);
    const bound = Math.max(idleP99 * 10, options.ignoredMs);
    let number = 0;
    const mixed = (): Call =>
      random.happens(0.1)
        ? { method: 'PUT', path, form: { description: String(++number) } }
        : random.happens(0.05)
          ? { method: 'POST', path: `${path}/build_requests`, form: { commit_ref: 'main' } }
          : read();
    const few = await callAll(environment, { count: 4, each: 100, restMs: 20, random, next: mixed });
    reportTimes(table, 'few clients meanwhile', few, bound);
    options.say(`${options.callers} callers`);
    // Each as often as an open page: together, two processors can answer them easily.
    const many = await callAll(environment, {
      count: options.callers,
      each: 4,
      restMs: options.callers * 10,
      random,
      next: mixed,
    });
    reportTimes(table, `${options.callers} callers`, many, bound);
    options.say(`${options.callers} simultaneous clients`);
    await checkBurst(environment, options, table, mixed);
    table.atMost('memory', residentBytesOf(running.pid) / MIB, MEMORY_BYTES / MIB, 'MiB');
  } finally {
    await running.kill();
    await environment.close();
  }
}

/**
 * Simultaneous requests are answered one after another, so the last one waits for all others on any machine. A crowd
 * must cost no more than the same requests of one client in sequence, times the number of clients, and half as much
 * again.
 */
async function checkBurst(
  environment: DrillEnvironment,
  options: LoadOptions,
  table: Table,
  next: () => Call,
): Promise<void> {
  const { random, callers, ignoredMs } = options;
  const alone = await callAll(environment, { count: 1, each: 300, restMs: 0, random, next });
  const meanMs = alone.times.reduce((sum, ms) => sum + ms, 0) / alone.times.length;
  const { times, failures, statuses, elapsedMs } = await callTogether(environment, { count: callers, next });
  const name = `${callers} simultaneous clients`;
  table.report('one client, one call after another: mean', `${meanMs.toFixed(2)} ms`);
  table.report(`${name}: a call took`, `${(elapsedMs / callers).toFixed(2)} ms`);
  table.report('  p50', `${Math.round(percentile(times, 0.5))} ms`);
  const turnsMs = callers * meanMs * 1.5;
  table.atMost(
    '  p99, limit 1.5 times the sequential time',
    percentile(times, 0.99),
    Math.max(turnsMs, ignoredMs),
    'ms',
  );
  table.mustBeEmpty('  not answered', failures);
  table.mustBeEmpty('  answered with 500', statuses.has(500) ? [`${statuses.get(500)} times`] : []);
}

function reportTimes(table: Table, name: string, responses: Responses, bound: number): void {
  table.report(`${name}: answers`, responses.times.length);
  table.atMost('  p99, limit 10 times the idle one', percentile(responses.times, 0.99), bound, 'ms');
  table.mustBeEmpty('  not answered', responses.failures);
  table.mustBeEmpty(
    '  answered with 500',
    responses.statuses.has(500) ? [`${responses.statuses.get(500)} times`] : [],
  );
}
