// Holds what became of all the work against what must have become of it: logs line by line, runs and pushes counted,
// events delivered. Reads through the public API, when everything has ended.
import type { Wire } from '../support/client.ts';
import { isFinished } from '../support/journey.ts';
import { type Driver, endsAfterCancel } from './driver.ts';
import { lookUntil } from './look.ts';
import type { Room } from './room.ts';
import { COMPILE_LINES, type Scene, SHOW_RUNS } from './scene.ts';
import type { Table } from './table.ts';

/** Longer than the third try of a webhook is put off. */
const STILL_MS = 180_000;
const RUN_MS = 60_000;

/** Everything that happened to the project after an event, oldest first. */
export async function readEvents(room: Room, scene: Scene, since = '0'): Promise<Wire[]> {
  const events: Wire[] = [];
  for (;;) {
    const after = events.at(-1)?.id_str ?? since;
    const page = (await room.ask('GET', `${scene.path}/events?limit=1000&after=${after}`)).list;
    events.push(...page);
    if (page.length < 1000) return events;
  }
}

/** Waits until nothing is under way any more; says what still is when nothing has ended or begun for too long. */
export async function untilIdle(room: Room, scene: Scene): Promise<string[]> {
  const look = async () => {
    const requests = (await room.ask('GET', `${scene.path}/build_requests?limit=1000`)).list;
    const deploys = (await room.ask('GET', `${scene.path}/deploys?limit=1000`)).list;
    const dependencies = (await room.ask('GET', '/dependencies?limit=1000')).list;
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
    for (const id of scene.notificationIds)
      for (const one of (await room.ask('GET', `${scene.path}/notifications/${id}/deliveries?limit=1000`))
        .list)
        if (one.state === 'pending') pending.push(`delivery ${one.id_str}`);
    return pending;
  };
  for (let before: string[] = []; ; ) {
    const busy = await lookUntil(
      STILL_MS,
      look,
      found => found.length === 0 || found.join() !== before.join(),
      500,
    );
    if (busy.length === 0 || busy.join() === before.join()) return busy;
    before = busy;
  }
}

/** Line by line: numbered from 1, none missing, none twice, in order. */
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

export async function judgeBuilds(room: Room, scene: Scene, driver: Driver, table: Table): Promise<void> {
  const events = await readEvents(room, scene);
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
    const found = await examineBuild(room, scene, driver, id);
    wrong.push(...found.wrong);
    missing.push(...found.missing);
    repeated.push(...found.repeated);
    lines += found.lines;
    if (last.build_state !== found.state)
      wrong.push(`the last event of build ${id} says ${last.build_state}, not ${found.state}`);
    const followed = driver.streamed.get(id);
    if (followed !== undefined && followed !== found.log) streams.push(differ(id, followed, found.log));
  }
  table.tell('builds', builds.size);
  table.none('builds with a wrong end', wrong);
  table.tell('log lines', lines);
  table.none('  missing', missing);
  table.none('  repeated', repeated);
  table.tell('streams followed over crashes', driver.streamed.size);
  table.none('  not as the log', streams);
  await judgeRuns(room, scene, builds, table);
  judgeEvents(room, events, table);
}

/** A build that has ended: with a verdict that it may have, and a log that is whole. */
export async function examineBuild(room: Room, scene: Scene, driver: Driver, id: string) {
  const build = (await room.ask('GET', `${scene.path}/builds/${id}`)).record;
  const state = build.build_state as string;
  const log = (await room.ask('GET', `${scene.path}/builds/${id}/log`)).text;
  const told = driver.cancels.get(id);
  const mayBe = !driver.cancels.has(id)
    ? ['passed']
    : told === undefined
      ? ['passed', 'canceled']
      : endsAfterCancel(told).filter(isFinished);
  const expected = scene.suites.find(suite => suite.id === build.suite_id_str)?.lines ?? 0;
  const { count, missing, repeated } = readNumbered(log, 'line ');
  return {
    state,
    log,
    lines: count,
    wrong: mayBe.includes(state)
      ? []
      : [`build ${id} is ${state}, and may be ${mayBe.join(' or ')}: ${log.slice(-300)}`],
    missing:
      missing > 0 || (state === 'passed' && count !== expected)
        ? [`build ${id}: ${count} of ${expected} lines`]
        : [],
    repeated: repeated > 0 ? [`build ${id}: ${repeated} lines again`] : [],
  };
}

function differ(id: string, followed: string, log: string): string {
  const at = [...log].findIndex((letter, index) => followed[index] !== letter);
  return `build ${id} at ${at}: streamed ${JSON.stringify(followed.slice(at, at + 60))}, kept ${JSON.stringify(log.slice(at, at + 60))}`;
}

/** Every command once: what the suites noted in their caches, which they show now. */
async function judgeRuns(room: Room, scene: Scene, builds: Map<string, Wire>, table: Table): Promise<void> {
  const runs: string[] = [];
  for (const suite of scene.suites)
    await room.ask('PUT', `${scene.path}/suites/${suite.id}`, { command: SHOW_RUNS });
  const request = (await room.ask('POST', `${scene.path}/build_requests`, { commit_ref: 'main' })).record;
  const shown = await lookUntil(
    RUN_MS,
    async () => (await room.ask('GET', `${scene.path}/build_requests/${request.id_str}`)).record,
    one => isFinished(one.build_state),
  );
  const all = (await room.ask('GET', `${scene.path}/commits/${shown.commit_id_str}/builds`)).list;
  for (const build of all.filter(one => one.build_request_id_str === request.id_str)) {
    const log = (await room.ask('GET', `${scene.path}/builds/${build.id_str}/log`)).text;
    runs.push(...log.split('\n').filter(line => /^\d+$/.test(line)));
  }
  table.tell('commands run', runs.length);
  table.none('  twice', listRepeated(runs));
  const ran = new Set(runs);
  table.none(
    '  never, though passed',
    [...builds].filter(([id, build]) => build.build_state === 'passed' && !ran.has(id)).map(([id]) => id),
  );
}

function judgeEvents(room: Room, events: Wire[], table: Table): void {
  const { got, troubles } = room.receiver;
  const lost = events.filter(event => !got.get(event.id_str as string)?.thanked);
  const ends = new Map<string, number>();
  for (const event of events) {
    const build = event.build as Wire | undefined;
    if (event.type !== 'build.finished' || !build) continue;
    ends.set(build.id_str as string, (ends.get(build.id_str as string) ?? 0) + 1);
  }
  table.tell('events', events.length);
  table.none(
    '  lost',
    lost.map(event => `${event.type} ${event.id_str}`),
  );
  table.none('  with two bodies', troubles);
  table.none(
    '  of an end told twice',
    [...ends].filter(([, times]) => times > 1).map(([id]) => `build ${id}`),
  );
  table.tell('  delivered more than once', [...got.values()].filter(one => one.times > 1).length);
}

export async function judgeCompiles(room: Room, driver: Driver, table: Table): Promise<void> {
  const wrong: string[] = [];
  for (const [id, { answered, open }] of driver.uploads) {
    const record = (await room.ask('GET', `/dependencies/${id}`)).record;
    const log = (await room.ask('GET', `/dependencies/${id}/log`)).text;
    const state = record.marketplace_state as string;
    if (state === 'waiting_archive_upload' && answered === undefined) continue;
    if (state !== 'compiled') {
      wrong.push(`dependency ${id} is ${state}: ${log.slice(-300)}`);
      continue;
    }
    const fits = [answered, ...open].some(number => {
      const numbered = readNumbered(log, `compile ${number} line `);
      return numbered.count === COMPILE_LINES && numbered.repeated === 0;
    });
    if (!fits && !log.includes('compiled before'))
      wrong.push(`the log of dependency ${id}: ${log.slice(0, 500)}`);
  }
  table.tell('dependencies compiled', driver.uploads.size);
  table.none('  not compiled as uploaded', wrong);
}

export const listPushedTwice = (scene: Scene): string[] =>
  Object.entries(scene.pushes()).flatMap(([place, hashes]) =>
    listRepeated(hashes).map(hash => `${place} ${hash}`),
  );

/** Each that is there more than once. */
export const listRepeated = (names: readonly string[]): string[] => [
  ...new Set(names.filter((name, at) => names.indexOf(name) !== at)),
];

export async function judgeDeploys(room: Room, scene: Scene, table: Table): Promise<void> {
  const listed = (await room.ask('GET', `${scene.path}/deploys?limit=1000`)).list;
  const commits = new Map(
    (await room.ask('GET', `${scene.path}/commits?limit=1000`)).list.map(one => [one.id_str, one.ref]),
  );
  const pushes = scene.pushes();
  const untrue: string[] = [];
  let deployed = 0;
  for (const { id_str: id, state } of listed) {
    const deploy = (await room.ask('GET', `${scene.path}/deploys/${id}`)).record;
    const place = deploy.deploy_strategy_id_str === scene.strategyId ? 'manual' : 'automatic';
    const isThere = pushes[place].includes(commits.get(deploy.commit_id_str) as string);
    if (state === 'deployed') deployed += 1;
    if ((state === 'deployed') !== isThere) {
      const log = (await room.ask('GET', `${scene.path}/deploys/${id}/log`)).text;
      // An older commit that a newer one overtook is refused, and says so.
      if (state === 'failed' && /already contains|not build on/.test(log)) continue;
      untrue.push(
        `deploy ${id} is ${state}, the commit is ${isThere ? '' : 'not '}there: ${log.slice(-300)}`,
      );
    }
  }
  table.tell('deploys', listed.length);
  table.tell('  deployed', deployed);
  table.none('  pushed twice', listPushedTwice(scene));
  table.none('  with a state that is not true', untrue);
}
