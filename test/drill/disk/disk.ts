// `drill disk`: the data directory is on a small file system, which uploads, logs and builds fill to the last byte, and
// single writes fail. The API keeps reading, refuses changes with resource_temporary_unavailable, and recovers when
// there is space again.
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, statfsSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { Answer } from '../../support/client.ts';
import { isFinished, type ProjectJourney } from '../../support/journey.ts';
import { isAway } from '../support/driver.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import { createLedger, type Ledger } from '../support/ledger.ts';
import { pollUntil } from '../support/poll.ts';
import { inject, type Running } from '../support/program.ts';
import type { Random } from '../support/random.ts';
import { createTable, type Table } from '../support/table.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX } from '../support/workload.ts';
import { fillByBuilds, fillByCaches, requireRecovery } from './builds.ts';

export type DiskOptions = {
  random: Random;
  command: readonly string[];
  /** How many times single writes fail. */
  faults: number;
  /** See createTable. */
  slack: number;
  signal: AbortSignal;
  say(text: string): void;
};

const MIB = 1024 * 1024;
const ENGINE_BYTES = 512 * 1024 * 1024;
const DISK_BYTES = 128 * MIB;
const MIN_FREE_BYTES = 16 * MIB;
/** Free space is noticed within this time. */
const RECOVERY_MS = 10_000;
const END_MS = 120_000;

type Stage = {
  environment: DrillEnvironment;
  project: ProjectJourney;
  table: Table;
  options: DiskOptions;
  ledger: Ledger;
  filler: { leave(bytes: number): void; fill(): void; remove(): void };
};

const isRefused = (answer: Answer) =>
  answer.status === 403 && answer.text.includes('resource_temporary_unavailable');

/** Reads always work; a change is refused with the right error. */
async function requireRefusal(scenario: Stage, name: string): Promise<void> {
  const { environment, project, table } = scenario;
  const reads = await Promise.all(
    ['', '/suites', '/build_requests', '/events'].map(at => environment.ask('GET', project.path + at)),
  );
  table.mustBeEmpty(
    `${name}: reads that failed`,
    reads.filter(one => one.status !== 200).map(one => one.text),
  );
  const requested = await environment.ask('POST', `${project.path}/build_requests`, { commit_ref: 'main' });
  table.mustBeTrue(
    `${name}: a build request is refused with resource_temporary_unavailable`,
    isRefused(requested),
    requested.text,
  );
}

async function byUpload(scenario: Stage): Promise<void> {
  const { environment, table, filler } = scenario;
  const made = await environment.ask('POST', '/dependencies', {
    name: 'big',
    command: COMPILE_COMMAND,
    prefix: PREFIX,
  });
  const id = made.record.id_ref as string;
  filler.leave(MIN_FREE_BYTES + 8 * MIB);
  const archive = archiveOf(1, 40 * MIB);
  const upload = () =>
    environment.client().call('POST', `/dependencies/${id}/archive`, { as: environment.as, body: archive });
  const refused = await upload();
  table.mustBeTrue(
    'by an upload: refused with resource_temporary_unavailable',
    isRefused(refused),
    `${refused.status} ${refused.text}`,
  );
  const { record } = await environment.ask('GET', `/dependencies/${id}`);
  table.mustBeTrue(
    'by an upload: the dependency is unchanged',
    record.archive_file_size === null,
    inspect(record),
  );
  filler.leave(MIN_FREE_BYTES / 2);
  // Free space is measured once a second.
  await delay(1_500);
  await requireRefusal(scenario, 'nearly full');
  filler.remove();
  await requireRecovery(scenario, 'nearly full');
}

async function byLog(scenario: Stage): Promise<void> {
  const { environment, project, table, filler } = scenario;
  filler.leave(MIN_FREE_BYTES + 20 * MIB);
  const suiteId = await project.suite({
    command: 'yes "a line that goes on and on" | head -c 60000000; sleep 60',
  });
  const build = await project.buildOf(await project.request(), suiteId);
  const ended = await pollUntil(
    END_MS,
    () => project.buildRecord(build.id_str as string),
    one => isFinished(one.build_state),
  );
  const log = (await project.log(build.id_str as string)).slice(-300);
  filler.remove();
  const freedAt = performance.now();
  // Any change works here: it is accepted when the free space is noticed, and its time counts.
  await pollUntil(
    RECOVERY_MS * 4,
    () => environment.ask('DELETE', `${project.path}/suites/${suiteId}`),
    answer => answer.status === 200,
  );
  table.mustBeTrue(
    'by a log: the build is errored, with the reason',
    ended.build_state === 'errored' && log.includes('nearly full'),
    `${ended.build_state}: ${log}`,
  );
  await requireRecovery(scenario, 'by a log', freedAt);
}

async function toTheLastByte(scenario: Stage): Promise<void> {
  const { environment, project, table, filler } = scenario;
  const suiteId = await project.suite({
    command: 'for i in $(seq 1 100); do echo "line $i"; sleep 0.05; done',
  });
  const build = await project.buildOf(await project.request(), suiteId);
  await project.logHas(build.id_str as string, 'line 3');
  filler.fill();
  const answers: Answer[] = [];
  for (let number = 1; number <= 20; number++)
    answers.push(
      await environment.ask('PUT', project.path, { description: `${number} ${'x'.repeat(4_000)}` }),
    );
  const refused = answers.filter(isRefused).length;
  table.report('to the last byte: changes refused', `${refused} of ${answers.length}`);
  table.mustBeEmpty(
    'to the last byte: changes with another response',
    answers.filter(one => one.status !== 200 && !isRefused(one)).map(one => one.text),
  );
  await delay(1_500);
  await requireRefusal(scenario, 'to the last byte');
  filler.remove();
  await requireRecovery(scenario, 'to the last byte');
  const ended = await pollUntil(
    END_MS,
    () => project.buildRecord(build.id_str as string),
    one => isFinished(one.build_state),
  );
  table.mustBeTrue(
    'to the last byte: the running build ended, but not as failed',
    isFinished(ended.build_state) && ended.build_state !== 'failed',
    inspect(ended),
  );
  await project.ask('DELETE', `/suites/${suiteId}`);
}

const FAULTS = [
  'pwrite64:error=ENOSPC',
  'pwrite64:error=EIO',
  'fsync,fdatasync:error=EIO',
  'fsync,fdatasync:error=ENOSPC',
];

/**
 * Injects one kind of fault for a while, in the database's thread or in all threads. Then the program is killed, and
 * every answered change must be there.
 */
async function faults(scenario: Stage, running: Running): Promise<Running> {
  const { environment, project, table, options, ledger } = scenario;
  const { random } = options;
  const wrong: string[] = [];
  const damage: string[] = [];
  const lost: string[] = [];
  let refused = 0;
  let changed = 0;
  let slowestMs = 0;
  let current = running;
  const read = async () => (await environment.ask('GET', project.path)).record.description;
  let number = 0;
  const change = async () => {
    const value = `fault ${++number}`;
    await ledger.change('description', read, value, async () => {
      const answer = await environment
        .client()
        .call('PUT', project.path, { as: environment.as, form: { description: value } });
      if (answer.status === 200) return true;
      if (!isRefused(answer)) wrong.push(`${answer.status} ${answer.text}`);
      refused += 1;
      // A change that was refused because its sync failed may still exist after a crash: both are accepted.
      throw new Refused();
    });
    changed += 1;
  };
  let time = 0;
  while (time < options.faults && !options.signal.aborted) {
    time += 1;
    const rule = `${random.pick(FAULTS)}:when=${random.between(1, 20)}+${random.between(1, 5)}`;
    const threads = random.happens(0.5);
    options.say(`fault ${time}: ${rule}${threads ? ' in all threads' : ''}`);
    const request = await environment.ask('POST', `${project.path}/build_requests`, { commit_ref: 'main' });
    const strace = await inject(current.pid, rule, threads);
    for (let count = 0; count < 30; count++) await change().catch(ignoreRefused);
    await strace.detach();
    const freedAt = performance.now();
    await pollUntil(
      RECOVERY_MS * 4,
      () => change().then(() => true, ignoreRefused),
      done => done === true,
      100,
    );
    slowestMs = Math.max(slowestMs, performance.now() - freedAt);
    const state = await pollUntil(
      END_MS,
      async () =>
        request.status === 201
          ? (await project.requestRecord(request.record.id_str as string)).build_state
          : 'refused',
      one => isFinished(one),
    );
    if (!isFinished(state) || state === 'failed') wrong.push(`the build request during ${rule} is ${state}`);
    await current.kill();
    damage.push(...environment.checkDatabaseFile());
    current = await environment.program.start();
    lost.push(...(await ledger.check(true)));
  }
  table.report('faults at single writes', time);
  table.report('  changes accepted, refused', `${changed}, ${refused}`);
  table.mustBeEmpty('  answered otherwise', wrong);
  table.mustBeEmpty('  lost', lost);
  table.mustBeEmpty('  damage in the database', damage);
  table.atMost('  accepted again after', slowestMs, RECOVERY_MS, 'ms');
  return current;
}

class Refused extends Error {}
const ignoreRefused = (error: unknown): false => {
  if (!(error instanceof Refused) && !isAway(error)) throw error;
  return false;
};

const scenarios = {
  'by an upload': byUpload,
  'by a log': byLog,
  'to the last byte': toTheLastByte,
  'by builds': ({ options, table }: Stage) => fillByBuilds(options.command, table),
  'by caches': ({ options, table }: Stage) => fillByCaches(options.command, table),
};
type ScenarioName = keyof typeof scenarios;

export async function drillDisk(
  options: DiskOptions,
  chosen: readonly ScenarioName[] = Object.keys(scenarios) as ScenarioName[],
): Promise<Table> {
  const table = createTable(`drill disk --seed ${options.random.seed}`, options.slack);
  const data = mkdtempSync(join(tmpdir(), 'assay-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=0700`, 'tmpfs', data]);
  let environment: DrillEnvironment | undefined;
  let running: Running | undefined;
  try {
    environment = await openEnvironment({
      command: options.command,
      data,
      engine: { bytes: ENGINE_BYTES },
      environment: {
        ASSAY_NETWORK: 'none',
        ASSAY_MIN_FREE_DISK: String(MIN_FREE_BYTES),
        ASSAY_LOG_LIMIT: '4MiB',
      },
    });
    running = await environment.program.start();
    const project = await environment.journey().project();
    await project.suite({ command: 'seq 1 50' });
    await project.run();
    const scenario: Stage = {
      environment,
      project,
      table,
      options,
      ledger: createLedger(),
      filler: createFiller(data),
    };
    for (const name of chosen) {
      if (options.signal.aborted) break;
      options.say(name);
      await scenarios[name](scenario).catch(error =>
        table.mustBeTrue(`${name}: completed`, false, inspect(error)),
      );
      scenario.filler.remove();
    }
    running = await faults(scenario, running);
    await running.kill();
    table.mustBeEmpty('database damage at the end', environment.checkDatabaseFile());
    return table;
  } catch (error) {
    options.say(`the end of the program's log:\n${environment?.program.stderr().slice(-3_000)}`);
    throw error;
  } finally {
    await running?.kill();
    await environment?.close();
    execFileSync('umount', ['-l', data]);
    rmSync(data, { recursive: true, force: true });
  }
}

/** A file that takes as much of the file system as requested. */
function createFiller(data: string): Stage['filler'] {
  const path = join(data, 'filler');
  const take = (until: (freeBytes: number) => boolean) => {
    const file = openSync(path, 'a');
    try {
      for (;;) {
        const { bavail, bsize } = statfsSync(data);
        if (until(bavail * bsize)) return;
        writeSync(file, Buffer.alloc(Math.min(MIB, Math.max(4096, bavail * bsize))));
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    } finally {
      closeSync(file);
    }
  };
  return {
    leave(bytes) {
      writeFileSync(path, '');
      take(freeBytes => freeBytes <= bytes);
    },
    fill: () => take(() => false),
    remove: () => rmSync(path, { force: true }),
  };
}
