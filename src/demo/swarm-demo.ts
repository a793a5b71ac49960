// The demo with several machines: a server whose builds run on three machines of a swarm, one of which loses its power.
import { once } from 'node:events';
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Settings } from '../config.ts';
import { createLog } from '../log.ts';
import { version } from '../version.ts';
import { startWorkers } from '../work/workers.ts';
import type { ApiClient, Wire } from './api-client.ts';
import { addressOf, GIT_HOST, WEBSITE } from './sample.ts';
import type { SummaryRow } from './scenario.ts';
import type { Screen } from './screen.ts';
import { type Cleanups, createPlace, startDemoGitHost, startDemoServer } from './server.ts';
import { printSummary } from './summary.ts';
import { type SwarmMachine, startSwarmMachines } from './swarm-machines.ts';
import { watchProject } from './watch.ts';

const MACHINES = 3;
/** A real swarm notices a dead machine after 15 s, and Assay waits for 60 s more. */
const HEARTBEAT_MS = 1_000;
const LOST_AFTER_MS = 3_000;
const BUILD_SECONDS = 12;
const POLL_MS = 500;

const command = `for second in $(seq ${BUILD_SECONDS}); do echo "$ASSAY_SUITE: $second of ${BUILD_SECONDS}"; sleep 1; done`;

/** Removes nothing itself: that is the task of the caller, with `cleanups`. */
export async function performSwarm(
  chosen: Settings,
  endsAtOnce: boolean,
  screen: Screen,
  stop: AbortSignal,
  cleanups: Cleanups,
): Promise<number> {
  const startedAt = performance.now();
  const { paint } = screen;
  screen.print(paint('bold', `Assay ${version}`) + paint('dim', ' demo of a swarm: everything is temporary'));
  screen.print();

  const starting = screen.step('Machines');
  const place = await createPlace(cleanups);
  await chmod(place, 0o711);
  const swarm = await startSwarmMachines({
    count: MACHINES,
    slots: 1,
    directory: join(place, 'machines'),
    heartbeatMs: HEARTBEAT_MS,
  });
  cleanups.push(() => swarm.close());
  starting.end(`${swarm.machines.map(({ name }) => name).join(', ')}, each with its own Docker`);
  stop.throwIfAborted();

  const serving = screen.step('Server');
  const shared = join(place, 'shared');
  await mkdir(shared);
  const { port } = chosen.listen;
  const settings: Settings = {
    ...chosen,
    data: join(place, 'data'),
    engine: 'swarm',
    shared,
    dockerHost: `unix://${swarm.managerSocket}`,
    network: 'bridge',
    listen: { host: swarm.hostAddress, port },
    baseUrl: `https://${swarm.hostAddress}:${port}`,
  };
  const log = createLog(line => screen.print(line.trimEnd()));
  // Lost machines are part of the demo.
  const server = await startDemoServer(settings, { ...log, info() {}, warn() {} }, options =>
    startWorkers({ ...options, lostAfterMs: LOST_AFTER_MS }),
  );
  const { app, email, password, caPath: caFile } = server;
  cleanups.push(() => app.close());
  const registry = { host: new URL(app.url).host, caFile };
  await Promise.all(swarm.machines.map(machine => machine.trust(registry)));
  serving.end(`${app.url}, ENGINE=swarm`);

  const hosting = screen.step('Git host');
  const gitHost = await startDemoGitHost(join(place, 'repositories'), settings.data, cleanups);
  const api = await server.openApi(stop, cleanups);
  const project = await api.post('/projects', { name: 'Website', repository_url: addressOf(WEBSITE) });
  gitHost.allow(String(project.ssh_public_key));
  hosting.end(`${GIT_HOST}, SSH on port ${gitHost.port} of loopback`);

  const rows = await runBuilds(api, screen, `/projects/${project.id_str}`, swarm.machines);
  printSummary(screen, rows, performance.now() - startedAt);
  const isGood = rows.every(row => row.isGood);
  if (endsAtOnce) return isGood ? 0 : 1;
  screen.print(`Nodes      ${app.url}/ui/admin/nodes`);
  screen.print(`Sign in    ${email}, password ${password}`);
  screen.print(`CA         ${caFile}`);
  screen.print('Stop it with Ctrl+C: everything is removed.');
  if (!stop.aborted) await once(stop, 'abort');
  return isGood ? 0 : 1;
}

/** Runs a build on each machine, and takes the power of the last one while its build runs. */
async function runBuilds(
  api: ApiClient,
  screen: Screen,
  path: string,
  machines: readonly SwarmMachine[],
): Promise<SummaryRow[]> {
  const step = screen.step('Builds');
  const suites = new Map<unknown, string>();
  for (let number = 1; number <= machines.length; number++) {
    const name = `Suite ${number}`;
    suites.set((await api.post(`${path}/suites`, { name, command })).id_str, name);
  }
  const nameOf = (build: Wire) => suites.get(build.suite_id_str) as string;
  const watch = await watchProject(api, path.split('/').at(-1) as string);
  const request = await api.post(`${path}/build_requests`, { commit_ref: 'main' });
  const list = async (): Promise<Wire[]> => {
    const { commit_id_str: commit } = await api.get(`${path}/build_requests/${request.id_str}`);
    return commit ? await api.get<Wire[]>(`${path}/commits/${commit}/builds`) : [];
  };
  let changes = 0;
  watch.listen(() => {
    changes += 1;
  });
  const shown = new Map<string, string>();
  const show = (build: Wire) => {
    const text = `${build.build_state}${build.node === undefined ? '' : ` on ${build.node}`}`;
    if (shown.get(build.id_str) === text) return;
    shown.set(build.id_str, text);
    step.row(nameOf(build), text, build.build_state === 'passed' ? 'good' : 'busy');
  };
  /** Resolves when the builds satisfy the condition. There is no event for the node of a build. */
  const untilBuilds = async (holds: (builds: readonly Wire[]) => boolean): Promise<Wire[]> => {
    for (;;) {
      const seen = changes;
      const builds = await list();
      for (const build of builds) show(build);
      if (holds(builds)) return builds;
      await Promise.race([watch.until(() => changes > seen), delay(POLL_MS)]);
    }
  };
  const placed = await untilBuilds(
    builds => builds.length === machines.length && builds.every(({ node }) => node !== undefined),
  );
  const victim = machines.at(-1) as SwarmMachine;
  const hit = placed.find(({ node }) => node === victim.name);
  step.row(victim.name, `loses its power while ${hit && nameOf(hit)} runs there`, 'bad');
  const begunAt = performance.now();
  await victim.powerOff();
  const ended = await untilBuilds(builds =>
    builds.every(({ build_state: state }) => state !== 'enqueued' && state !== 'running'),
  );
  step.end(`${ended.length} builds ended`, true);
  return ended.map(build => {
    const isHit = build.id_str === hit?.id_str;
    const moved = isHit
      ? `began on ${victim.name}, which lost its power, and ran again on ${build.node}`
      : '';
    return {
      what: nameOf(build),
      result: String(build.build_state),
      isGood: build.build_state === 'passed' && (!isHit || build.node !== victim.name),
      ...(isHit && { ms: performance.now() - begunAt }),
      note: moved || `ran on ${build.node}`,
      buildId: build.id_str,
    };
  });
}
