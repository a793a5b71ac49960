// Of `drill disk`: the engine keeps what it has on the small file system of the data directory, as on most servers, and
// builds fill it, slowly and at once, in their workspaces and in their caches.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { createJourney, isFinished, type ProjectJourney } from '../support/journey.ts';
import { lookUntil } from './look.ts';
import type { Running } from './program.ts';
import { openRoom, type Room } from './room.ts';
import type { Table } from './table.ts';

const MIB = 1024 * 1024;
const DISK_BYTES = 256 * MIB;
const MIN_FREE_BYTES = 64 * MIB;
const RECOVERY_MS = 10_000;
const END_MS = 120_000;

const SLOWLY = 'while head -c 2000000 /dev/zero >>zeros; do sleep 0.1; done; sleep 60';
const AT_ONCE = 'cat /dev/zero >zeros';
const KEEP = 'head -c 30M /dev/zero >/srv/cache/zeros';
const GROW_CACHE = 'while head -c 1000000 /dev/zero >>/srv/cache/zeros; do sleep 0.1; done; sleep 60';
const STEADY =
  'head -c 20M /dev/zero >held; echo ready; while ! test -e /srv/cache/go; do sleep 0.2; done; test -e held';
/** What a full disk asks for is to be seen, not what the limits do before. */
const UNLIMITED_CACHES = { ASSAY_CACHE_LIMIT: '0', ASSAY_CACHE_TOTAL: '0', ASSAY_CONCURRENCY: '2' };

type Stage = { room: Room; project: ProjectJourney; table: Table };

/** The program and its engine on one small file system. */
async function onSmallDisk(
  command: readonly string[],
  table: Table,
  environment: Record<string, string>,
  act: (stage: Stage) => Promise<void>,
): Promise<void> {
  const place = mkdtempSync(join(tmpdir(), 'assay-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=0700`, 'tmpfs', place]);
  let room: Room | undefined;
  let running: Running | undefined;
  try {
    room = await openRoom({
      command,
      data: join(place, 'data'),
      engine: { root: join(place, 'engine') },
      environment: {
        ASSAY_NETWORK: 'none',
        ASSAY_MIN_FREE_DISK: String(MIN_FREE_BYTES),
        ...environment,
      },
    });
    running = await room.program.start();
    await room.ask('GET', '/ping');
    const journey = createJourney({ client: room.client(), as: room.as, sshd: room.sshd });
    const project = await journey.project();
    // Of every request, so that there is something to build when the fillers are gone.
    await project.suite({ command: 'true' });
    await act({ room, project, table });
  } finally {
    await running?.kill();
    await room?.close();
    execFileSync('umount', ['-l', place]);
    rmSync(place, { recursive: true, force: true });
  }
}

export const fillByBuilds = (command: readonly string[], table: Table): Promise<void> =>
  onSmallDisk(command, table, {}, async stage => {
    const { project } = stage;
    const slow = await fillBy(project, SLOWLY);
    table.holds(
      'by a build: errored, and says so',
      slow.state === 'errored' && slow.log.includes('nearly full'),
      `${slow.state}: ${slow.log}`,
    );
    await requireRecovery(stage, 'by a build', slow.endedAt);
    const fast = await fillBy(project, AT_ONCE);
    table.holds(
      'by a build at once: ended, and says so',
      ['errored', 'failed'].includes(fast.state) && /no space left|nearly full|tried 3 times/i.test(fast.log),
      `${fast.state}: ${fast.log}`,
    );
    await requireRecovery(stage, 'by a build at once', fast.endedAt);
  });

type ListedCache = { suite_id: string; emptied_at: string | null };

/** Caches that nobody uses give way to one that grows; then its build is ended, and one that holds still goes on. */
export const fillByCaches = (command: readonly string[], table: Table): Promise<void> =>
  onSmallDisk(command, table, UNLIMITED_CACHES, async stage => {
    const { room, project } = stage;
    const name = 'by caches';
    const first = await runOnce(project, KEEP);
    const second = await runOnce(project, KEEP);
    const steadySuite = await project.suite({ command: STEADY });
    const steady = (await project.buildOf(await project.request(), steadySuite)).id_str as string;
    await project.logHas(steady, 'ready');
    await neverAgain(project, steadySuite);
    const filler = await fillBy(project, GROW_CACHE);
    table.holds(
      `${name}: the build that fills its cache is errored, and says so`,
      filler.state === 'errored' && filler.log.includes('nearly full'),
      `${filler.state}: ${filler.log}`,
    );
    const { build_state: state } = await project.buildRecord(steady);
    table.holds(`${name}: a build that does not grow goes on beside it`, state === 'running', String(state));
    await room.engine.docker('exec', `assay-${room.instance()}-build-${steady}`, 'touch', '/srv/cache/go');
    const ended = await lookUntil(
      END_MS,
      () => project.buildRecord(steady),
      one => isFinished(one.build_state),
    );
    table.holds(`${name}: and passes`, ended.build_state === 'passed', inspect(ended));
    const listed = JSON.parse(await room.program.run('cache', 'list', '--json')) as ListedCache[];
    const emptiedAt = [first, second].map(id => listed.find(one => one.suite_id === id)?.emptied_at ?? '');
    const times = [...emptiedAt, filler.finishedAt].map(time => Date.parse(time));
    table.holds(
      `${name}: idle caches are emptied before it is ended, the least recently used first`,
      times.every((time, at) => Number.isFinite(time) && time >= (times[at - 1] ?? 0)),
      inspect(times),
    );
    await requireRecovery(stage, name, filler.endedAt);
  });

/** A suite that runs once, and leaves its cache to nobody. */
async function runOnce(project: ProjectJourney, command: string): Promise<string> {
  const suiteId = await project.suite({ command });
  const ran = (await project.run()).of(suiteId);
  if (ran.build.build_state !== 'passed') throw new Error(ran.log);
  await neverAgain(project, suiteId);
  return suiteId;
}

/** Gives the suite a rule that no commit of the drill fits. */
const neverAgain = (project: ProjectJourney, suiteId: string) =>
  project.ask('POST', `/suites/${suiteId}/rules`, {
    ...{ subject: 'commit.message', operator: 'contains', value: 'never again' },
  });

async function fillBy(project: ProjectJourney, command: string) {
  const suiteId = await project.suite({ command });
  const build = await project.buildOf(await project.request(), suiteId);
  const id = build.id_str as string;
  const ended = await lookUntil(
    END_MS,
    () => project.buildRecord(id),
    one => isFinished(one.build_state),
  );
  // What it wrote goes with its container, right after the verdict.
  const endedAt = performance.now();
  const log = (await project.log(id)).slice(-500);
  await lookUntil(
    RECOVERY_MS * 4,
    () => project.ask('DELETE', `/suites/${suiteId}`).catch(() => undefined),
    answer => answer !== undefined,
  );
  return { state: ended.build_state as string, log, endedAt, finishedAt: ended.finished_at as string };
}

/** How long it takes from when there is room until a build request is taken, and that it ends well; nobody has to do
 *  anything for it. */
export async function requireRecovery(
  { room, project, table }: { room: Room; project: ProjectJourney; table: Table },
  name: string,
  roomAt = performance.now(),
): Promise<void> {
  const asked = await lookUntil(
    RECOVERY_MS * 4,
    () => room.ask('POST', `${project.path}/build_requests`, { commit_ref: 'main' }),
    answer => answer.status === 201,
  );
  table.atMost(`${name}: taken again after`, performance.now() - roomAt, RECOVERY_MS, 'ms');
  if (asked.status !== 201) return;
  const ended = await lookUntil(
    END_MS,
    () => project.requestRecord(asked.record.id_str as string),
    one => isFinished(one.build_state),
  );
  table.holds(`${name}: and built`, ended.build_state === 'passed', inspect(ended));
}
