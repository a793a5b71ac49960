// Containers on the machines of a swarm, compared with plain containers on the same machines in the same run: the time to
// the first line, and how many jobs end in a second. The bridge of each node is held open, as in production.
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readSettings } from '../../src/config.ts';
import type { SwarmMachine } from '../../src/demo/swarm-machines.ts';
import { outputMount, resourceName } from '../../src/domain/container/container-plan.ts';
import { COMMAND_STEP, entryCommand } from '../../src/domain/container/entry-script.ts';
import { HOST_IMAGE } from '../../src/domain/names.ts';
import { createDockerEngine } from '../../src/engine/docker/docker-engine.ts';
import type { Engine, PreparedImage } from '../../src/engine/engine.ts';
import { createOutput, followOutput } from '../../src/engine/output.ts';
import { registryAuthOf } from '../../src/store/node-credentials.ts';
import { openEngine } from '../../src/work/open-engine.ts';
import { startSwarmAppliance } from '../support/swarm-appliance.ts';
import { exitStatus, median, report, showLoad } from './support.ts';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '15' },
    jobs: { type: 'string', default: '50' },
    repeats: { type: 'string', default: '7' },
  },
});
const SLOTS = 2;
const RUN_AS = { uid: 1000, gid: 1000 };

// A server has one engine, here that of the benchmark: the appliance only serves the images.
const appliance = await startSwarmAppliance(
  {},
  { slots: SLOTS },
  async () => ({ stop: async () => {} }) as never,
);
const { swarm, instance, data } = appliance;
const { settings } = readSettings(new Map([['--data', data]]), {});
const swarmEngine = openEngine(
  {
    ...settings,
    engine: 'swarm',
    shared: swarm.shared,
    dockerHost: `unix://${swarm.managerSocket}`,
    baseUrl: appliance.client.origin,
  },
  { instance, registryAuth: registry => registryAuthOf(appliance.app.db, registry) },
);
/** As in production, this is done once for each engine. */
const prepared = new Map<Engine, Promise<[PreparedImage, string]>>();
const prepare = (engine: Engine) => {
  const known =
    prepared.get(engine) ?? Promise.all([engine.prepareImage(HOST_IMAGE), engine.ensureNetwork()]);
  prepared.set(engine, known);
  return known;
};
const work = mkdtempSync(join(tmpdir(), 'assay-bench-'));
const plainInstance = `bench-${randomBytes(6).toString('hex')}`;
const plain = swarm.machines.map(machine => ({ machine, engine: openPlain(machine) }));

try {
  const place = { directory: join(swarm.shared, 'jobs'), instance };
  const plainPlace = { directory: work, instance: plainInstance };
  const [, onWorker] = plain as [unknown, (typeof plain)[number]];
  const node = onWorker.machine.nodeId;
  // The first containers pull the image, start guards and create networks.
  await Promise.all(swarm.machines.map(({ nodeId }) => timeToFirstLine(swarmEngine, place, nodeId)));
  await Promise.all(plain.map(({ engine }) => timeToFirstLine(engine, plainPlace)));

  showLoad('before');
  const own: number[] = [];
  const raw: number[] = [];
  for (let round = 0; round < Number(options.rounds); round++) {
    own.push(await timeToFirstLine(swarmEngine, place, node));
    raw.push(await timeToFirstLine(onWorker.engine, plainPlace));
  }
  console.log(
    `first line on a worker: ${median(own).toFixed(0)} ms; plain container there: ${median(raw).toFixed(0)} ms`,
  );
  report('first line on a worker, as a multiple of a plain container', median(own) / median(raw), '≤', 1.5);

  const jobs = Number(options.jobs);
  // Each plain engine has as many slots as its node.
  const atOnce = swarm.machines.length * SLOTS;
  const rates: number[] = [];
  for (let round = 0; round < Number(options.repeats); round++) {
    const onSwarm = () => runMany(jobs, atOnce, () => runJob(swarmEngine, place));
    let next = 0;
    const onPlain = () =>
      runMany(jobs, atOnce, () =>
        runJob((plain[next++ % plain.length] as (typeof plain)[number]).engine, plainPlace),
      );
    // The speed of a machine drifts: each is first in every other round.
    const firstMs = round % 2 === 0 ? await onSwarm() : undefined;
    const plainMs = await onPlain();
    const swarmMs = firstMs ?? (await onSwarm());
    console.log(
      `${jobs} jobs: ${((jobs * 1000) / swarmMs).toFixed(1)} per second; three plain engines: ${((jobs * 1000) / plainMs).toFixed(1)}`,
    );
    rates.push(plainMs / swarmMs);
  }
  report(`${jobs} jobs over three nodes, as a share of three plain engines`, median(rates), '≥', 0.9);
  showLoad('after');
} finally {
  for (const { engine } of plain) engine.close();
  swarmEngine.close();
  await appliance.close();
  rmSync(work, { recursive: true, force: true });
}
process.exitCode = exitStatus();

function openPlain(machine: SwarmMachine): Engine {
  return createDockerEngine({
    dockerHost: `unix://${machine.socket}`,
    instance: plainInstance,
    network: 'bridge',
    runAs: RUN_AS,
  });
}

type Ran = { firstMs: number; removed: Promise<void> };

/** Runs a trivial job to its end. As in production, the next job does not wait until this one has been removed. */
async function runJob(
  engine: Engine,
  place: { directory: string; instance: string },
  node?: string,
): Promise<Ran> {
  const nonce = randomBytes(16).toString('hex');
  const owner = { instance: place.instance, kind: 'probe', id: nonce.slice(0, 12) };
  const directory = join(place.directory, `bench-${nonce}`);
  mkdirSync(directory);
  const outputFile = join(directory, 'output');
  const signal = AbortSignal.timeout(120_000);
  const startedAt = performance.now();
  const remove = () => rmSync(directory, { recursive: true, force: true });
  try {
    await createOutput(outputFile);
    const [image, network] = await prepare(engine);
    const name = resourceName(owner);
    const started = engine.startContainer({
      name,
      owner,
      image: image.reference,
      command: entryCommand({
        nonce,
        steps: [{ name: COMMAND_STEP, script: 'echo line', environment: 'suite' }],
      }),
      environment: {},
      workingDirectory: '/srv/project',
      mounts: [...image.mounts, outputMount(outputFile)],
      limits: { runAs: RUN_AS, memoryBytes: 256 << 20, cpus: 1, pids: 256, shmBytes: 64 << 20 },
      network,
      ...(engine.isRemote && {
        remote: { nonce, layers: [], kept: [], deadlineAt: Date.now() + 120_000, ...(node && { node }) },
      }),
    });
    let firstMs: number | undefined;
    const gone = new AbortController().signal;
    for await (const record of followOutput({ file: outputFile, fromByte: 0, nonce, signal, gone }))
      if (record.kind === 'bytes') firstMs ??= performance.now() - startedAt;
    if (firstMs === undefined) throw new Error(`${name} printed nothing`);
    return { firstMs, removed: started.then(() => engine.removeContainer(name)).finally(remove) };
  } catch (error) {
    remove();
    throw error;
  }
}

async function timeToFirstLine(...job: Parameters<typeof runJob>): Promise<number> {
  const { firstMs, removed } = await runJob(...job);
  await removed;
  return firstMs;
}

/**
 * Returns how long it took until the last of them ended, with so many at once. Those that ended earlier are removed
 * meanwhile. The last removals are not measured, because no job waits for them.
 */
async function runMany(count: number, atOnce: number, run: () => Promise<Ran>): Promise<number> {
  const startedAt = performance.now();
  let left = count;
  const removals: Promise<void>[] = [];
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (left-- > 0) removals.push((await run()).removed);
    }),
  );
  const tookMs = performance.now() - startedAt;
  await Promise.all(removals);
  return tookMs;
}
