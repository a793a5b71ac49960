// `drill load`: a queue of very many builds, very many callers, very many ids in one millisecond, a clock that jumps, very many sign-ins. No
// error 500, no id twice, answers nearly as quick as when nothing is going on, memory that stays bounded.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Db, openDb } from '../../src/store/database/db.ts';
import { createVault } from '../../src/store/database/vault.ts';
import { residentBytesOf } from '../bench/support.ts';
import type { Answer } from '../support/client.ts';
import { createRepository } from '../support/repository.ts';
import { type Call, callAll, callTogether, type Heard, percentile } from './callers.ts';
import { createClock } from './clock.ts';
import { fillQueue } from './queue.ts';
import { openRoom, type Room } from './room.ts';
import type { Chance } from './seed.ts';
import { drillSignIns } from './sign-ins.ts';
import { createTable, type Table } from './table.ts';

export type LoadWishes = {
  chance: Chance;
  command: readonly string[];
  builds: number;
  callers: number;
  /** A machine that is busy with something else slows answers too: below this it does not count. */
  unnoticedMs: number;
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

export async function drillLoad(wishes: LoadWishes): Promise<Table> {
  const table = createTable(`drill load --seed ${wishes.chance.seed}`, wishes.slack);
  giveOutIds(table);
  wishes.say('a clock that jumps');
  await jump(wishes, table);
  wishes.say(`${wishes.builds} builds in the queue`);
  await queue(wishes, table);
  wishes.say('strangers who guess passwords');
  await drillSignIns({ ...wishes, guessesPerSecond: 400, forMs: 10_000 }, table);
  return table;
}

/** Through the store: by two who have it open, as a server and a command beside it, in one millisecond of a clock that
 *  stands still; after a restart in the same millisecond; and after one with a clock that was put back. */
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
  table.tell('ids of the store in one millisecond, restarted, an hour back', `${IDS}, ${IDS}, ${IDS}`);
  table.holds(
    '  each once, and growing',
    ids.length === 3 * IDS && ids.every((id, at) => at === 0 || id > (ids[at - 1] as bigint)),
  );
}

const giveOutTo = (ids: bigint[], db: Db) =>
  db.write(() => {
    for (let count = 0; count < IDS_AT_ONCE; count++) ids.push(db.newId());
  });

async function makeProject(room: Room): Promise<string> {
  createRepository(join(room.sshd.repositoriesDirectory, 'load.git'), [
    { files: { 'README.md': 'Hello\n' } },
  ]);
  const made = await room.ask('POST', '/projects', {
    name: 'Load',
    repository_url: room.sshd.urlFor('load.git'),
  });
  room.sshd.addKey(made.record.ssh_public_key as string);
  return made.record.id_str as string;
}

async function jump({ command }: LoadWishes, table: Table): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'assay-clock-'));
  const clock = createClock(directory);
  const room = await openRoom({ command, environment: clock.environment });
  const running = await room.program.start();
  try {
    const projectId = await makeProject(room);
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
        note(await room.ask('POST', `${path}/suites`, { name: `${at} ${count}`, command: 'true' }));
      const read = await room.ask('GET', `${path}/suites?limit=1`);
      if (read.list[0]?.id_str !== String(ids.at(-1))) wrong.push(`${at}: the newest is not first`);
      // A program that did not see the clock that was set would prove nothing.
      const request = await room.ask('POST', `${path}/build_requests`, { commit_ref: 'main' });
      note(request);
      const seenAt = Date.parse(request.record.created_at as string);
      if (!(Math.abs(seenAt - Date.now() - aheadMs) < SEEN_MS))
        wrong.push(`${at}: the program takes it for ${request.record.created_at}`);
    }
    table.tell('records made while the clock jumped', ids.length);
    table.none('  wrong answers', wrong);
    table.holds(
      '  ids each once, and growing',
      ids.every((id, index) => index === 0 || id > (ids[index - 1] as bigint)),
    );
  } finally {
    await running.kill();
    await room.close();
    clock.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function queue(wishes: LoadWishes, table: Table): Promise<void> {
  const { chance } = wishes;
  const room = await openRoom({
    command: wishes.command,
    environment: { ASSAY_NETWORK: 'none', ASSAY_CONCURRENCY: '1' },
  });
  let running = await room.program.start();
  try {
    const projectId = await makeProject(room);
    const path = `/projects/${projectId}`;
    const paths = [
      path,
      `${path}/suites`,
      `${path}/build_requests`,
      '/projects',
      '/whoami',
      `${path}/commits`,
    ];
    const read = (): Call => ({ method: 'GET', path: chance.pick(paths) });
    const idle = await callAll(room, { count: 4, each: 100, restMs: 20, chance, next: read });
    const idleP99 = percentile(idle.times, 0.99);
    table.tell('idle: p50, p99', `${percentile(idle.times, 0.5).toFixed(1)}, ${idleP99.toFixed(1)} ms`);

    await running.kill('SIGTERM');
    fillQueue(room.data, BigInt(projectId), wishes.builds);
    running = await room.program.start();
    table.tell('builds in the queue', wishes.builds);
    table.tell('  ready in', `${Math.round(running.readyMs)} ms`);
    await delay(2_000);
    const bound = Math.max(idleP99 * 10, wishes.unnoticedMs);
    let number = 0;
    const mixed = (): Call =>
      chance.happens(0.1)
        ? { method: 'PUT', path, form: { description: String(++number) } }
        : chance.happens(0.05)
          ? { method: 'POST', path: `${path}/build_requests`, form: { commit_ref: 'main' } }
          : read();
    const few = await callAll(room, { count: 4, each: 100, restMs: 20, chance, next: mixed });
    judge(table, 'few callers beside it', few, bound);
    wishes.say(`${wishes.callers} callers`);
    // Each as often as a page that is left open: together as many as two processors answer with ease.
    const many = await callAll(room, {
      count: wishes.callers,
      each: 4,
      restMs: wishes.callers * 10,
      chance,
      next: mixed,
    });
    judge(table, `${wishes.callers} callers`, many, bound);
    wishes.say(`${wishes.callers} callers in one moment`);
    await judgeBurst(room, wishes, table, mixed);
    table.atMost('memory', residentBytesOf(running.pid) / MIB, MEMORY_BYTES / MIB, 'MiB');
  } finally {
    await running.kill();
    await room.close();
  }
}

/**
 * Callers who ask in the same moment are answered in turn: the last one waits for all the others, on any machine, and ten
 * times one answer's time says nothing of them. What is required is that a crowd costs no more than its turns: what one
 * caller takes who asks one thing after another, of the same mixture and beside the same queue, times their number, and
 * half as much again.
 */
async function judgeBurst(room: Room, wishes: LoadWishes, table: Table, next: () => Call): Promise<void> {
  const { chance, callers, unnoticedMs } = wishes;
  const alone = await callAll(room, { count: 1, each: 300, restMs: 0, chance, next });
  const meanMs = alone.times.reduce((sum, ms) => sum + ms, 0) / alone.times.length;
  const { times, failures, statuses, elapsedMs } = await callTogether(room, { count: callers, next });
  const name = `${callers} callers in one moment`;
  table.tell('one caller, one call after another: mean', `${meanMs.toFixed(2)} ms`);
  table.tell(`${name}: a call took`, `${(elapsedMs / callers).toFixed(2)} ms`);
  table.tell('  p50', `${Math.round(percentile(times, 0.5))} ms`);
  const turnsMs = callers * meanMs * 1.5;
  table.atMost(
    '  p99, against 1.5 times their turns',
    percentile(times, 0.99),
    Math.max(turnsMs, unnoticedMs),
    'ms',
  );
  table.none('  not answered', failures);
  table.none('  answered with 500', statuses.has(500) ? [`${statuses.get(500)} times`] : []);
}

function judge(table: Table, name: string, heard: Heard, bound: number): void {
  table.tell(`${name}: answers`, heard.times.length);
  table.atMost('  p99, against 10 times the idle one', percentile(heard.times, 0.99), bound, 'ms');
  table.none('  not answered', heard.failures);
  table.none('  answered with 500', heard.statuses.has(500) ? [`${heard.statuses.get(500)} times`] : []);
}
