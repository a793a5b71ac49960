// Many clients guess passwords through a proxy, some of which disconnect. Logs are read as fast as before, and a user
// with the right password can still sign in.
import { writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { openData } from '../../../src/store/data/data.ts';
import { buildLogPath } from '../../../src/store/data/paths.ts';
import { residentBytesOf } from '../../bench/support.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import type { Random } from '../support/random.ts';
import type { Table } from '../support/table.ts';
import { callAll, percentile } from './callers.ts';
import { fillQueue } from './queue.ts';

export type SignInOptions = {
  random: Random;
  command: readonly string[];
  /** How many passwords are guessed per second, and for how long. */
  guessesPerSecond: number;
  forMs: number;
  /** See LoadWishes. */
  ignoredMs: number;
};

const CONNECTIONS = 90;
const STRANGERS = 20;
const LOG_BYTES = 256 * 1024;
const HANG_UP_MS = 20;
const ANSWER_MS = 30_000;
const MEMORY_MIB = 512;
const MIB = 1024 * 1024;

export async function drillSignIns(options: SignInOptions, table: Table): Promise<void> {
  const { random, guessesPerSecond, forMs, ignoredMs } = options;
  const environment = await openEnvironment({
    command: options.command,
    environment: { ASSAY_NETWORK: 'none', ASSAY_TRUSTED_PROXIES: '127.0.0.1' },
  });
  const email = 'person@example.org';
  const added = JSON.parse(await environment.program.run('user', 'add', email, '--json')) as {
    password: string;
  };
  const running = await environment.program.start();
  const agent = new Agent({ keepAlive: true, ca: environment.client().ca, maxSockets: CONNECTIONS });
  try {
    const path = await makeLog(environment);
    const read = () => ({ method: 'GET', path });
    const readers = { count: 2, restMs: 40, random, next: read };
    const idle = await callAll(environment, { ...readers, each: 100 });
    table.report('log read, idle: p50, p99', figures(idle.times));
    const form = { email, password: added.password };
    const alone = await signInUntil(environment, form, performance.now() + 2_000);
    table.report('sign-in, idle: p50, p99', figures(alone.times));

    const guessed = new Map<string, number>();
    const until = performance.now() + forMs;
    const guesses = guess(environment, agent, options, until, guessed);
    const signIns = signInUntil(environment, form, until);
    const busy = await callAll(environment, { ...readers, each: Math.ceil(forMs / 40) });
    await guesses;
    const person = await signIns;

    table.report(`guesses, ${guessesPerSecond} per second`, describeCounts(guessed));
    table.report('log read meanwhile: p50, p99', figures(busy.times));
    const bound = Math.max(percentile(idle.times, 0.99) * 10, ignoredMs);
    table.atMost('  p99, limit 10 times the idle one', percentile(busy.times, 0.99), bound, 'ms');
    table.mustBeEmpty('  not answered', busy.failures);
    table.report('another user signed in', `${person.times.length} times: p50, p99 ${figures(person.times)}`);
    table.mustBeEmpty('  refused', person.refused);
    // Until somebody has guessed wrong, all are equal; from then on unknown callers come last.
    const turnsMs = (STRANGERS + 1) * percentile(alone.times, 0.5) * 2;
    table.atMost('  slowest, limit twice a turn of all callers', Math.max(...person.times), turnsMs, 'ms');
    table.atMost('  memory', residentBytesOf(running.pid) / MIB, MEMORY_MIB, 'MiB');
  } finally {
    agent.destroy();
    await running.kill();
    await environment.close();
  }
}

const figures = (times: readonly number[]) =>
  `${percentile(times, 0.5).toFixed(1)}, ${percentile(times, 0.99).toFixed(1)} ms`;

const describeCounts = (counts: ReadonlyMap<string, number>) =>
  [...counts].map(([what, count]) => `${what}: ${count}`).join(', ');

/** A build with a log, and the path of the log. */
async function makeLog(environment: DrillEnvironment): Promise<string> {
  const made = await environment.ask('POST', '/projects', {
    name: 'Logs',
    repository_url: 'git@git.invalid:a/b.git',
  });
  const projectId = made.record.id_str as string;
  fillQueue(environment.data, BigInt(projectId), 1);
  const db = openData(environment.data);
  try {
    const id = db.sqlite.prepare('SELECT id FROM builds LIMIT 1').pluck().get() as bigint;
    writeFileSync(buildLogPath(environment.data, id), 'a line of the log\n'.repeat(LOG_BYTES / 18));
    return `/projects/${projectId}/builds/${id}/log`;
  } finally {
    db.close();
  }
}

/** At a fixed rate, answered or not. Every fifth client disconnects. */
async function guess(
  environment: DrillEnvironment,
  agent: Agent,
  { guessesPerSecond, random }: SignInOptions,
  until: number,
  counts: Map<string, number>,
): Promise<void> {
  const under: Promise<void>[] = [];
  const beganAt = performance.now();
  for (let sent = 0; performance.now() < until; ) {
    for (; sent < ((performance.now() - beganAt) / 1000) * guessesPerSecond; sent++) {
      const stranger = random.between(1, STRANGERS);
      // Half of them try one account repeatedly, the others many accounts.
      const email = random.happens(0.5) ? 'person@example.org' : `user-${sent}@example.org`;
      const hangUpMs = random.happens(0.2) ? HANG_UP_MS : undefined;
      const answer = signIn(
        environment,
        agent,
        `198.51.100.${stranger}`,
        { email, password: 'a guess' },
        hangUpMs,
      );
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

/** A user with the right password and another address, repeatedly. */
async function signInUntil(
  environment: DrillEnvironment,
  form: { email: string; password: string },
  until: number,
) {
  const agent = new Agent({ keepAlive: true, ca: environment.client().ca, maxSockets: 1 });
  const times: number[] = [];
  const refused: string[] = [];
  try {
    while (performance.now() < until) {
      const startedAt = performance.now();
      const status = await signIn(environment, agent, '203.0.113.7', form).catch(
        (error: Error) => error.message,
      );
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
  environment: DrillEnvironment,
  agent: Agent,
  from: string,
  form: { email: string; password: string },
  hangUpMs?: number,
): Promise<number> {
  const { origin } = environment.client();
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
