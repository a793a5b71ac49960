// The part of `drill kill` about triggers. While the program is killed and restarted, hours pass and commits are pushed:
// each planned time must have exactly one firing, and each push exactly one build request, whether its hook arrives once,
// twice or never. The program has no suites and no engine, so only the triggers matter.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Fields, Wire } from '../../support/client.ts';
import { postReceive } from '../../support/forge-hooks.ts';
import { isFinished } from '../../support/journey.ts';
import { addCommits, createRepository } from '../../support/repository.ts';
import { createClock, type DrillClock } from '../load/clock.ts';
import { isAway } from '../support/driver.ts';
import { Defect, type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Running } from '../support/program.ts';
import type { Random } from '../support/random.ts';
import type { Table } from '../support/table.ts';
import { type KillOptions, type Kills, killOnce } from './kill-once.ts';

const HOUR_MS = 3_600_000;
/** For a firing or a request to appear. Meanwhile the program is killed and restarted a few times. */
const APPEAR_MS = 90_000;
const BRANCH = 'refs/heads/main';

type Triggers = {
  path: string;
  repository: string;
  /** The hash that the first look finds. */
  first: string;
  schedules: string[];
  push: Wire;
  poll: Wire;
  other: Wire;
};
type Work = {
  planned: number[];
  pushed: string[];
  lostHooks: number;
  problems: string[];
  stop(): Promise<void>;
};

export async function killTriggers(options: KillOptions, table: Table): Promise<void> {
  const { random, say } = options;
  const directory = mkdtempSync(join(tmpdir(), 'assay-drill-clock-'));
  const clock = createClock(directory);
  const environment = await openEnvironment({ command: options.command, environment: clock.environment });
  let running: Running | undefined;
  let work: Work | undefined;
  try {
    running = await environment.program.start();
    // In the middle of an hour, so that none passes by itself.
    const start = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
    clock.set(start + HOUR_MS / 2 - Date.now());
    const triggers = await createTriggers(environment);
    work = startWork(environment, triggers, { clock, start }, random);
    const kills: Kills = { moment: 0, sync: 0, start: 0 };
    const damage: string[] = [];
    const times = Math.max(2, Math.ceil(options.times / 4));
    for (let time = 1; time <= times && !options.signal.aborted; time++) {
      const how = await killOnce(options, environment, running, kills);
      damage.push(...environment.checkDatabaseFile());
      running = await environment.program.start();
      say(`triggers: kill ${time} ${how}; ${work.planned.length} hours, ${work.pushed.length} pushes`);
    }
    await work.stop();
    table.report('kills while triggers fire', kills.moment + kills.sync + kills.start);
    table.mustBeEmpty('  database damage', damage);
    table.mustBeEmpty('  defects', work.problems);
    await checkFirings(environment, triggers, work, table);
  } finally {
    await work?.stop();
    await running?.kill();
    await environment.close();
    clock.close();
    rmSync(directory, { recursive: true });
  }
}

async function createTriggers(environment: DrillEnvironment): Promise<Triggers> {
  const make = async (at: string, form: Fields): Promise<Wire> => {
    const answer = await environment.ask('POST', at, form);
    if (answer.status >= 300) throw new Error(`POST ${at}: ${answer.text}`);
    return answer.record;
  };
  const repository = join(environment.sshd.repositoriesDirectory, 'triggers.git');
  const [first = ''] = createRepository(repository, [{ message: 'First\n' }]);
  const project = await make('/projects', {
    name: 'Triggers',
    repository_url: environment.sshd.urlFor('triggers.git'),
  });
  environment.sshd.addKey(project.ssh_public_key as string);
  const path = `/projects/${project.id_str}`;
  const trigger = (name: string, trigger_type: string, form: Fields = {}) =>
    make(`${path}/triggers`, { name, trigger_type, ...form });
  const hourly = { 'options[cron]': '0 * * * *', 'options[branch]': 'main' };
  const schedules = [
    await trigger('hourly', 'schedule', hourly),
    await trigger('in a zone', 'schedule', { ...hourly, 'options[time_zone]': 'Asia/Tokyo' }),
    await trigger('only new', 'schedule', { ...hourly, 'options[only_new]': 'true' }),
  ].map(({ id_str }) => id_str as string);
  const poll = await trigger('poll', 'poll', { 'options[interval]': '30' });
  // What is there at the first look is not built.
  await pollUntil(
    APPEAR_MS,
    () => listFirings(environment, path, poll.id_str as string),
    firings => firings.some(({ reason }) => reason === 'first_look'),
  );
  const push = await trigger('push', 'push');
  const other = await trigger('other', 'schedule', hourly);
  await environment.ask('PUT', `${path}/triggers/${other.id_str}`, { enabled: 'false' });
  return { path, repository, first, schedules, push, poll, other };
}

const listFirings = async (environment: DrillEnvironment, path: string, id: string): Promise<Wire[]> =>
  (await environment.ask('GET', `${path}/triggers/${id}/firings?limit=1000`)).list;

/** Lets hours pass and pushes commits, one after the other. */
function startWork(
  environment: DrillEnvironment,
  { path, repository, first, schedules, push, poll, other }: Triggers,
  { clock, start }: { clock: DrillClock; start: number },
  random: Random,
): Work {
  const stopped = new AbortController();
  const problems: string[] = [];
  const planned: number[] = [];
  const pushed: string[] = [];
  let lostHooks = 0;

  /** Undefined while the program is down. */
  const whenUp = async <T>(ask: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await ask();
    } catch (error) {
      if (!isAway(error)) throw error;
      await delay(50);
      return undefined;
    }
  };
  const appears = async (
    what: string,
    ids: readonly string[],
    isIt: (firing: Wire) => boolean,
    all: boolean,
  ) => {
    const find = async () => {
      const lists = await whenUp(() => Promise.all(ids.map(id => listFirings(environment, path, id))));
      return lists?.map(list => list.some(isIt)) ?? [];
    };
    const isFound = (found: boolean[]) =>
      found.length > 0 && (all ? !found.includes(false) : found.includes(true));
    if (!isFound(await pollUntil(APPEAR_MS, find, isFound, 100))) problems.push(`${what} did not appear`);
  };

  const passHour = async (own: Random) => {
    const time = (planned.at(-1) ?? start) + HOUR_MS;
    planned.push(time);
    clock.set(time + own.between(0, 2_000) - Date.now());
    // The program sleeps by the monotonic clock. A change of any trigger wakes it, as a minute would.
    const name = `other ${planned.length}`;
    await whenUp(() => environment.ask('PUT', `${path}/triggers/${other.id_str}`, { name }));
    const isIt = ({ planned_at }: Wire) => Date.parse(planned_at as string) === time;
    await appears(`a firing for ${new Date(time).toISOString()}`, schedules, isIt, true);
    await delay(own.between(0, 500));
  };

  let tip = first;
  const pushCommit = async (own: Random) => {
    const before = tip;
    const [after = ''] = addCommits(repository, [{ message: `Push ${pushed.length}\n` }]);
    tip = after;
    pushed.push(after);
    const hook = postReceive([{ ref: BRANCH, before, after }], push.secret as string);
    const send = () =>
      whenUp(async () => {
        const { status, text } = await environment.client().call('POST', `/hooks/${push.id_str}`, hook);
        if (status !== 200 && status !== 201) throw new Defect(`hook: ${status} ${text}`);
        return true;
      });
    // A forge sends a hook once. A person may send it again, whether it was answered or not.
    const isAnswered = own.happens(0.8) && (await send());
    if (own.happens(0.3)) await send();
    if (!isAnswered) lostHooks += 1;
    const isIt = (firing: Wire) => firing.after === after && firing.outcome === 'requested';
    await appears(`a request for push ${after}`, [push.id_str as string, poll.id_str as string], isIt, false);
    await delay(own.between(0, 500));
  };

  const loop = async (name: string, work: (own: Random) => Promise<void>) => {
    const own = random.apart(name);
    while (!stopped.signal.aborted && problems.length === 0)
      await work(own).catch(error => problems.push(`${name}: ${(error as Error).message}`));
  };
  const loops = [loop('hours', passHour), loop('pushes', pushCommit)];
  return {
    planned,
    pushed,
    problems,
    get lostHooks() {
      return lostHooks;
    },
    async stop() {
      stopped.abort();
      await Promise.all(loops);
    },
  };
}

async function checkFirings(
  environment: DrillEnvironment,
  { path, schedules, push, poll }: Triggers,
  work: Work,
  table: Table,
): Promise<void> {
  const requests = await pollUntil(
    APPEAR_MS,
    async () => (await environment.ask('GET', `${path}/build_requests?limit=1000`)).list,
    list => list.every(({ build_state }) => isFinished(build_state)),
  );
  const unfinished = requests.filter(({ build_state }) => !isFinished(build_state));
  const wrong: string[] = [];
  const requested: Wire[] = [];
  for (const id of schedules) {
    const firings = await listFirings(environment, path, id);
    requested.push(...firings.filter(({ outcome }) => outcome === 'requested'));
    const times = firings.map(({ planned_at }) => Date.parse(planned_at as string));
    for (const time of new Set([...work.planned, ...times])) {
      const count = times.filter(one => one === time).length;
      const isPlanned = work.planned.includes(time);
      if (count !== (isPlanned ? 1 : 0))
        wrong.push(`${id} at ${new Date(time).toISOString()}: ${count} firings`);
    }
  }
  table.report('planned times, for each of 3 schedules', work.planned.length);
  table.mustBeEmpty('  not fired exactly once', wrong);

  const found = [push, poll].map(({ id_str }) => listFirings(environment, path, id_str as string));
  const ofRefs = (await Promise.all(found)).flat().filter(({ outcome }) => outcome === 'requested');
  requested.push(...ofRefs);
  const hashes = ofRefs.map(({ after }) => after as string);
  table.report('pushes', work.pushed.length);
  table.report('  whose hook was not answered', work.lostHooks);
  table.mustBeEmpty(
    '  not requested exactly once',
    work.pushed.filter(hash => hashes.filter(one => one === hash).length !== 1),
  );
  const made = new Set(requested.map(firing => firing.build_request_id_str));
  table.mustBeEmpty(
    '  requests without a firing, or firings without a request',
    [...made.symmetricDifference(new Set(requests.map(({ id_str }) => id_str)))].map(String),
  );
  table.mustBeEmpty(
    '  requests that did not end',
    unfinished.map(({ id_str }) => String(id_str)),
  );
}
