// Part of `drill docker`: an engine that never answers one kind of request. Builds that need it end with the reason
// instead of being retried for ever, the API keeps working, and so does everything else when the engine answers again.
import { inspect } from 'node:util';
import { openEnvironment } from '../support/environment.ts';
import type { Running } from '../support/program.ts';
import { type DockerScenario, ending, watchApi } from './scenario.ts';

const ENGINE_BYTES = 128 * 1024 * 1024;
/** Three attempts. Each waits up to 30 s for the call, and as long for its clean-up. */
const VERDICT_MS = 140_000;

export async function hangOneCall({ options, table }: DockerScenario): Promise<void> {
  const name = 'one call hanging';
  const environment = await openEnvironment({
    command: options.command,
    engine: { bytes: ENGINE_BYTES },
    gated: true,
    environment: { ASSAY_NETWORK: 'none', ASSAY_CONCURRENCY: '2' },
  });
  let running: Running | undefined;
  try {
    running = await environment.program.start();
    const project = await environment.journey().project();
    await project.runOne({ command: 'true' });
    const suiteId = await project.suite({ command: 'echo never' });
    const tries = environment.gate.hang('POST', /\/containers\/create/);
    const askedAt = performance.now();
    const ended = await watchApi(environment, table, async () => ending(project, await project.request()));
    table.atMost(`${name}: its verdict after`, performance.now() - askedAt, VERDICT_MS, 'ms');
    const build = (await project.buildsOf(ended.id_str as string)).find(one => one.suite_id_str === suiteId);
    table.mustBeTrue(
      `${name}: errored, with the reason`,
      build?.build_state === 'errored' &&
        /did not respond in time .* tried 3 times/.test(String(build.error)),
      inspect(build),
    );
    table.report('  calls that were not answered', `${tries()}`);
    environment.gate.release();
    const { build: later, log } = await project.runOne({ command: 'true' });
    table.mustBeTrue(
      `${name}: the next build passed when it answered again`,
      later.build_state === 'passed',
      log,
    );
  } finally {
    await running?.kill();
    await environment.close();
  }
}
