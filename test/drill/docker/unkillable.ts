// Part of `drill docker`: a container that cannot be stopped, because a gate refuses it or never answers. Its build
// gets its verdict in time, others continue, and the container is removed as soon as possible.
import { inspect } from 'node:util';
import type { Wire } from '../../support/client.ts';
import { isFinished, type ProjectJourney } from '../../support/journey.ts';
import { type DrillEnvironment, openEnvironment } from '../support/environment.ts';
import type { BlockMode, Gate } from '../support/gate.ts';
import { pollUntil } from '../support/poll.ts';
import type { Running } from '../support/program.ts';
import { containerOf, type DockerScenario, END_MS, endsWell, STEADY } from './scenario.ts';

const ENGINE_BYTES = 128 * 1024 * 1024;
/** A call to the engine has a timeout of 30 s, which may delay the verdict once. */
const VERDICT_MS: Record<BlockMode, number> = { refusing: 10_000, hanging: 40_000 };

export async function beUnkillable({ options, table }: DockerScenario, how: BlockMode): Promise<void> {
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
    await cancelUnkillable(environment, environment.gate, project, table, how);
  } finally {
    await running?.kill();
    await environment.close();
  }
}

async function cancelUnkillable(
  { engine }: DrillEnvironment,
  gate: Gate,
  project: ProjectJourney,
  table: DockerScenario['table'],
  how: BlockMode,
): Promise<void> {
  const name = `unkillable, ${how}`;
  const start = async (command: string, sign: string): Promise<Wire> => {
    const suiteId = await project.suite({ command });
    const build = await project.buildOf(await project.request(), suiteId);
    await project.logHas(build.id_str as string, sign);
    // Only of this request.
    await project.ask('DELETE', `/suites/${suiteId}`);
    return build;
  };
  const unkillable = await start('echo begun; sleep 300', 'begun');
  const id = unkillable.id_str as string;
  const container = await containerOf(engine, unkillable);
  const names = await engine.docker('inspect', '--format', '{{.Id}} {{slice .Name 1}}', container);
  const tries = gate.protect([container, ...names.split(' ')], how);
  const other = await start(STEADY, 'line 5');
  const askedAt = performance.now();
  await project.cancel(`builds/${id}`);
  const ended = await pollUntil(
    END_MS,
    () => project.buildRecord(id),
    one => isFinished(one.build_state),
  );
  table.atMost(`${name}: its verdict after`, performance.now() - askedAt, VERDICT_MS[how], 'ms');
  table.mustBeTrue(`${name}: canceled`, ended.build_state === 'canceled', inspect(ended));
  await endsWell(project, [other], table, `${name}, beside it`);
  const later = await project.runOne({ command: 'true' });
  table.mustBeTrue(`${name}: the next build passed`, later.build.build_state === 'passed', later.log);
  const state = await engine.docker('inspect', '--format', '{{.State.Running}}', container);
  table.mustBeTrue(
    `${name}: it kept running, and stopping it was attempted`,
    state === 'true' && tries() > 0,
    `running: ${state}, ${tries()} tries`,
  );
  gate.release();
  const freedAt = performance.now();
  const left = await pollUntil(
    END_MS,
    () => engine.docker('ps', '-aq', '--no-trunc', '--filter', `id=${container}`),
    found => found === '',
  );
  table.mustBeTrue(`${name}: its container is removed when possible`, left === '', left);
  table.report('  after', `${Math.round(performance.now() - freedAt)} ms`);
}
