// `drill swarm`: many jobs on three machines, while their engines are killed with SIGKILL and restarted, machines lose power
// or network, and nodes are drained, the manager's included. No verdict is lost or changes, no attempt runs twice, and
// nothing is left behind.
import { startWorkers } from '../../../src/work/workers.ts';
import { startSwarmAppliance } from '../../support/swarm-appliance.ts';
import { pollUntil } from '../support/poll.ts';
import type { Random } from '../support/random.ts';
import { createTable, type Table } from '../support/table.ts';
import { type Strike, startFaults, strike, untilBusy } from './faults.ts';
import { startJobs } from './jobs.ts';
import { findSwarmOrphans } from './orphans.ts';

const HEARTBEAT_MS = 1_000;
/** One minute in production. The drill does not measure it. */
const LOST_AFTER_MS = 8_000;
const SWEEP_MS = 120_000;
const MIB = 1024 ** 2;

export type SwarmDrillOptions = {
  jobs: number;
  random: Random;
  slack: number;
  signal: AbortSignal;
  /** Chosen faults, each while a job runs on its machine. Without them, random ones until all jobs have ended. */
  strikes?: readonly Strike[];
  /** How long the jobs may take altogether. */
  deadlineMs: number;
  lostAfterMs?: number;
  say(text: string): void;
};

export async function drillSwarm(options: SwarmDrillOptions): Promise<Table> {
  const { random, say } = options;
  const table = createTable(`drill swarm --jobs ${options.jobs} --seed ${random.seed}`, options.slack);
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(options.deadlineMs)]);
  const appliance = await startSwarmAppliance(
    { memoryBytes: 256 * MIB, network: 'none' },
    { heartbeatMs: HEARTBEAT_MS },
    work => startWorkers({ ...work, lostAfterMs: options.lostAfterMs ?? LOST_AFTER_MS }),
  );
  const { swarm } = appliance;
  try {
    const startedAt = performance.now();
    const jobs = await startJobs(appliance, options.jobs, signal);
    const strikes = new Map<string, number>();
    const note = ({ fault, machine, lastsMs }: Strike) => {
      const name = `${machine === 0 ? 'manager' : 'worker'} ${fault}`;
      strikes.set(name, (strikes.get(name) ?? 0) + 1);
      say(
        `${jobs.ended()} of ${jobs.total} ended; ${swarm.machines[machine]?.name} ${fault} for ${lastsMs} ms`,
      );
    };
    if (options.strikes)
      for (const one of options.strikes) {
        await untilBusy(swarm, one.machine, () => jobs.ended() >= jobs.total);
        note(one);
        await strike(swarm, one);
      }
    else {
      const faults = startFaults(swarm, random, note);
      await jobs.untilEnded();
      await faults.stop();
    }
    await jobs.requested;
    await jobs.untilEnded();
    say('looking at what the jobs did, and for left-overs');
    const results = await jobs.check();
    const orphans = await pollUntil(
      SWEEP_MS,
      () => findSwarmOrphans(appliance),
      found => found.length === 0,
      1_000,
    );
    jobs.close();

    table.report(
      'faults',
      [...strikes.values()].reduce((sum, one) => sum + one, 0),
    );
    for (const [name, times] of [...strikes].sort()) table.report(`  ${name}`, times);
    table.report('seconds', Math.round((performance.now() - startedAt) / 1_000));
    table.report(
      'jobs',
      Object.values(results.counts).reduce((sum, one) => sum + one, 0),
    );
    for (const [name, number] of Object.entries(results.counts)) table.report(`  ${name}`, number);
    for (const [name, number] of Object.entries(results.nodes).sort()) table.report(`  on ${name}`, number);
    table.report('runs', results.runs);
    table.mustBeTrue(
      'every job has a verdict or is listed below',
      results.total === jobs.total,
      `${results.total} of ${jobs.total} jobs were found`,
    );
    table.mustBeEmpty('jobs without a verdict', results.unfinished);
    table.mustBeEmpty('verdicts that changed', results.changed);
    table.mustBeEmpty('wrong verdicts', results.wrong);
    table.mustBeEmpty('attempts that ran twice', results.doubled);
    table.mustBeEmpty('orphans', orphans);
    return table;
  } finally {
    await appliance.close();
  }
}
