// `drill disk`: the data directory on a small file system, filled by an upload, a log, a build, to the last byte, and made
// to fail at single writes. The API goes on reading, refuses changes with resource_temporary_unavailable, and recovers by
// itself when there is room again.
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, statfsSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { Answer } from '../support/client.ts';
import { createJourney, isFinished, type ProjectJourney } from '../support/journey.ts';
import { fillByBuilds, fillByCaches, requireRecovery } from './disk-of-builds.ts';
import { isAway } from './driver.ts';
import { createLedger, type Ledger } from './ledger.ts';
import { lookUntil } from './look.ts';
import { inject, type Running } from './program.ts';
import { openRoom, type Room } from './room.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX } from './scene.ts';
import type { Chance } from './seed.ts';
import { createTable, type Table } from './table.ts';

export type DiskWishes = {
  chance: Chance;
  command: readonly string[];
  /** How often single writes are made to fail. */
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
/** Room is noticed within this time. */
const RECOVERY_MS = 10_000;
const END_MS = 120_000;

type Stage = {
  room: Room;
  project: ProjectJourney;
  table: Table;
  wishes: DiskWishes;
  ledger: Ledger;
  filler: { leave(bytes: number): void; fill(): void; remove(): void };
};

const isRefused = (answer: Answer) =>
  answer.status === 403 && answer.text.includes('resource_temporary_unavailable');

/** Reading goes on whatever the disk is like; a change is refused in the right words. */
async function requireRefusal(stage: Stage, name: string): Promise<void> {
  const { room, project, table } = stage;
  const reads = await Promise.all(
    ['', '/suites', '/build_requests', '/events'].map(at => room.ask('GET', project.path + at)),
  );
  table.none(
    `${name}: reads that failed`,
    reads.filter(one => one.status !== 200).map(one => one.text),
  );
  const asked = await room.ask('POST', `${project.path}/build_requests`, { commit_ref: 'main' });
  table.holds(`${name}: a build request is refused as the contract says`, isRefused(asked), asked.text);
}

async function byUpload(stage: Stage): Promise<void> {
  const { room, table, filler } = stage;
  const made = await room.ask('POST', '/dependencies', {
    name: 'big',
    command: COMPILE_COMMAND,
    prefix: PREFIX,
  });
  const id = made.record.id_ref as string;
  filler.leave(MIN_FREE_BYTES + 8 * MIB);
  const archive = archiveOf(1, 40 * MIB);
  const upload = () =>
    room.client().call('POST', `/dependencies/${id}/archive`, { as: room.as, body: archive });
  const refused = await upload();
  table.holds(
    'by an upload: refused as the contract says',
    isRefused(refused),
    `${refused.status} ${refused.text}`,
  );
  const { record } = await room.ask('GET', `/dependencies/${id}`);
  table.holds(
    'by an upload: the dependency is as it was',
    record.archive_file_size === null,
    inspect(record),
  );
  filler.leave(MIN_FREE_BYTES / 2);
  // The room is measured once a second.
  await delay(1_500);
  await requireRefusal(stage, 'nearly full');
  filler.remove();
  await requireRecovery(stage, 'nearly full');
}

async function byLog(stage: Stage): Promise<void> {
  const { room, project, table, filler } = stage;
  filler.leave(MIN_FREE_BYTES + 20 * MIB);
  const suiteId = await project.suite({
    command: 'yes "a line that goes on and on" | head -c 60000000; sleep 60',
  });
  const build = await project.buildOf(await project.request(), suiteId);
  const ended = await lookUntil(
    END_MS,
    () => project.buildRecord(build.id_str as string),
    one => isFinished(one.build_state),
  );
  const log = (await project.log(build.id_str as string)).slice(-300);
  filler.remove();
  const roomAt = performance.now();
  // A change like any other, which is taken when the room has been noticed: its time counts.
  await lookUntil(
    RECOVERY_MS * 4,
    () => room.ask('DELETE', `${project.path}/suites/${suiteId}`),
    answer => answer.status === 200,
  );
  table.holds(
    'by a log: the build is errored and says so',
    ended.build_state === 'errored' && log.includes('nearly full'),
    `${ended.build_state}: ${log}`,
  );
  await requireRecovery(stage, 'by a log', roomAt);
}

async function toTheLastByte(stage: Stage): Promise<void> {
  const { room, project, table, filler } = stage;
  const suiteId = await project.suite({
    command: 'for i in $(seq 1 100); do echo "line $i"; sleep 0.05; done',
  });
  const build = await project.buildOf(await project.request(), suiteId);
  await project.logHas(build.id_str as string, 'line 3');
  filler.fill();
  const answers: Answer[] = [];
  for (let number = 1; number <= 20; number++)
    answers.push(await room.ask('PUT', project.path, { description: `${number} ${'x'.repeat(4_000)}` }));
  const refused = answers.filter(isRefused).length;
  table.tell('to the last byte: changes refused', `${refused} of ${answers.length}`);
  table.none(
    'to the last byte: changes answered otherwise',
    answers.filter(one => one.status !== 200 && !isRefused(one)).map(one => one.text),
  );
  await delay(1_500);
  await requireRefusal(stage, 'to the last byte');
  filler.remove();
  await requireRecovery(stage, 'to the last byte');
  const ended = await lookUntil(
    END_MS,
    () => project.buildRecord(build.id_str as string),
    one => isFinished(one.build_state),
  );
  table.holds(
    'to the last byte: the running build ended, and was not failed',
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

/** One kind of fault for a while, in the database's thread or in all; then the program is killed, and all is as answered. */
async function faults(stage: Stage, running: Running): Promise<Running> {
  const { room, project, table, wishes, ledger } = stage;
  const { chance } = wishes;
  const wrong: string[] = [];
  const damage: string[] = [];
  const lost: string[] = [];
  let refused = 0;
  let changed = 0;
  let slowestMs = 0;
  let current = running;
  const read = async () => (await room.ask('GET', project.path)).record.description;
  let number = 0;
  const change = async () => {
    const value = `fault ${++number}`;
    await ledger.change('description', read, value, async () => {
      const answer = await room
        .client()
        .call('PUT', project.path, { as: room.as, form: { description: value } });
      if (answer.status === 200) return true;
      if (!isRefused(answer)) wrong.push(`${answer.status} ${answer.text}`);
      refused += 1;
      // What was refused while its sync failed may still be found after a crash: it is left open.
      throw new Refused();
    });
    changed += 1;
  };
  let time = 0;
  while (time < wishes.faults && !wishes.signal.aborted) {
    time += 1;
    const rule = `${chance.pick(FAULTS)}:when=${chance.between(1, 20)}+${chance.between(1, 5)}`;
    const threads = chance.happens(0.5);
    wishes.say(`fault ${time}: ${rule}${threads ? ' in all threads' : ''}`);
    const request = await room.ask('POST', `${project.path}/build_requests`, { commit_ref: 'main' });
    const strace = await inject(current.pid, rule, threads);
    for (let count = 0; count < 30; count++) await change().catch(ignoreRefused);
    await strace.detach();
    const freedAt = performance.now();
    await lookUntil(
      RECOVERY_MS * 4,
      () => change().then(() => true, ignoreRefused),
      done => done === true,
      100,
    );
    slowestMs = Math.max(slowestMs, performance.now() - freedAt);
    const state = await lookUntil(
      END_MS,
      async () =>
        request.status === 201
          ? (await project.requestRecord(request.record.id_str as string)).build_state
          : 'refused',
      one => isFinished(one),
    );
    if (!isFinished(state) || state === 'failed') wrong.push(`the build request during ${rule} is ${state}`);
    await current.kill();
    damage.push(...room.checkDatabaseFile());
    current = await room.program.start();
    lost.push(...(await ledger.check(true)));
  }
  table.tell('faults at single writes', time);
  table.tell('  changes answered, refused', `${changed}, ${refused}`);
  table.none('  answered otherwise', wrong);
  table.none('  lost', lost);
  table.none('  damage in the database', damage);
  table.atMost('  taken again after', slowestMs, RECOVERY_MS, 'ms');
  return current;
}

class Refused extends Error {}
const ignoreRefused = (error: unknown): false => {
  if (!(error instanceof Refused) && !isAway(error)) throw error;
  return false;
};

const scenes = {
  'by an upload': byUpload,
  'by a log': byLog,
  'to the last byte': toTheLastByte,
  'by builds': ({ wishes, table }: Stage) => fillByBuilds(wishes.command, table),
  'by caches': ({ wishes, table }: Stage) => fillByCaches(wishes.command, table),
};
type SceneName = keyof typeof scenes;

export async function drillDisk(
  wishes: DiskWishes,
  chosen: readonly SceneName[] = Object.keys(scenes) as SceneName[],
): Promise<Table> {
  const table = createTable(`drill disk --seed ${wishes.chance.seed}`, wishes.slack);
  const data = mkdtempSync(join(tmpdir(), 'assay-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=0700`, 'tmpfs', data]);
  let room: Room | undefined;
  let running: Running | undefined;
  try {
    room = await openRoom({
      command: wishes.command,
      data,
      engine: { bytes: ENGINE_BYTES },
      environment: {
        ASSAY_NETWORK: 'none',
        ASSAY_MIN_FREE_DISK: String(MIN_FREE_BYTES),
        ASSAY_LOG_LIMIT: '4MiB',
      },
    });
    running = await room.program.start();
    await room.ask('GET', '/ping');
    const journey = createJourney({ client: room.client(), as: room.as, sshd: room.sshd });
    const project = await journey.project();
    await project.suite({ command: 'seq 1 50' });
    await project.run();
    const stage: Stage = {
      room,
      project,
      table,
      wishes,
      ledger: createLedger(),
      filler: createFiller(data),
    };
    for (const name of chosen) {
      if (wishes.signal.aborted) break;
      wishes.say(name);
      await scenes[name](stage).catch(error => table.holds(`${name}: to its end`, false, inspect(error)));
      stage.filler.remove();
    }
    running = await faults(stage, running);
    await running.kill();
    table.none('damage in the database at the end', room.checkDatabaseFile());
    return table;
  } catch (error) {
    wishes.say(`the program's last words:\n${room?.program.stderr().slice(-3_000)}`);
    throw error;
  } finally {
    await running?.kill();
    await room?.close();
    execFileSync('umount', ['-l', data]);
    rmSync(data, { recursive: true, force: true });
  }
}

/** A file that takes as much of the file system as is wanted. */
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
