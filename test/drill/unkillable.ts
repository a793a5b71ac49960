// Of `drill docker`: a container that nobody can end, behind a gate that refuses its end or never answers. Its build gets
// its verdict in time all the same, others go on, and the container goes as soon as it can.
import { inspect } from 'node:util';
import type { Wire } from '../support/client.ts';
import { createJourney, isFinished, type ProjectJourney } from '../support/journey.ts';
import { containerOf, END_MS, endsWell, STEADY, type Stage } from './docker-stage.ts';
import type { Gate, Stubbornness } from './gate.ts';
import { lookUntil } from './look.ts';
import type { Running } from './program.ts';
import { openRoom, type Room } from './room.ts';

const ENGINE_BYTES = 128 * 1024 * 1024;
/** A call to the engine is waited for 30 s: whoever does not answer it delays the verdict by so much, and no more. */
const VERDICT_MS: Record<Stubbornness, number> = { refusing: 10_000, hanging: 40_000 };

export async function beUnkillable({ wishes, table }: Stage, how: Stubbornness): Promise<void> {
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
    const journey = createJourney({ client: room.client(), as: room.as, sshd: room.sshd });
    await cancelUnkillable(room, room.gate, await journey.project(), table, how);
  } finally {
    await running?.kill();
    await room.close();
  }
}

async function cancelUnkillable(
  { engine }: Room,
  gate: Gate,
  project: ProjectJourney,
  table: Stage['table'],
  how: Stubbornness,
): Promise<void> {
  const name = `unkillable, ${how}`;
  const begun = async (command: string, sign: string): Promise<Wire> => {
    const suiteId = await project.suite({ command });
    const build = await project.buildOf(await project.request(), suiteId);
    await project.logHas(build.id_str as string, sign);
    // Of this request only.
    await project.ask('DELETE', `/suites/${suiteId}`);
    return build;
  };
  const stubborn = await begun('echo begun; sleep 300', 'begun');
  const id = stubborn.id_str as string;
  const container = await containerOf(engine, stubborn);
  const names = await engine.docker('inspect', '--format', '{{.Id}} {{slice .Name 1}}', container);
  const tries = gate.protect([container, ...names.split(' ')], how);
  const beside = await begun(STEADY, 'line 5');
  const askedAt = performance.now();
  await project.cancel(`builds/${id}`);
  const ended = await lookUntil(
    END_MS,
    () => project.buildRecord(id),
    one => isFinished(one.build_state),
  );
  table.atMost(`${name}: its verdict after`, performance.now() - askedAt, VERDICT_MS[how], 'ms');
  table.holds(`${name}: canceled`, ended.build_state === 'canceled', inspect(ended));
  await endsWell(project, [beside], table, `${name}, beside it`);
  const later = await project.runOne({ command: 'true' });
  table.holds(`${name}: another one after it passed`, later.build.build_state === 'passed', later.log);
  const state = await engine.docker('inspect', '--format', '{{.State.Running}}', container);
  table.holds(
    `${name}: it ran all the while, and its end was tried`,
    state === 'true' && tries() > 0,
    `running: ${state}, ${tries()} tries`,
  );
  gate.release();
  const freedAt = performance.now();
  const left = await lookUntil(
    END_MS,
    () => engine.docker('ps', '-aq', '--no-trunc', '--filter', `id=${container}`),
    found => found === '',
  );
  table.holds(`${name}: its container is gone when it can be`, left === '', left);
  table.tell('  after', `${Math.round(performance.now() - freedAt)} ms`);
}
