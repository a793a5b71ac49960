// `drill kill`: the program is killed at random moments, at a sync of its database, or while it starts, and restarted,
// many times, under a steady mixture of work. Nothing that was answered may be lost, and nothing may be done twice.
import { type Driver, startDriver } from '../support/driver.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Running } from '../support/program.ts';
import { createTable, type Table } from '../support/table.ts';
import { createWorkload, type Workload } from '../support/workload.ts';
import { checkBuilds, checkCompiles, checkDeploys, untilIdle } from './checks.ts';
import { createCheckAfterKill } from './checks-after-kill.ts';
import { type KillOptions, type Kills, killOnce } from './kill-once.ts';
import { findOrphans } from './orphans.ts';
import { killTriggers } from './triggers.ts';

const READY_MS = 5_000;
const ENGINE_BYTES = 2 * 1024 * 1024 * 1024;

export async function drillKill(options: KillOptions): Promise<Table> {
  const { random, say } = options;
  const table = createTable(`drill kill --times ${options.times} --seed ${random.seed}`, options.slack);
  const environment = await openEnvironment({
    command: options.command,
    engine: { bytes: ENGINE_BYTES },
    receiver: { random: random.apart('receiver'), failing: 0.1 },
  });
  let running: Running | undefined;
  let driver: Driver | undefined;
  try {
    running = await environment.program.start();
    const workload = await createWorkload(environment);
    driver = startDriver(environment, workload, random);
    const kills: Kills = { moment: 0, sync: 0, start: 0 };
    const damage: string[] = [];
    const lost: string[] = [];
    const wrong: string[] = [];
    const checkAfterKill = createCheckAfterKill(environment, workload, driver);
    const ready: Running[] = [];
    for (let time = 1; time <= options.times && !options.signal.aborted; time++) {
      const how = await killOnce(options, environment, running, kills, driver);
      await driver.backupDone();
      damage.push(...environment.checkDatabaseFile());
      running = await environment.program.start();
      ready.push(running);
      lost.push(...(await driver.ledger.check()));
      wrong.push(...(await checkAfterKill()));
      say(
        `kill ${time} ${how}; ready in ${Math.round(running.readyMs)} ms, ${driver.ledger.answered()} answered, lost ${lost.length}, wrong ${wrong.length}`,
      );
      driver.open();
    }
    await driver.stop();
    say('all kills done: waiting for the work to finish');
    const stuck = await untilIdle(environment, workload);
    lost.push(...(await driver.ledger.check(true)));

    table.report('kills', kills.moment + kills.sync + kills.start);
    table.report('  at a moment, at a sync, at the start', `${kills.moment}, ${kills.sync}, ${kills.start}`);
    table.report('restarts', ready.length);
    table.atMost('slowest ready', Math.max(...ready.map(one => one.readyMs)), READY_MS, 'ms');
    table.mustBeEmpty('database damage', damage);
    table.mustBeEmpty('wrong right after a kill', wrong);
    await checkResults(environment, workload, driver, { stuck, lost }, table);

    await running.kill('SIGTERM');
    running = await environment.program.start();
    say('looking for left-overs');
    const instance = environment.instance();
    const isPatient = options.sweepMs > 90_000;
    const orphans = await pollUntil(
      options.sweepMs,
      () => findOrphans(environment, instance, isPatient),
      found => found.length === 0,
      1_000,
    );
    table.mustBeEmpty('orphans', orphans);
  } finally {
    await driver?.stop();
    await running?.kill();
    await environment.close();
  }
  await killTriggers(options, table);
  return table;
}

async function checkResults(
  environment: DrillEnvironment,
  workload: Workload,
  driver: Driver,
  { stuck, lost }: { stuck: string[]; lost: string[] },
  table: Table,
): Promise<void> {
  const { counts } = driver;
  table.report('requests answered', driver.ledger.answered());
  table.mustBeEmpty('  lost', lost);
  table.mustBeEmpty('  defects', driver.defects);
  table.mustBeEmpty(
    'duplicate IDs',
    [...driver.ids].filter(([, times]) => times > 1).map(([id]) => id),
  );
  table.mustBeEmpty('stuck', stuck);
  await checkBuilds(environment, workload, driver, table);
  await checkCompiles(environment, driver, table);
  await checkDeploys(environment, workload, table);
  table.report(
    'uploads, settings, backups, cancels',
    Object.values({
      uploads: counts.uploads,
      settings: counts.settings,
      backups: counts.backups,
      cancels: counts.cancels,
    }).join(', '),
  );
}
