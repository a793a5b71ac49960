// Strangers who guess passwords as fast as they can, from many addresses behind a proxy, some of whom hang up: logs are
// read as fast as before, and somebody who knows the password signs in meanwhile.
import { writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { openData } from '../../src/store/data/data.ts';
import { buildLogPath } from '../../src/store/data/paths.ts';
import { residentBytesOf } from '../bench/support.ts';
import { callAll, percentile } from './callers.ts';
import { fillQueue } from './queue.ts';
import { openRoom, type Room } from './room.ts';
import type { Chance } from './seed.ts';
import type { Table } from './table.ts';

export type SignInOptions = {
  chance: Chance;
  command: readonly string[];
  /** How many passwords are guessed in a second, and for how long. */
  guessesPerSecond: number;
  forMs: number;
  /** See LoadWishes. */
  unnoticedMs: number;
};

const CONNECTIONS = 90;
const STRANGERS = 20;
const LOG_BYTES = 256 * 1024;
const HANG_UP_MS = 20;
const ANSWER_MS = 30_000;
const MEMORY_MIB = 512;
const MIB = 1024 * 1024;

export async function drillSignIns(options: SignInOptions, table: Table): Promise<void> {
  const { chance, guessesPerSecond, forMs, unnoticedMs } = options;
  const room = await openRoom({
    command: options.command,
    environment: { ASSAY_NETWORK: 'none', ASSAY_TRUSTED_PROXIES: '127.0.0.1' },
  });
  const email = 'person@example.org';
  const added = JSON.parse(await room.program.run('user', 'add', email, '--json')) as { password: string };
  const running = await room.program.start();
  const agent = new Agent({ keepAlive: true, ca: room.client().ca, maxSockets: CONNECTIONS });
  try {
    const path = await makeLog(room);
    const read = () => ({ method: 'GET', path });
    const readers = { count: 2, restMs: 40, chance, next: read };
    const idle = await callAll(room, { ...readers, each: 100 });
    table.tell('log read, idle: p50, p99', figures(idle.times));
    const form = { email, password: added.password };
    const alone = await signInUntil(room, form, performance.now() + 2_000);
    table.tell('sign-in, idle: p50, p99', figures(alone.times));

    const guessed = new Map<string, number>();
    const until = performance.now() + forMs;
    const guesses = guess(room, agent, options, until, guessed);
    const signIns = signInUntil(room, form, until);
    const busy = await callAll(room, { ...readers, each: Math.ceil(forMs / 40) });
    await guesses;
    const person = await signIns;

    table.tell(`guesses, ${guessesPerSecond} in a second`, describeCounts(guessed));
    table.tell('log read meanwhile: p50, p99', figures(busy.times));
    const bound = Math.max(percentile(idle.times, 0.99) * 10, unnoticedMs);
    table.atMost('  p99, against 10 times the idle one', percentile(busy.times, 0.99), bound, 'ms');
    table.none('  not answered', busy.failures);
    table.tell('somebody else signed in', `${person.times.length} times: p50, p99 ${figures(person.times)}`);
    table.none('  refused', person.refused);
    // At first nobody has guessed wrong, and everybody has a turn; from then on strangers come last.
    const turnsMs = (STRANGERS + 1) * percentile(alone.times, 0.5) * 2;
    table.atMost('  slowest, against twice a turn of everybody', Math.max(...person.times), turnsMs, 'ms');
    table.atMost('  memory', residentBytesOf(running.pid) / MIB, MEMORY_MIB, 'MiB');
  } finally {
    agent.destroy();
    await running.kill();
    await room.close();
  }
}

const figures = (times: readonly number[]) =>
  `${percentile(times, 0.5).toFixed(1)}, ${percentile(times, 0.99).toFixed(1)} ms`;

const describeCounts = (counts: ReadonlyMap<string, number>) =>
  [...counts].map(([what, count]) => `${what}: ${count}`).join(', ');

/** A build with a log, and the path to read it from. */
async function makeLog(room: Room): Promise<string> {
  const made = await room.ask('POST', '/projects', {
    name: 'Logs',
    repository_url: 'git@git.invalid:a/b.git',
  });
  const projectId = made.record.id_str as string;
  fillQueue(room.data, BigInt(projectId), 1);
  const db = openData(room.data);
  try {
    const id = db.sqlite.prepare('SELECT id FROM builds LIMIT 1').pluck().get() as bigint;
    writeFileSync(buildLogPath(room.data, id), 'a line of the log\n'.repeat(LOG_BYTES / 18));
    return `/projects/${projectId}/builds/${id}/log`;
  } finally {
    db.close();
  }
}

/** At a fixed rate, whether they are answered or not. Every fifth hangs up. */
async function guess(
  room: Room,
  agent: Agent,
  { guessesPerSecond, chance }: SignInOptions,
  until: number,
  counts: Map<string, number>,
): Promise<void> {
  const under: Promise<void>[] = [];
  const beganAt = performance.now();
  for (let sent = 0; performance.now() < until; ) {
    for (; sent < ((performance.now() - beganAt) / 1000) * guessesPerSecond; sent++) {
      const stranger = chance.between(1, STRANGERS);
      // Half of them try one account again and again, the others one after another.
      const email = chance.happens(0.5) ? 'person@example.org' : `user-${sent}@example.org`;
      const hangUpMs = chance.happens(0.2) ? HANG_UP_MS : undefined;
      const answer = signIn(room, agent, `198.51.100.${stranger}`, { email, password: 'a guess' }, hangUpMs);
      const count = (what: string) => counts.set(what, (counts.get(what) ?? 0) + 1);
      under.push(
        answer.then(
          status => void count(String(status)),
          () => void count(hangUpMs === undefined ? 'not answered' : 'hung up'),
        ),
      );
    }
    await delay(5);
  }
  await Promise.all(under);
}

/** Somebody who knows the password, from an address of their own, again and again. */
async function signInUntil(room: Room, form: { email: string; password: string }, until: number) {
  const agent = new Agent({ keepAlive: true, ca: room.client().ca, maxSockets: 1 });
  const times: number[] = [];
  const refused: string[] = [];
  try {
    while (performance.now() < until) {
      const startedAt = performance.now();
      const status = await signIn(room, agent, '203.0.113.7', form).catch((error: Error) => error.message);
      times.push(performance.now() - startedAt);
      if (status !== 303) refused.push(String(status));
      await delay(200);
    }
  } finally {
    agent.destroy();
  }
  return { times, refused };
}

function signIn(
  room: Room,
  agent: Agent,
  from: string,
  form: { email: string; password: string },
  hangUpMs?: number,
): Promise<number> {
  const { origin } = room.client();
  const { hostname, port } = new URL(origin);
  const headers = { origin, 'x-forwarded-for': from, 'content-type': 'application/x-www-form-urlencoded' };
  return new Promise((resolve, reject) => {
    const outgoing = request(
      { agent, hostname, port, method: 'POST', path: '/ui/sign-in', headers },
      incoming => {
        incoming.resume();
        incoming.on('end', () => resolve(incoming.statusCode ?? 0));
        incoming.on('error', reject);
      },
    );
    outgoing.setTimeout(hangUpMs ?? ANSWER_MS, () => outgoing.destroy(new Error('no answer')));
    outgoing.on('error', reject);
    outgoing.end(new URLSearchParams(form).toString());
  });
}
