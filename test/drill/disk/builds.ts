// Part of `drill disk`: the engine stores its data on the same small file system as the data directory, and builds fill
// it, slowly and quickly, in their workspaces and in their caches.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { isFinished, type ProjectJourney } from '../../support/journey.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Running } from '../support/program.ts';
import type { Table } from '../support/table.ts';

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
/** Without limits, so that the handling of a full disk is tested and not the limits. */
const UNLIMITED_CACHES = { ASSAY_CACHE_LIMIT: '0', ASSAY_CACHE_TOTAL: '0', ASSAY_CONCURRENCY: '2' };

type DiskScenario = { environment: DrillEnvironment; project: ProjectJourney; table: Table };

/** The program and its engine on one small file system. */
async function onSmallDisk(
  command: readonly string[],
  table: Table,
  variables: Record<string, string>,
  act: (scenario: DiskScenario) => Promise<void>,
): Promise<void> {
  const place = mkdtempSync(join(tmpdir(), 'assay-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=0700`, 'tmpfs', place]);
  let environment: DrillEnvironment | undefined;
  let running: Running | undefined;
  try {
    environment = await openEnvironment({
      command,
      data: join(place, 'data'),
      engine: { root: join(place, 'engine') },
      environment: {
        ASSAY_NETWORK: 'none',
        ASSAY_MIN_FREE_DISK: String(MIN_FREE_BYTES),
        ...variables,
      },
    });
    running = await environment.program.start();
    const project = await environment.journey().project();
    // In the commit of every request, so that there is something to build after the fillers.
    await project.suite({ command: 'true' });
    await act({ environment, project, table });
  } finally {
    await running?.kill();
    await environment?.close();
    execFileSync('umount', ['-l', place]);
    rmSync(place, { recursive: true, force: true });
  }
}

export const fillByBuilds = (command: readonly string[], table: Table): Promise<void> =>
  onSmallDisk(command, table, {}, async scenario => {
    const { project } = scenario;
    const slow = await fillBy(project, SLOWLY);
    table.mustBeTrue(
      'by a build: errored, with the reason',
      slow.state === 'errored' && slow.log.includes('nearly full'),
      `${slow.state}: ${slow.log}`,
    );
    await requireRecovery(scenario, 'by a build', slow.endedAt);
    const fast = await fillBy(project, AT_ONCE);
    table.mustBeTrue(
      'by a build at once: stopped, with the reason',
      ['errored', 'failed'].includes(fast.state) && /no space left|nearly full|tried 3 times/i.test(fast.log),
      `${fast.state}: ${fast.log}`,
    );
    await requireRecovery(scenario, 'by a build at once', fast.endedAt);
  });

type ListedCache = { suite_id: string; emptied_at: string | null };

/** Idle caches are emptied for a growing one. Then its build is stopped, and a build that does not grow continues. */
export const fillByCaches = (command: readonly string[], table: Table): Promise<void> =>
  onSmallDisk(command, table, UNLIMITED_CACHES, async scenario => {
    const { environment, project } = scenario;
    const name = 'by caches';
    const first = await runOnce(project, KEEP);
    const second = await runOnce(project, KEEP);
    const steadySuite = await project.suite({ command: STEADY });
    const steady = (await project.buildOf(await project.request(), steadySuite)).id_str as string;
    await project.logHas(steady, 'ready');
    await neverAgain(project, steadySuite);
    const filler = await fillBy(project, GROW_CACHE);
    table.mustBeTrue(
      `${name}: the build that fills its cache is errored, with the reason`,
      filler.state === 'errored' && filler.log.includes('nearly full'),
      `${filler.state}: ${filler.log}`,
    );
    const { build_state: state } = await project.buildRecord(steady);
    table.mustBeTrue(
      `${name}: another build that does not grow continues`,
      state === 'running',
      String(state),
    );
    await environment.engine.docker(
      'exec',
      '--detach',
      `assay-${environment.instance()}-build-${steady}`,
      'touch',
      '/srv/cache/go',
    );
    const ended = await pollUntil(
      END_MS,
      () => project.buildRecord(steady),
      one => isFinished(one.build_state),
    );
    table.mustBeTrue(`${name}: and passes`, ended.build_state === 'passed', inspect(ended));
    const listed = JSON.parse(await environment.program.run('cache', 'list', '--json')) as ListedCache[];
    const emptiedAt = [first, second].map(id => listed.find(one => one.suite_id === id)?.emptied_at ?? '');
    const times = [...emptiedAt, filler.finishedAt].map(time => Date.parse(time));
    table.mustBeTrue(
      `${name}: idle caches are emptied first, the least recently used first`,
      times.every((time, at) => Number.isFinite(time) && time >= (times[at - 1] ?? 0)),
      inspect(times),
    );
    await requireRecovery(scenario, name, filler.endedAt);
  });

/** A suite that runs once and leaves a cache behind. */
async function runOnce(project: ProjectJourney, command: string): Promise<string> {
  const suiteId = await project.suite({ command });
  const ran = (await project.run()).of(suiteId);
  if (ran.build.build_state !== 'passed') throw new Error(ran.log);
  await neverAgain(project, suiteId);
  return suiteId;
}

/** Gives the suite a rule that no commit of the drill matches. */
const neverAgain = (project: ProjectJourney, suiteId: string) =>
  project.ask('POST', `/suites/${suiteId}/rules`, {
    ...{ subject: 'commit.message', operator: 'contains', value: 'never again' },
  });

async function fillBy(project: ProjectJourney, command: string) {
  const suiteId = await project.suite({ command });
  const build = await project.buildOf(await project.request(), suiteId);
  const id = build.id_str as string;
  const ended = await pollUntil(
    END_MS,
    () => project.buildRecord(id),
    one => isFinished(one.build_state),
  );
  // Its files are removed with its container, right after the verdict.
  const endedAt = performance.now();
  const log = (await project.log(id)).slice(-500);
  await pollUntil(
    RECOVERY_MS * 4,
    () => project.ask('DELETE', `/suites/${suiteId}`).catch(() => undefined),
    answer => answer !== undefined,
  );
  return { state: ended.build_state as string, log, endedAt, finishedAt: ended.finished_at as string };
}

/** The time from when there is space until a build request is accepted and passes, without any action. */
export async function requireRecovery(
  { environment, project, table }: { environment: DrillEnvironment; project: ProjectJourney; table: Table },
  name: string,
  freedAt = performance.now(),
): Promise<void> {
  const requested = await pollUntil(
    RECOVERY_MS * 4,
    () => environment.ask('POST', `${project.path}/build_requests`, { commit_ref: 'main' }),
    answer => answer.status === 201,
  );
  table.atMost(`${name}: accepted again after`, performance.now() - freedAt, RECOVERY_MS, 'ms');
  if (requested.status !== 201) return;
  const ended = await pollUntil(
    END_MS,
    () => project.requestRecord(requested.record.id_str as string),
    one => isFinished(one.build_state),
  );
  table.mustBeTrue(`${name}: and built`, ended.build_state === 'passed', inspect(ended));
}
