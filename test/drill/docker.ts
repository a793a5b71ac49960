// `drill docker`: an engine of its own is killed, hangs, goes away, is pruned and filled, its containers are killed by hand
// and by the kernel. The API goes on; no build is `failed` for what Docker did; everything goes on when it is back.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { Wire } from '../support/client.ts';
import { createJourney, isFinished } from '../support/journey.ts';
import {
  begin,
  containerOf,
  countRuns,
  type DockerWishes,
  END_MS,
  ending,
  endsWell,
  fill,
  removeSuite,
  STEADY,
  type Stage,
  watchApi,
} from './docker-stage.ts';
import { hangOneCall } from './hanging-call.ts';
import { lookUntil } from './look.ts';
import type { Running } from './program.ts';
import { openRoom } from './room.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX } from './scene.ts';
import { createTable, type Table } from './table.ts';
import { beUnkillable } from './unkillable.ts';

const ENGINE_BYTES = 300 * 1024 * 1024;
const READY_MS = 5_000;
const STOP_MS = 10_000;
/** After which a program that does not stop is killed, so that the drill goes on. */
const STUCK_MS = 60_000;

const scenes = {
  'killed and restarted': async ({ engine, project, table, wishes, watch }: Stage) => {
    const builds = await begin(project, STEADY, 'line 5');
    await delay(wishes.chance.between(0, 1_500));
    await watch(async () => {
      await engine.end('SIGKILL');
      await delay(wishes.chance.between(0, 3_000));
      await engine.start();
    });
    await endsWell(project, builds, table, 'killed and restarted');
    await removeSuite(project, builds[0] as Wire);
  },
  'stopped and restarted': async ({ engine, project, table, watch }: Stage) => {
    const builds = await begin(project, STEADY, 'line 5');
    await watch(async () => {
      await engine.end('SIGTERM');
      await engine.start();
    });
    await endsWell(project, builds, table, 'stopped and restarted');
    await removeSuite(project, builds[0] as Wire);
  },
  hanging: async ({ engine, project, table, wishes, watch }: Stage) => {
    const builds = await begin(project, STEADY, 'line 5');
    engine.signal('SIGSTOP');
    const later = await project.request();
    await watch(() => delay(wishes.hangMs));
    engine.signal('SIGCONT');
    await endsWell(project, builds, table, 'hanging');
    const ended = await ending(project, later);
    table.holds('hanging: asked for meanwhile, ended well', ended.build_state === 'passed', inspect(ended));
    const runs = await countRuns(project, builds[0] as Wire);
    table.holds('hanging: commands run once', runs === 2, `${runs} runs of 2 builds`);
  },
  'never answering while the program is stopped': async ({ engine, project, table, ...stage }: Stage) => {
    const name = 'never answering';
    const suiteId = await project.suite({ command: STEADY });
    const running = await project.buildOf(await project.request(), suiteId);
    await project.logHas(running.id_str as string, 'line 5');
    engine.signal('SIGSTOP');
    try {
      // One that has been claimed, and waits for Docker to start it.
      const starting = await project.buildOf(await project.request(), suiteId);
      await lookUntil(
        END_MS,
        () => project.buildRecord(starting.id_str as string),
        one => one.build_state === 'running',
      );
      const tookMs = await stage.stopProgram();
      table.atMost(`${name}: from SIGTERM to the end of the program`, tookMs, STOP_MS, 'ms');
      engine.signal('SIGCONT');
      await stage.startProgram();
      await endsWell(project, [running, starting], table, name);
    } finally {
      engine.signal('SIGCONT');
    }
    const runs = await countRuns(project, running);
    table.holds(`${name}: commands run once`, runs === 1, `${runs} runs of a build`);
  },
  gone: async ({ room, engine, project, table, wishes, watch }: Stage) => {
    const suite = await project.suite({ command: STEADY });
    await engine.end('SIGTERM');
    const goneAt = performance.now();
    const request = await project.request();
    const build = await project.buildOf(request);
    const said = await watch(async () => {
      const found = await lookUntil(
        wishes.goneMs,
        () => project.buildRecord(build.id_str as string),
        one => /Docker is away/.test(inspect(one)),
      );
      // It stays away, however soon that was said.
      await delay(Math.max(0, wishes.goneMs - (performance.now() - goneAt)));
      return found;
    });
    const waiting = await project.buildRecord(build.id_str as string);
    table.tell('gone: for', `${Math.round((performance.now() - goneAt) / 1_000)} s`);
    table.holds('gone: the build waits all the while', !isFinished(waiting.build_state), inspect(waiting));
    table.holds('gone: a waiting build says why', /Docker is away/.test(inspect(said)), inspect(said));
    await room.ask('GET', '/healthz');
    await engine.start();
    const ended = await ending(project, request);
    table.holds(
      'gone: the build ended well when it was back',
      ended.build_state === 'passed',
      inspect(ended),
    );
    await project.ask('DELETE', `/suites/${suite}`);
  },
  pruned: async ({ room, engine, project, table }: Stage) => {
    const suite = await project.suite({ command: 'tool && echo used' });
    const made = await room.ask('POST', '/dependencies', {
      name: 'pruned',
      command: COMPILE_COMMAND,
      prefix: PREFIX,
    });
    const id = made.record.id_ref as string;
    await room.client().call('POST', `/dependencies/${id}/archive`, { as: room.as, body: archiveOf(1) });
    const state = await lookUntil(
      END_MS,
      async () => (await room.ask('GET', `/dependencies/${id}`)).record.marketplace_state as string,
      one => one === 'compiled' || one === 'compile_failed',
    );
    await project.ask('POST', `/suites/${suite}/dependencies`, { dependency_id: id });
    const before = await ending(project, await project.request());
    await engine.docker('system', 'prune', '--all', '--force', '--volumes');
    const after = await ending(project, await project.request());
    table.holds(
      'pruned: images and artifacts put back',
      state === 'compiled' && before.build_state === 'passed' && after.build_state === 'passed',
      `${state}, ${before.build_state}, ${after.build_state}`,
    );
    await project.ask('DELETE', `/suites/${suite}`);
  },
  'out of memory': async ({ project, table }: Stage) => {
    const { build, log } = await project.runOne({ command: 'tail /dev/zero' });
    await removeSuite(project, build);
    table.holds(
      'out of memory: failed, and says so',
      build.build_state === 'failed' && log.includes('out of memory'),
      `${build.build_state}: ${log}`,
    );
  },
  'killed by hand': async ({ engine, project, table, wishes }: Stage) => {
    const [build] = await begin(project, STEADY, 'line 5');
    const name = await containerOf(engine, build as Wire);
    await engine.docker(
      ...wishes.chance.pick([
        ['kill', name],
        ['rm', '--force', name],
      ]),
    );
    await endsWell(project, [build as Wire], table, 'killed by hand');
    await removeSuite(project, build as Wire);
  },
  'killed by hand each time': async ({ engine, project, table }: Stage) => {
    const [build] = await begin(project, 'echo begun; sleep 60', 'begun');
    const id = (build as Wire).id_str as string;
    for (let time = 1; time <= 3; time++) {
      const name = await lookUntil(
        END_MS,
        () => containerOf(engine, build as Wire),
        found => found !== '',
      );
      await engine.docker('kill', name);
      await lookUntil(
        END_MS,
        () => containerOf(engine, build as Wire),
        found => found !== name,
      );
    }
    const ended = await lookUntil(
      END_MS,
      () => project.buildRecord(id),
      one => isFinished(one.build_state),
    );
    table.holds(
      'killed by hand each time: errored, never failed',
      ended.build_state === 'errored' && ended.exit_code === null,
      inspect(ended),
    );
    await removeSuite(project, ended);
  },
  frozen: async ({ engine, project, table }: Stage) => {
    const [build] = await begin(project, 'echo begun; sleep 300', 'begun');
    const id = (build as Wire).id_str as string;
    await engine.docker('pause', await containerOf(engine, build as Wire));
    await project.cancel(`builds/${id}`);
    const ended = await lookUntil(
      END_MS,
      () => project.buildRecord(id),
      one => isFinished(one.build_state),
    );
    table.holds('frozen: canceled all the same', ended.build_state === 'canceled', inspect(ended));
    const left = await lookUntil(
      END_MS,
      () => containerOf(engine, build as Wire),
      name => name === '',
    );
    table.holds('frozen: its container is gone', left === '', left);
    await removeSuite(project, ended);
  },
  'unkillable, refusing': (stage: Stage) => beUnkillable(stage, 'refusing'),
  'unkillable, hanging': (stage: Stage) => beUnkillable(stage, 'hanging'),
  'one call hanging': hangOneCall,
  full: async ({ engine, project, table }: Stage) => {
    const filling = await project.runOne({ command: 'cat /dev/zero >zeros' });
    await removeSuite(project, filling.build);
    table.holds(
      'full: the build that filled it failed',
      filling.build.build_state === 'failed' && /No space left/.test(filling.log),
      `${filling.build.build_state}: ${filling.log}`,
    );
    // What it wrote goes with its container: filled before, there would be room again.
    await lookUntil(
      END_MS,
      () => engine.docker('ps', '-aq'),
      names => names === '',
    );
    const filler = join(engine.dataRoot, 'filler');
    fill(filler);
    const refused = await project.runOne({ command: 'true' });
    await removeSuite(project, refused.build);
    table.holds(
      'full: a build that cannot start is errored and says why',
      refused.build.build_state === 'errored' && /no space left/i.test(refused.log),
      `${refused.build.build_state}: ${refused.log}`,
    );
    await engine.docker('version');
    writeFileSync(filler, '');
    const after = await project.runOne({ command: 'true' });
    await removeSuite(project, after.build);
    table.holds('full: with room again it goes on', after.build.build_state === 'passed', after.log);
  },
};

type SceneName = keyof typeof scenes;

export async function drillDocker(
  wishes: DockerWishes,
  chosen: readonly SceneName[] = Object.keys(scenes) as SceneName[],
): Promise<Table> {
  const table = createTable(`drill docker --seed ${wishes.chance.seed}`, wishes.slack);
  const room = await openRoom({
    command: wishes.command,
    engine: { bytes: ENGINE_BYTES },
    environment: {
      ASSAY_NETWORK: 'none',
      // More than the engine's disk, which is in memory: what fills it must find it full first.
      ASSAY_MEMORY: '512MiB',
      ASSAY_CONCURRENCY: '2',
    },
  });
  const { engine } = room;
  let running: Running | undefined;
  try {
    running = await room.program.start();
    await room.ask('GET', '/ping');
    const journey = createJourney({ client: room.client(), as: room.as, sshd: room.sshd });
    const stage: Stage = {
      room,
      engine,
      project: await journey.project(),
      table,
      wishes,
      watch: trouble => watchApi(room, table, trouble),
      async stopProgram() {
        const stopped = running as Running;
        const startedAt = performance.now();
        const stuck = setTimeout(() => stopped.kill('SIGKILL'), STUCK_MS);
        await stopped.kill('SIGTERM');
        clearTimeout(stuck);
        return performance.now() - startedAt;
      },
      async startProgram() {
        running = await room.program.start();
      },
    };
    for (const name of chosen) {
      if (wishes.signal.aborted) break;
      wishes.say(name);
      await scenes[name](stage).catch(error => table.holds(`${name}: to its end`, false, inspect(error)));
    }
    await engine.end('SIGTERM');
    await running.kill();
    running = await room.program.start();
    table.atMost('ready without an engine', running.readyMs, READY_MS, 'ms');
    await engine.start();
    const left = await lookUntil(
      END_MS,
      () => engine.docker('ps', '-aq'),
      names => names === '',
    );
    table.none('orphans', left.split('\n').filter(Boolean));
    return table;
  } finally {
    await running?.kill();
    await room.close();
  }
}
