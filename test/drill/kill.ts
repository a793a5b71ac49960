// `drill kill`: the program is killed, at a random moment, at a sync of its database, or while it starts, and started
// again, over and over, under a steady mixture of work. Nothing that was answered may be lost, nothing done twice.
import { setTimeout as delay } from 'node:timers/promises';
import { type Driver, startDriver } from './driver.ts';
import { judgeBuilds, judgeCompiles, judgeDeploys, untilIdle } from './judge.ts';
import { createEachJudge } from './judge-each.ts';
import { lookUntil } from './look.ts';
import { findOrphans } from './orphans.ts';
import { inject, type Running } from './program.ts';
import { openRoom, type Room } from './room.ts';
import { type Scene, setScene } from './scene.ts';
import type { Chance } from './seed.ts';
import { createTable, type Table } from './table.ts';

const READY_MS = 5_000;
const ENGINE_BYTES = 2 * 1024 * 1024 * 1024;
/** A program that does nothing is not killed at a sync: then it is killed as it is. */
const SYNC_WAIT_MS = 6_000;

export type KillWishes = {
  times: number;
  chance: Chance;
  command: readonly string[];
  /** How long a program may serve between two kills. */
  livesMs: number;
  /** How long what is left over may take to go. */
  sweepMs: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

type Kills = { moment: number; sync: number; start: number };

export async function drillKill(wishes: KillWishes): Promise<Table> {
  const { chance, say } = wishes;
  const table = createTable(`drill kill --times ${wishes.times} --seed ${chance.seed}`, wishes.slack);
  const room = await openRoom({
    command: wishes.command,
    engine: { bytes: ENGINE_BYTES },
    receiver: { chance: chance.apart('receiver'), failing: 0.1 },
  });
  let running: Running | undefined;
  let driver: Driver | undefined;
  try {
    running = await room.program.start();
    const scene = await setScene(room);
    driver = startDriver(room, scene, chance);
    const kills: Kills = { moment: 0, sync: 0, start: 0 };
    const damage: string[] = [];
    const lost: string[] = [];
    const wrong: string[] = [];
    const judgeEach = createEachJudge(room, scene, driver);
    const ready: Running[] = [];
    for (let time = 1; time <= wishes.times && !wishes.signal.aborted; time++) {
      const how = await killOnce(wishes, room, running, kills, driver);
      await driver.backupDone();
      damage.push(...room.checkDatabaseFile());
      running = await room.program.start();
      ready.push(running);
      lost.push(...(await driver.ledger.check()));
      wrong.push(...(await judgeEach()));
      say(
        `kill ${time} ${how}; ready in ${Math.round(running.readyMs)} ms, ${driver.ledger.answered()} answered, lost ${lost.length}, wrong ${wrong.length}`,
      );
      driver.open();
    }
    await driver.stop();
    say('all kills done: letting the work come to its end');
    const stuck = await untilIdle(room, scene);
    lost.push(...(await driver.ledger.check(true)));

    table.tell('kills', kills.moment + kills.sync + kills.start);
    table.tell('  at a moment, at a sync, at the start', `${kills.moment}, ${kills.sync}, ${kills.start}`);
    table.tell('restarts', ready.length);
    table.atMost('slowest ready', Math.max(...ready.map(one => one.readyMs)), READY_MS, 'ms');
    table.none('damage in the database', damage);
    table.none('wrong right after a kill', wrong);
    await judge(room, scene, driver, { stuck, lost }, table);

    await running.kill('SIGTERM');
    running = await room.program.start();
    say('looking for what is left over');
    const instance = room.instance();
    const isPatient = wishes.sweepMs > 90_000;
    const orphans = await lookUntil(
      wishes.sweepMs,
      () => findOrphans(room, instance, isPatient),
      found => found.length === 0,
      1_000,
    );
    table.none('orphans', orphans);
    return table;
  } finally {
    await driver?.stop();
    await running?.kill();
    await room.close();
  }
}

async function judge(
  room: Room,
  scene: Scene,
  driver: Driver,
  { stuck, lost }: { stuck: string[]; lost: string[] },
  table: Table,
): Promise<void> {
  const { counts } = driver;
  table.tell('requests answered', driver.ledger.answered());
  table.none('  lost', lost);
  table.none('  defects', driver.defects);
  table.none(
    'ids given out twice',
    [...driver.ids].filter(([, times]) => times > 1).map(([id]) => id),
  );
  table.none('stuck', stuck);
  await judgeBuilds(room, scene, driver, table);
  await judgeCompiles(room, driver, table);
  await judgeDeploys(room, scene, table);
  table.tell(
    'uploads, settings, backups, cancels',
    Object.values({
      uploads: counts.uploads,
      settings: counts.settings,
      backups: counts.backups,
      cancels: counts.cancels,
    }).join(', '),
  );
}

/** Lets it live a while, then kills it in one of three ways; says which. */
async function killOnce(
  { chance, livesMs }: KillWishes,
  room: Room,
  running: Running,
  kills: Kills,
  driver: Driver,
): Promise<string> {
  const way = chance.pick(['moment', 'moment', 'moment', 'sync', 'sync', 'sync', 'start'] as const);
  const liveMs = chance.between(0, livesMs);
  const syncs = chance.between(1, 40);
  const startMs = chance.between(20, 1_200);
  kills[way] += 1;
  await delay(liveMs);
  if (way === 'sync') {
    const strace = await inject(running.pid, `fsync,fdatasync:signal=SIGKILL:when=${syncs}`);
    const patience = new AbortController();
    await Promise.race([
      running.ended,
      delay(SYNC_WAIT_MS, undefined, { signal: patience.signal }).catch(() => {}),
    ]);
    patience.abort();
    driver.shut();
    if (!running.hasEnded()) await running.kill();
    await strace.ended;
    return `at sync ${syncs} after ${liveMs} ms`;
  }
  await running.kill();
  driver.shut();
  if (way === 'moment') return `after ${liveMs} ms`;
  await room.program.killWhileStarting(startMs);
  return `after ${liveMs} ms, and ${startMs} ms into its start`;
}
