// Of `drill disk`: the engine keeps what it has on the small file system of the data directory, as on most servers, and
// builds fill it, slowly and at once.
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

export async function fillByBuilds(command: readonly string[], table: Table): Promise<void> {
  const place = mkdtempSync(join(tmpdir(), 'assay-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES},mode=0700`, 'tmpfs', place]);
  let room: Room | undefined;
  let running: Running | undefined;
  try {
    room = await openRoom({
      command,
      data: join(place, 'data'),
      engine: { root: join(place, 'engine') },
      environment: { ASSAY_NETWORK: 'none', ASSAY_MIN_FREE_DISK: String(MIN_FREE_BYTES) },
    });
    running = await room.program.start();
    await room.ask('GET', '/ping');
    const journey = createJourney({ client: room.client(), as: room.as, sshd: room.sshd });
    const project = await journey.project();
    // Of every request, so that there is something to build when the fillers are gone.
    await project.suite({ command: 'true' });
    const stage = { room, project, table };

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
  } finally {
    await running?.kill();
    await room?.close();
    execFileSync('umount', ['-l', place]);
    rmSync(place, { recursive: true, force: true });
  }
}

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
  return { state: ended.build_state as string, log, endedAt };
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
