// What happens to builds when a node of the swarm dies in different ways. Each build counts its runs in the cache of its
// suite, on the shared file system: no attempt ever runs twice.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import type { SwarmMachine } from '../../../src/demo/swarm-machines.ts';
import { sharedPaths } from '../../../src/domain/swarm.ts';
import { startWorkers } from '../../../src/work/workers.ts';
import type { ProjectJourney } from '../../support/journey.ts';
import { SWARM_SKIP } from '../../support/swarm.ts';
import { type SwarmAppliance, startSwarmAppliance } from '../../support/swarm-appliance.ts';
import { pollUntil } from '../support/poll.ts';
import { setAvailability, untilState } from './faults.ts';
import { findSwarmOrphans } from './orphans.ts';

const MIB = 1024 ** 2;
/** A machine that is silent for three times this counts as down. */
const HEARTBEAT_MS = 500;
const LOST_AFTER_MS = 3_000;
const WAIT_MS = 60_000;

/** Prints a line now and then, unless `silently`, until it gets a file with its exit status. */
const untilTold = (silently = false) => `
attempt=$(sed -n 's|.*/attempts/\\([^/]*\\)/work /srv/.assay/attempt .*|\\1|p' /proc/self/mountinfo)
echo "$attempt" >>/srv/cache/runs
echo "begun $attempt"
until [ -e /srv/cache/end ]; do sleep 0.2; ${silently ? ':' : 'echo tick'}; done
exit $(cat /srv/cache/end)`;

/** Of the machine whose disk becomes full. */
const DISK_MIB = 256;

type Running = {
  /** Where it runs now. */
  machine: SwarmMachine;
  /** Lets the command end. */
  end(exitCode?: number): void;
  /** The names of the attempts that have begun to run so far. */
  runs(): string[];
  log(): Promise<string>;
  /** Resolves when another attempt runs. */
  again(): Promise<SwarmMachine>;
  finished(): Promise<{ state: unknown; exitCode: unknown; error: unknown; node: unknown }>;
};

describe('a build on a node that dies', { skip: SWARM_SKIP }, () => {
  let appliance: SwarmAppliance;
  let settings: Parameters<typeof startWorkers>[0]['settings'];
  before(async () => {
    appliance = await startSwarmAppliance(
      { memoryBytes: 256 * MIB, network: 'none' },
      { heartbeatMs: HEARTBEAT_MS },
      work => {
        settings = work.settings;
        return startWorkers({ ...work, lostAfterMs: LOST_AFTER_MS });
      },
    );
  });
  after(() => appliance?.close());
  afterEach(async () => {
    for (const machine of appliance.swarm.machines) {
      await machine.restoreLink().catch(() => {});
      if (machine.pid() === undefined) await machine.restart();
      await setAvailability(appliance.swarm, machine, 'active');
    }
    settings.retryLost = true;
  });

  async function start(command: string): Promise<Running> {
    const project = await appliance.project();
    const { volumes } = sharedPaths(appliance.swarm.shared);
    const known = new Set(readdirSync(volumes));
    await project.suite({ command });
    const { id_str: id } = (await project.buildOf(await project.request())) as { id_str: string };
    await project.logHas(id, 'begun');
    const cache = join(volumes, readdirSync(volumes).find(name => !known.has(name)) as string);
    const runs = () => readFileSync(join(cache, 'runs'), 'utf8').trim().split('\n');
    return {
      machine: await machineOf(project, id),
      end: (exitCode = 0) => writeFileSync(join(cache, 'end'), String(exitCode)),
      runs,
      log: () => project.log(id),
      async again() {
        const before = runs().length;
        await pollUntil(WAIT_MS, runs, found => found.length > before);
        assert.equal(runs().length, before + 1, await project.log(id));
        return machineOf(project, id);
      },
      async finished() {
        const { build_state: state, exit_code: exitCode, error, node } = await project.finishedBuild(id);
        return { state, exitCode, error: error ?? null, node };
      },
    };
  }

  /** The server cannot do without the manager. */
  async function startOnWorker(command: string): Promise<Running> {
    const [manager] = appliance.swarm.machines as [SwarmMachine];
    await setAvailability(appliance.swarm, manager, 'pause');
    const running = await start(command);
    await setAvailability(appliance.swarm, manager, 'active');
    return running;
  }

  /** The server finds the node a moment after the first line. */
  async function machineOf(project: ProjectJourney, id: string): Promise<SwarmMachine> {
    const find = async () => {
      const { node } = await project.buildRecord(id);
      return appliance.swarm.machines.find(({ name }) => name === node);
    };
    const found = await pollUntil(WAIT_MS, find, machine => machine !== undefined);
    return found as SwarmMachine;
  }

  const isDown = (machine: SwarmMachine) => untilState(appliance.swarm, machine, 'down');
  const passed = { state: 'passed', exitCode: 0, error: null };
  const nothingLeft = async () => {
    const found = await pollUntil(
      WAIT_MS,
      () => findSwarmOrphans(appliance),
      left => left.length === 0,
    );
    assert.deepEqual(found, []);
  };

  it('goes on while the engine is dead, and has its verdict before the engine is back', async () => {
    const running = await startOnWorker(untilTold());
    await running.machine.kill();
    await isDown(running.machine);
    running.end();
    assert.deepEqual(await running.finished(), { ...passed, node: running.machine.name });
    await running.machine.restart();
    await untilState(appliance.swarm, running.machine, 'ready');
    assert.equal(running.runs().length, 1);
    await nothingLeft();
  });

  it('is run again elsewhere when the machine loses its power', async () => {
    const running = await startOnWorker(untilTold());
    await running.machine.powerOff();
    const next = await running.again();
    assert.notEqual(next.name, running.machine.name);
    running.end();
    assert.deepEqual(await running.finished(), { ...passed, node: next.name });
    await running.machine.restart();
    await untilState(appliance.swarm, running.machine, 'ready');
    assert.equal(new Set(running.runs()).size, 2);
    assert.equal(running.runs().length, 2);
    await nothingLeft();
  });

  it('is not run again with RETRY_LOST=no', async () => {
    settings.retryLost = false;
    const running = await startOnWorker(untilTold());
    await running.machine.powerOff();
    const { state, exitCode, error } = await running.finished();
    assert.deepEqual([state, exitCode], ['errored', null]);
    assert.match(error as string, new RegExp(`${running.machine.name} does not respond.*RETRY_LOST`));
    await running.machine.restart();
    await untilState(appliance.swarm, running.machine, 'ready');
    assert.equal(running.runs().length, 1);
    await nothingLeft();
  });

  it('keeps its verdict if it prints while its node is cut off', async () => {
    const running = await startOnWorker(untilTold());
    await running.machine.cut();
    await isDown(running.machine);
    running.end(3);
    const { state, exitCode } = await running.finished();
    assert.deepEqual([state, exitCode], ['failed', 3]);
    await running.machine.restoreLink();
    await untilState(appliance.swarm, running.machine, 'ready');
    assert.equal(running.runs().length, 1);
    await nothingLeft();
  });

  it('is run again elsewhere if it is silent while its node is cut off, and is stopped when the node returns', async () => {
    const running = await startOnWorker(untilTold(true));
    await running.machine.cut();
    const next = await running.again();
    assert.notEqual(next.name, running.machine.name);
    await running.machine.restoreLink();
    await untilState(appliance.swarm, running.machine, 'ready');
    const { call } = running.machine.docker;
    const isOfBuild = ({ Names }: { Names: string[] }) => /-build-/.test(Names.join());
    const left = await pollUntil(
      WAIT_MS,
      async () => (await call('list containers', docker => docker.listContainers())).filter(isOfBuild),
      found => found.length === 0,
    );
    assert.deepEqual(left, []);
    running.end();
    assert.deepEqual(await running.finished(), { ...passed, node: next.name });
    assert.equal(new Set(running.runs()).size, running.runs().length);
    await nothingLeft();
  });

  it('is run again elsewhere when its node is drained', async () => {
    const running = await start(untilTold());
    await setAvailability(appliance.swarm, running.machine, 'drain');
    const next = await running.again();
    assert.notEqual(next.name, running.machine.name);
    running.end();
    assert.deepEqual(await running.finished(), { ...passed, node: next.name });
    await setAvailability(appliance.swarm, running.machine, 'active');
    assert.equal(new Set(running.runs()).size, 2);
    await nothingLeft();
  });

  it('ends as usual when its node is paused, and the next one runs elsewhere', async () => {
    const running = await start(untilTold());
    await setAvailability(appliance.swarm, running.machine, 'pause');
    const other = await start(untilTold());
    assert.notEqual(other.machine.name, running.machine.name);
    for (const one of [running, other]) {
      one.end();
      assert.deepEqual(await one.finished(), { ...passed, node: one.machine.name });
      assert.equal(one.runs().length, 1);
    }
    await setAvailability(appliance.swarm, running.machine, 'active');
    await nothingLeft();
  });

  it('has the same verdict after the manager was killed with one running, one failed and one passed', async () => {
    const [manager] = appliance.swarm.machines as [SwarmMachine];
    const builds: Running[] = [];
    while (builds.length < 3) builds.push(await startOnWorker(untilTold()));
    const [running, failing, passing] = builds as [Running, Running, Running];
    await manager.kill();
    failing.end(7);
    passing.end(0);
    await manager.restart();
    await untilState(appliance.swarm, manager, 'ready');
    assert.deepEqual(await failing.finished(), {
      state: 'failed',
      exitCode: 7,
      error: null,
      node: failing.machine.name,
    });
    assert.deepEqual(await passing.finished(), { ...passed, node: passing.machine.name });
    running.end();
    const { state, exitCode } = await running.finished();
    assert.deepEqual([state, exitCode], ['passed', 0]);
    for (const one of [failing, passing]) assert.equal(one.runs().length, 1);
    // If a worker finds the manager late, Swarm ends what runs there, and the build runs again.
    assert.equal(new Set(running.runs()).size, running.runs().length);
    await nothingLeft();
  });

  it('runs elsewhere when the disk of a node is full', async t => {
    const others = [...appliance.swarm.machines];
    const disk = join(appliance.swarm.directory, 'machines', `machine-${others.length + 1}`);
    mkdirSync(disk);
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'tmpfs', disk]);
    t.after(() => execFileSync('umount', ['--lazy', disk]));
    const full = await appliance.swarm.add();
    const report = join(sharedPaths(appliance.swarm.shared).nodes, full.nodeId);
    await pollUntil(
      WAIT_MS,
      () => existsSync(report),
      exists => exists,
    );
    for (const one of others) await setAvailability(appliance.swarm, one, 'pause');
    // Not more than that: it must never fill another disk.
    spawnSync('dd', ['if=/dev/zero', `of=${join(disk, 'rest')}`, 'bs=1M', `count=${DISK_MIB}`]);
    assert.equal(statfsSync(disk).bavail, 0);
    const starting = start(untilTold());
    const { call } = appliance.swarm.context;
    const findAvoiding = async () =>
      JSON.stringify(await call('list services', docker => docker.listServices())).includes(
        `node.id!=${full.nodeId}`,
      );
    assert.ok(await pollUntil(WAIT_MS, findAvoiding, isFound => isFound), 'the node rejects it');
    for (const one of others) await setAvailability(appliance.swarm, one, 'active');
    const running = await starting;
    assert.notEqual(running.machine.name, full.name);
    running.end();
    assert.deepEqual(await running.finished(), { ...passed, node: running.machine.name });
    assert.equal(running.runs().length, 1);
  });
});
