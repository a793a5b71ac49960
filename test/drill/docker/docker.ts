// `drill docker`: a private engine is killed, hangs, stops, is pruned and filled, and containers are killed by hand and
// by the kernel. The API keeps working, no build is `failed` because of Docker, and all work continues when Docker is
// back.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { Wire } from '../../support/client.ts';
import { isFinished } from '../../support/journey.ts';
import { openEnvironment } from '../support/environment.ts';
import { pollUntil } from '../support/poll.ts';
import type { Running } from '../support/program.ts';
import { createTable, type Table } from '../support/table.ts';
import { archiveOf, COMPILE_COMMAND, PREFIX } from '../support/workload.ts';
import { hangOneCall } from './hanging-call.ts';
import {
  begin,
  containerOf,
  countRuns,
  type DockerOptions,
  type DockerScenario,
  END_MS,
  ending,
  endsWell,
  fill,
  removeSuite,
  STEADY,
  watchApi,
} from './scenario.ts';
import { beUnkillable } from './unkillable.ts';

const ENGINE_BYTES = 300 * 1024 * 1024;
const READY_MS = 5_000;
const STOP_MS = 10_000;
/** A program that does not stop within this time is killed, so that the drill can continue. */
const STUCK_MS = 60_000;

const scenarios = {
  'killed and restarted': async ({ engine, project, table, options, watch }: DockerScenario) => {
    const builds = await begin(project, STEADY, 'line 5');
    await delay(options.random.between(0, 1_500));
    await watch(async () => {
      await engine.end('SIGKILL');
      await delay(options.random.between(0, 3_000));
      await engine.start();
    });
    await endsWell(project, builds, table, 'killed and restarted');
    await removeSuite(project, builds[0] as Wire);
  },
  'stopped and restarted': async ({ engine, project, table, watch }: DockerScenario) => {
    const builds = await begin(project, STEADY, 'line 5');
    await watch(async () => {
      await engine.end('SIGTERM');
      await engine.start();
    });
    await endsWell(project, builds, table, 'stopped and restarted');
    await removeSuite(project, builds[0] as Wire);
  },
  hanging: async ({ engine, project, table, options, watch }: DockerScenario) => {
    const builds = await begin(project, STEADY, 'line 5');
    engine.signal('SIGSTOP');
    const later = await project.request();
    await watch(() => delay(options.hangMs));
    engine.signal('SIGCONT');
    await endsWell(project, builds, table, 'hanging');
    const ended = await ending(project, later);
    table.mustBeTrue(
      'hanging: a build requested meanwhile passed',
      ended.build_state === 'passed',
      inspect(ended),
    );
    const runs = await countRuns(project, builds[0] as Wire);
    table.mustBeTrue('hanging: commands run once', runs === 2, `${runs} runs of 2 builds`);
  },
  'never answering while the program is stopped': async ({
    engine,
    project,
    table,
    ...scenario
  }: DockerScenario) => {
    const name = 'never answering';
    const suiteId = await project.suite({ command: STEADY });
    const running = await project.buildOf(await project.request(), suiteId);
    await project.logHas(running.id_str as string, 'line 5');
    engine.signal('SIGSTOP');
    try {
      // A build that was claimed and waits for Docker to start it.
      const starting = await project.buildOf(await project.request(), suiteId);
      await pollUntil(
        END_MS,
        () => project.buildRecord(starting.id_str as string),
        one => one.build_state === 'running',
      );
      const tookMs = await scenario.stopProgram();
      table.atMost(`${name}: from SIGTERM to the end of the program`, tookMs, STOP_MS, 'ms');
      engine.signal('SIGCONT');
      await scenario.startProgram();
      await endsWell(project, [running, starting], table, name);
    } finally {
      engine.signal('SIGCONT');
    }
    const runs = await countRuns(project, running);
    table.mustBeTrue(`${name}: commands run once`, runs === 1, `${runs} runs of a build`);
  },
  gone: async ({ environment, engine, project, table, options, watch }: DockerScenario) => {
    const suite = await project.suite({ command: STEADY });
    await engine.end('SIGTERM');
    const goneAt = performance.now();
    const request = await project.request();
    const build = await project.buildOf(request);
    const explained = await watch(async () => {
      const found = await pollUntil(
        options.goneMs,
        () => project.buildRecord(build.id_str as string),
        one => /Docker is unavailable/.test(inspect(one)),
      );
      // It stays away, even after the build has reported it.
      await delay(Math.max(0, options.goneMs - (performance.now() - goneAt)));
      return found;
    });
    const waiting = await project.buildRecord(build.id_str as string);
    table.report('gone: for', `${Math.round((performance.now() - goneAt) / 1_000)} s`);
    table.mustBeTrue('gone: the build waits throughout', !isFinished(waiting.build_state), inspect(waiting));
    table.mustBeTrue(
      'gone: a waiting build gives the reason',
      /Docker is unavailable/.test(inspect(explained)),
      inspect(explained),
    );
    await environment.ask('GET', '/healthz');
    await engine.start();
    const ended = await ending(project, request);
    table.mustBeTrue(
      'gone: the build passed when the engine was back',
      ended.build_state === 'passed',
      inspect(ended),
    );
    await project.ask('DELETE', `/suites/${suite}`);
  },
  pruned: async ({ environment, engine, project, table }: DockerScenario) => {
    const suite = await project.suite({ command: 'tool && echo used' });
    const made = await environment.ask('POST', '/dependencies', {
      name: 'pruned',
      command: COMPILE_COMMAND,
      prefix: PREFIX,
    });
    const id = made.record.id_ref as string;
    await environment
      .client()
      .call('POST', `/dependencies/${id}/archive`, { as: environment.as, body: archiveOf(1) });
    const state = await pollUntil(
      END_MS,
      async () => (await environment.ask('GET', `/dependencies/${id}`)).record.marketplace_state as string,
      one => one === 'compiled' || one === 'compile_failed',
    );
    await project.ask('POST', `/suites/${suite}/dependencies`, { dependency_id: id });
    const before = await ending(project, await project.request());
    await engine.docker('system', 'prune', '--all', '--force', '--volumes');
    const after = await ending(project, await project.request());
    table.mustBeTrue(
      'pruned: images and artifacts restored',
      state === 'compiled' && before.build_state === 'passed' && after.build_state === 'passed',
      `${state}, ${before.build_state}, ${after.build_state}`,
    );
    await project.ask('DELETE', `/suites/${suite}`);
  },
  'out of memory': async ({ project, table }: DockerScenario) => {
    const { build, log } = await project.runOne({ command: 'tail /dev/zero' });
    await removeSuite(project, build);
    table.mustBeTrue(
      'out of memory: failed, with the reason',
      build.build_state === 'failed' && log.includes('out of memory'),
      `${build.build_state}: ${log}`,
    );
  },
  'killed by hand': async ({ engine, project, table, options }: DockerScenario) => {
    const [build] = await begin(project, STEADY, 'line 5');
    const name = await containerOf(engine, build as Wire);
    await engine.docker(
      ...options.random.pick([
        ['kill', name],
        ['rm', '--force', name],
      ]),
    );
    await endsWell(project, [build as Wire], table, 'killed by hand');
    await removeSuite(project, build as Wire);
  },
  'killed by hand each time': async ({ engine, project, table }: DockerScenario) => {
    const [build] = await begin(project, 'echo begun; sleep 60', 'begun');
    const id = (build as Wire).id_str as string;
    for (let time = 1; time <= 3; time++) {
      const name = await pollUntil(
        END_MS,
        () => containerOf(engine, build as Wire),
        found => found !== '',
      );
      await engine.docker('kill', name);
      await pollUntil(
        END_MS,
        () => containerOf(engine, build as Wire),
        found => found !== name,
      );
    }
    const ended = await pollUntil(
      END_MS,
      () => project.buildRecord(id),
      one => isFinished(one.build_state),
    );
    table.mustBeTrue(
      'killed by hand each time: errored, never failed',
      ended.build_state === 'errored' && ended.exit_code === null,
      inspect(ended),
    );
    await removeSuite(project, ended);
  },
  frozen: async ({ engine, project, table }: DockerScenario) => {
    const [build] = await begin(project, 'echo begun; sleep 300', 'begun');
    const id = (build as Wire).id_str as string;
    await engine.docker('pause', await containerOf(engine, build as Wire));
    await project.cancel(`builds/${id}`);
    const ended = await pollUntil(
      END_MS,
      () => project.buildRecord(id),
      one => isFinished(one.build_state),
    );
    table.mustBeTrue('frozen: can be canceled', ended.build_state === 'canceled', inspect(ended));
    const left = await pollUntil(
      END_MS,
      () => containerOf(engine, build as Wire),
      name => name === '',
    );
    table.mustBeTrue('frozen: its container is removed', left === '', left);
    await removeSuite(project, ended);
  },
  'unkillable, refusing': (scenario: DockerScenario) => beUnkillable(scenario, 'refusing'),
  'unkillable, hanging': (scenario: DockerScenario) => beUnkillable(scenario, 'hanging'),
  'one call hanging': hangOneCall,
  full: async ({ engine, project, table }: DockerScenario) => {
    const filling = await project.runOne({ command: 'cat /dev/zero >zeros' });
    await removeSuite(project, filling.build);
    table.mustBeTrue(
      'full: the build that filled it failed',
      filling.build.build_state === 'failed' && /No space left/.test(filling.log),
      `${filling.build.build_state}: ${filling.log}`,
    );
    // Its files are removed with its container: filled earlier, there would be free space again.
    await pollUntil(
      END_MS,
      () => engine.docker('ps', '-aq'),
      names => names === '',
    );
    const filler = join(engine.dataRoot, 'filler');
    fill(filler);
    const refused = await project.runOne({ command: 'true' });
    await removeSuite(project, refused.build);
    table.mustBeTrue(
      'full: a build that cannot start is errored, with the reason',
      refused.build.build_state === 'errored' && /no space left/i.test(refused.log),
      `${refused.build.build_state}: ${refused.log}`,
    );
    await engine.docker('version');
    writeFileSync(filler, '');
    const after = await project.runOne({ command: 'true' });
    await removeSuite(project, after.build);
    table.mustBeTrue(
      'full: continues when there is space again',
      after.build.build_state === 'passed',
      after.log,
    );
  },
};

type ScenarioName = keyof typeof scenarios;

export async function drillDocker(
  options: DockerOptions,
  chosen: readonly ScenarioName[] = Object.keys(scenarios) as ScenarioName[],
): Promise<Table> {
  const table = createTable(`drill docker --seed ${options.random.seed}`, options.slack);
  const environment = await openEnvironment({
    command: options.command,
    engine: { bytes: ENGINE_BYTES },
    environment: {
      ASSAY_NETWORK: 'none',
      // More than the engine's disk, which is in memory: the disk must be full before memory runs out.
      ASSAY_MEMORY: '512MiB',
      ASSAY_CONCURRENCY: '2',
    },
  });
  const { engine } = environment;
  let running: Running | undefined;
  try {
    running = await environment.program.start();
    const scenario: DockerScenario = {
      environment,
      engine,
      project: await environment.journey().project(),
      table,
      options,
      watch: fault => watchApi(environment, table, fault),
      async stopProgram() {
        const stopped = running as Running;
        const startedAt = performance.now();
        const stuck = setTimeout(() => stopped.kill('SIGKILL'), STUCK_MS);
        await stopped.kill('SIGTERM');
        clearTimeout(stuck);
        return performance.now() - startedAt;
      },
      async startProgram() {
        running = await environment.program.start();
      },
    };
    for (const name of chosen) {
      if (options.signal.aborted) break;
      options.say(name);
      await scenarios[name](scenario).catch(error =>
        table.mustBeTrue(`${name}: completed`, false, inspect(error)),
      );
    }
    await engine.end('SIGTERM');
    await running.kill();
    running = await environment.program.start();
    table.atMost('ready without an engine', running.readyMs, READY_MS, 'ms');
    await engine.start();
    const left = await pollUntil(
      END_MS,
      () => engine.docker('ps', '-aq'),
      names => names === '',
    );
    table.mustBeEmpty('orphans', left.split('\n').filter(Boolean));
    return table;
  } finally {
    await running?.kill();
    await environment.close();
  }
}
