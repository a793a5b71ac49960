// Checks the results of all work at the end, through the public API: every log line by line, the number of runs and
// pushes, and the delivered events.
import type { Wire } from '../../support/client.ts';
import { isFinished } from '../../support/journey.ts';
import { type Driver, endsAfterCancel } from '../support/driver.ts';
import type { DrillEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Table } from '../support/table.ts';
import { COMPILE_LINES, SHOW_RUNS, type Workload } from '../support/workload.ts';

/** Longer than the delay before the third attempt of a webhook. */
const STILL_MS = 180_000;
const RUN_MS = 60_000;

/** All events of the project after an event, oldest first. */
export async function readEvents(
  environment: DrillEnvironment,
  workload: Workload,
  since = '0',
): Promise<Wire[]> {
  const events: Wire[] = [];
  for (;;) {
    const after = events.at(-1)?.id_str ?? since;
    const page = (await environment.ask('GET', `${workload.path}/events?limit=1000&after=${after}`)).list;
    events.push(...page);
    if (page.length < 1000) return events;
  }
}

/** Waits until no work is unfinished. Returns what is still unfinished if nothing changes for too long. */
export async function untilIdle(environment: DrillEnvironment, workload: Workload): Promise<string[]> {
  const look = async () => {
    const requests = (await environment.ask('GET', `${workload.path}/build_requests?limit=1000`)).list;
    const deploys = (await environment.ask('GET', `${workload.path}/deploys?limit=1000`)).list;
    const dependencies = (await environment.ask('GET', '/dependencies?limit=1000')).list;
    const busy = [
      ...requests
        .filter(one => !isFinished(one.build_state))
        .map(one => `request ${one.id_str} ${one.build_state}`),
      ...deploys
        .filter(one => one.state === 'enqueued' || one.state === 'deploying')
        .map(one => `deploy ${one.id_str} ${one.state}`),
      ...dependencies
        .filter(one => ['enqueued_for_compile', 'compiling'].includes(one.marketplace_state as string))
        .map(one => `dependency ${one.id_str} ${one.marketplace_state}`),
    ];
    if (busy.length > 0) return busy;
    const pending: string[] = [];
    for (const id of workload.notificationIds)
      for (const one of (
        await environment.ask('GET', `${workload.path}/notifications/${id}/deliveries?limit=1000`)
      ).list)
        if (one.state === 'pending') pending.push(`delivery ${one.id_str}`);
    return pending;
  };
  for (let before: string[] = []; ; ) {
    const busy = await pollUntil(
      STILL_MS,
      look,
      found => found.length === 0 || found.join() !== before.join(),
      500,
    );
    if (busy.length === 0 || busy.join() === before.join()) return busy;
    before = busy;
  }
}

/** Line by line: numbered from 1, in order, none missing, none repeated. */
export function readNumbered(
  log: string,
  prefix: string,
): { missing: number; repeated: number; count: number } {
  const seen = new Map<number, number>();
  let last = 0;
  let repeated = 0;
  for (const line of log.split('\n')) {
    if (!line.startsWith(prefix)) continue;
    const at = Number(line.slice(prefix.length));
    seen.set(at, (seen.get(at) ?? 0) + 1);
    if (at <= last) repeated += 1;
    last = Math.max(last, at);
  }
  return { missing: last - seen.size, repeated, count: seen.size };
}

export async function checkBuilds(
  environment: DrillEnvironment,
  workload: Workload,
  driver: Driver,
  table: Table,
): Promise<void> {
  const events = await readEvents(environment, workload);
  const builds = new Map<string, Wire>();
  for (const event of events) {
    const build = event.build as Wire | undefined;
    if (build) builds.set(build.id_str as string, build);
  }
  const wrong: string[] = [];
  const missing: string[] = [];
  const repeated: string[] = [];
  const streams: string[] = [];
  let lines = 0;
  for (const [id, last] of builds) {
    const found = await examineBuild(environment, workload, driver, id);
    wrong.push(...found.wrong);
    missing.push(...found.missing);
    repeated.push(...found.repeated);
    lines += found.lines;
    if (last.build_state !== found.state)
      wrong.push(`the last event of build ${id} says ${last.build_state}, not ${found.state}`);
    const followed = driver.streamed.get(id);
    if (followed !== undefined && followed !== found.log) streams.push(differ(id, followed, found.log));
  }
  table.report('builds', builds.size);
  table.mustBeEmpty('builds with a wrong result', wrong);
  table.report('log lines', lines);
  table.mustBeEmpty('  missing', missing);
  table.mustBeEmpty('  repeated', repeated);
  table.report('streams followed across crashes', driver.streamed.size);
  table.mustBeEmpty('  different from the log', streams);
  await checkRuns(environment, workload, builds, table);
  checkEvents(environment, events, table);
}

/** A finished build must have a possible result and a complete log. */
export async function examineBuild(
  environment: DrillEnvironment,
  workload: Workload,
  driver: Driver,
  id: string,
) {
  const build = (await environment.ask('GET', `${workload.path}/builds/${id}`)).record;
  const state = build.build_state as string;
  const log = (await environment.ask('GET', `${workload.path}/builds/${id}/log`)).text;
  const canceled = driver.cancels.get(id);
  const mayBe = !driver.cancels.has(id)
    ? ['passed']
    : canceled === undefined
      ? ['passed', 'canceled']
      : endsAfterCancel(canceled).filter(isFinished);
  const expected = workload.suites.find(suite => suite.id === build.suite_id_str)?.lines ?? 0;
  const { count, missing, repeated } = readNumbered(log, 'line ');
  return {
    state,
    log,
    lines: count,
    wrong: mayBe.includes(state)
      ? []
      : [`build ${id} is ${state}, expected ${mayBe.join(' or ')}: ${log.slice(-300)}`],
    missing:
      missing > 0 || (state === 'passed' && count !== expected)
        ? [`build ${id}: ${count} of ${expected} lines`]
        : [],
    repeated: repeated > 0 ? [`build ${id}: ${repeated} repeated lines`] : [],
  };
}

function differ(id: string, followed: string, log: string): string {
  const at = [...log].findIndex((letter, index) => followed[index] !== letter);
  return `build ${id} at ${at}: streamed ${JSON.stringify(followed.slice(at, at + 60))}, stored ${JSON.stringify(log.slice(at, at + 60))}`;
}

/** Every command ran once, according to what the suites recorded in their caches. */
async function checkRuns(
  environment: DrillEnvironment,
  workload: Workload,
  builds: Map<string, Wire>,
  table: Table,
): Promise<void> {
  const runs: string[] = [];
  for (const suite of workload.suites)
    await environment.ask('PUT', `${workload.path}/suites/${suite.id}`, { command: SHOW_RUNS });
  const request = (await environment.ask('POST', `${workload.path}/build_requests`, { commit_ref: 'main' }))
    .record;
  const shown = await pollUntil(
    RUN_MS,
    async () => (await environment.ask('GET', `${workload.path}/build_requests/${request.id_str}`)).record,
    one => isFinished(one.build_state),
  );
  const all = (await environment.ask('GET', `${workload.path}/commits/${shown.commit_id_str}/builds`)).list;
  for (const build of all.filter(one => one.build_request_id_str === request.id_str)) {
    const log = (await environment.ask('GET', `${workload.path}/builds/${build.id_str}/log`)).text;
    runs.push(...log.split('\n').filter(line => /^\d+$/.test(line)));
  }
  table.report('commands run', runs.length);
  table.mustBeEmpty('  twice', listRepeated(runs));
  const ran = new Set(runs);
  table.mustBeEmpty(
    '  never, though passed',
    [...builds].filter(([id, build]) => build.build_state === 'passed' && !ran.has(id)).map(([id]) => id),
  );
}

function checkEvents(environment: DrillEnvironment, events: Wire[], table: Table): void {
  const { received, problems } = environment.receiver;
  const lost = events.filter(event => !received.get(event.id_str as string)?.thanked);
  const ends = new Map<string, number>();
  for (const event of events) {
    const build = event.build as Wire | undefined;
    if (event.type !== 'build.finished' || !build) continue;
    ends.set(build.id_str as string, (ends.get(build.id_str as string) ?? 0) + 1);
  }
  table.report('events', events.length);
  table.mustBeEmpty(
    '  lost',
    lost.map(event => `${event.type} ${event.id_str}`),
  );
  table.mustBeEmpty('  with two bodies', problems);
  table.mustBeEmpty(
    '  end reported twice',
    [...ends].filter(([, times]) => times > 1).map(([id]) => `build ${id}`),
  );
  table.report('  delivered more than once', [...received.values()].filter(one => one.times > 1).length);
}

export async function checkCompiles(
  environment: DrillEnvironment,
  driver: Driver,
  table: Table,
): Promise<void> {
  const wrong: string[] = [];
  for (const [id, { answered, open }] of driver.uploads) {
    const record = (await environment.ask('GET', `/dependencies/${id}`)).record;
    const log = (await environment.ask('GET', `/dependencies/${id}/log`)).text;
    const state = record.marketplace_state as string;
    if (state === 'waiting_archive_upload' && answered === undefined) continue;
    if (state !== 'compiled') {
      wrong.push(`dependency ${id} is ${state}: ${log.slice(-300)}`);
      continue;
    }
    const numbers = [answered, ...open];
    const fits = numbers.some(number => {
      const numbered = readNumbered(log, `compile ${number} line `);
      return numbered.count === COMPILE_LINES && numbered.repeated === 0;
    });
    if (!fits && !log.includes('compiled before'))
      wrong.push(`dependency ${id} after upload ${numbers.join(' or ')}: ${log}`);
  }
  table.report('dependencies compiled', driver.uploads.size);
  table.mustBeEmpty('  not compiled as uploaded', wrong);
}

export const listPushedTwice = (workload: Workload): string[] =>
  Object.entries(workload.pushes()).flatMap(([place, hashes]) =>
    listRepeated(hashes).map(hash => `${place} ${hash}`),
  );

/** The entries that occur more than once. */
export const listRepeated = (names: readonly string[]): string[] => [
  ...new Set(names.filter((name, at) => names.indexOf(name) !== at)),
];

export async function checkDeploys(
  environment: DrillEnvironment,
  workload: Workload,
  table: Table,
): Promise<void> {
  const listed = (await environment.ask('GET', `${workload.path}/deploys?limit=1000`)).list;
  const commits = new Map(
    (await environment.ask('GET', `${workload.path}/commits?limit=1000`)).list.map(one => [
      one.id_str,
      one.ref,
    ]),
  );
  const pushes = workload.pushes();
  const untrue: string[] = [];
  let deployed = 0;
  for (const { id_str: id, state } of listed) {
    const deploy = (await environment.ask('GET', `${workload.path}/deploys/${id}`)).record;
    const place = deploy.deploy_strategy_id_str === workload.strategyId ? 'manual' : 'automatic';
    const isThere = pushes[place].includes(commits.get(deploy.commit_id_str) as string);
    if (state === 'deployed') deployed += 1;
    if ((state === 'deployed') !== isThere) {
      const log = (await environment.ask('GET', `${workload.path}/deploys/${id}/log`)).text;
      // An older commit that a newer one overtook is refused, with the reason.
      if (state === 'failed' && /already contains|not build on/.test(log)) continue;
      untrue.push(
        `deploy ${id} is ${state}, the commit is ${isThere ? '' : 'not '}there: ${log.slice(-300)}`,
      );
    }
  }
  table.report('deploys', listed.length);
  table.report('  deployed', deployed);
  table.mustBeEmpty('  pushed twice', listPushedTwice(workload));
  table.mustBeEmpty('  with a wrong state', untrue);
}
