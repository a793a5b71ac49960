// Of `drill docker`: an engine that answers everything but one kind of request. What needs it ends with the reason instead of
// being tried for ever, the API goes on, and so does everything else when it is answered again.
import { inspect } from 'node:util';
import { createJourney } from '../support/journey.ts';
import { ending, type Stage, watchApi } from './docker-stage.ts';
import type { Running } from './program.ts';
import { openRoom } from './room.ts';

const ENGINE_BYTES = 128 * 1024 * 1024;
/** Three attempts; each waits 30 s for the call, and as long at most for what clears up after it. */
const VERDICT_MS = 140_000;

export async function hangOneCall({ wishes, table }: Stage): Promise<void> {
  const name = 'one call hanging';
  const room = await openRoom({
    command: wishes.command,
    engine: { bytes: ENGINE_BYTES },
    gated: true,
    environment: { ASSAY_NETWORK: 'none', ASSAY_CONCURRENCY: '2' },
  });
  let running: Running | undefined;
  try {
    running = await room.program.start();
    await room.ask('GET', '/ping');
    const project = await createJourney({ client: room.client(), as: room.as, sshd: room.sshd }).project();
    await project.runOne({ command: 'true' });
    const suiteId = await project.suite({ command: 'echo never' });
    const tries = room.gate.hang('POST', /\/containers\/create/);
    const askedAt = performance.now();
    const ended = await watchApi(room, table, async () => ending(project, await project.request()));
    table.atMost(`${name}: its verdict after`, performance.now() - askedAt, VERDICT_MS, 'ms');
    const build = (await project.buildsOf(ended.id_str as string)).find(one => one.suite_id_str === suiteId);
    table.holds(
      `${name}: errored, with the reason`,
      build?.build_state === 'errored' && /did not answer in time .* tried 3 times/.test(String(build.error)),
      inspect(build),
    );
    table.tell('  calls that were not answered', `${tries()}`);
    room.gate.release();
    const { build: later, log } = await project.runOne({ command: 'true' });
    table.holds(`${name}: answered again, the next one passed`, later.build_state === 'passed', log);
  } finally {
    await running?.kill();
    await room.close();
  }
}
