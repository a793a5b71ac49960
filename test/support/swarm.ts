// A fixture for tests with a Docker Swarm: its machines, the directory that they share, and the image `host` on each of them.
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type SwarmMachine,
  type SwarmMachines,
  type SwarmMachinesOptions,
  startSwarmMachines,
} from '../../src/demo/swarm-machines.ts';
import type { Mount } from '../../src/domain/container/container-plan.ts';
import { HOST_IMAGE } from '../../src/domain/names.ts';
import { sharedPaths } from '../../src/domain/swarm.ts';
import { type RegistryAuth, readProgress, type ServiceSpec } from '../../src/engine/docker/client.ts';
import type { EngineContext } from '../../src/engine/docker/create-container.ts';
import { createImages } from '../../src/engine/docker/image.ts';
import { pollUntil } from '../drill/support/poll.ts';

export const SWARM_SKIP = process.getuid?.() !== 0 && 'the machines of a swarm need root';

const WAIT_MS = 60_000;
const RUN_AS = { uid: 1000, gid: 1000 };

const NO_AUTH = {} as RegistryAuth;

type LocalImage = { reference: string; mounts: Mount[] };

export type TestService = {
  network?: string;
  /** Where it runs; undefined leaves it to the manager. */
  machine?: SwarmMachine;
  user?: string;
  /** Another one than that of the fixture, with the same binds. */
  image?: string;
  /** For pulling it. */
  auth?: RegistryAuth;
};

export type RunningService = {
  name: string;
  /** What it has written so far. */
  text(): Promise<string>;
  /** Resolves when the condition holds for what it has written. */
  textUntil(holds: (text: string) => boolean): Promise<string>;
  /** The address of its container on the network. */
  address(): Promise<string>;
  remove(): Promise<void>;
};

export type Task = {
  ID: string;
  NodeID: string;
  DesiredState: string;
  Status: {
    State: string;
    Err?: string;
    Message?: string;
    ContainerStatus?: { ContainerID?: string; ExitCode?: number };
  };
};

export type TestSwarm = SwarmMachines & {
  /** Has everything of the fixture. */
  directory: string;
  instance: string;
  /** The setting SHARED. */
  shared: string;
  /** The manager's Docker. */
  context: EngineContext;
  /** The image `host`, by an ID that every machine has. */
  image: LocalImage;
  /** Starts a shell script as a service. */
  begin(script: string, options?: TestService): Promise<RunningService>;
  /** The same, to its end. Returns what it wrote. */
  run(script: string, options?: TestService): Promise<string>;
  tasksOf(service: string): Promise<Task[]>;
};

export async function startSwarm(options: Omit<SwarmMachinesOptions, 'directory'> = {}): Promise<TestSwarm> {
  const directory = await mkdtemp(join(tmpdir(), 'assay-swarm-'));
  let machines: SwarmMachines | undefined;
  const close = async () => {
    await machines?.close();
    await rm(directory, { recursive: true, force: true });
  };
  try {
    const shared = join(directory, 'shared');
    // Jobs run as another user.
    await chmod(directory, 0o711);
    for (const path of [shared, ...Object.values(sharedPaths(shared)), join(directory, 'output')])
      await mkdir(path);
    machines = await startSwarmMachines({ ...options, directory: join(directory, 'machines') });
    return await prepare(machines, { directory, shared, close });
  } catch (error) {
    await close();
    throw error;
  }
}

async function prepare(
  swarm: SwarmMachines,
  { directory, shared, close }: { directory: string; shared: string; close(): Promise<void> },
): Promise<TestSwarm> {
  const [manager] = swarm.machines as [SwarmMachine];
  const instance = `test-${randomBytes(6).toString('hex')}`;
  const context: EngineContext = { ...manager.docker, instance, internalContainers: new Set() };
  const { call } = context;
  const image = await makeHostImage(context);
  const load = (machine: SwarmMachine) => copyImage(context, machine, image.reference);
  await Promise.all(swarm.machines.slice(1).map(load));

  const tasksOf: TestSwarm['tasksOf'] = service =>
    call('list tasks', docker => docker.listTasks({ filters: { service: [service] } })) as Promise<Task[]>;

  async function begin(script: string, { network, machine, user = '1000:1000', ...from }: TestService = {}) {
    const name = `test-${randomBytes(4).toString('hex')}`;
    const file = join(directory, 'output', name);
    await writeFile(file, '', { mode: 0o666 });
    await chmod(file, 0o666);
    const mounts = [...image.mounts, { source: file, target: '/srv/output', readOnly: false }];
    const created = await call('create a service', docker =>
      docker.createService(from.auth ?? NO_AUTH, {
        Name: name,
        TaskTemplate: {
          ContainerSpec: {
            Image: from.image ?? image.reference,
            Command: ['/bin/sh', '-c', `exec >>/srv/output 2>&1\n${script}`],
            User: user,
            CapabilityDrop: ['ALL'],
            Init: true,
            StopSignal: 'SIGKILL',
            Mounts: mounts.map(({ source, target, readOnly }) => ({
              Type: 'bind',
              Source: source,
              Target: target,
              ReadOnly: readOnly,
            })),
          },
          RestartPolicy: { Condition: 'none' },
          LogDriver: { Name: 'none' },
          Placement: machine && { Constraints: [`node.id==${machine.nodeId}`] },
          Networks: network === undefined ? [] : [{ Target: network }],
        },
        Mode: { Replicated: { Replicas: 1 } },
      } as ServiceSpec),
    );
    const text = () => readFile(file, 'utf8');
    const running: RunningService = {
      name,
      text,
      async textUntil(holds) {
        const found = await pollUntil(WAIT_MS, text, holds, 50);
        if (!holds(found)) throw new Error(`${name} wrote ${JSON.stringify(found)}: ${await stateOf(name)}`);
        return found;
      },
      async address() {
        const [task] = (await tasksOf(name)) as [Task];
        const node = swarm.machines.find(({ nodeId }) => nodeId === task.NodeID) as SwarmMachine;
        const containerId = task.Status.ContainerStatus?.ContainerID as string;
        const container = await node.docker.call('inspect a container', docker =>
          docker.getContainer(containerId).inspect(),
        );
        return container.NetworkSettings.Networks[network as string]?.IPAddress as string;
      },
      async remove() {
        await call('remove a service', docker => docker.getService(created.id).remove());
      },
    };
    return running;
  }

  const stateOf = async (name: string) =>
    (await tasksOf(name)).map(({ Status: { State, Err } }) => `${State} ${Err ?? ''}`).join(', ');

  async function run(script: string, options?: TestService): Promise<string> {
    const running = await begin(script, options);
    const ENDED = ['complete', 'failed', 'rejected', 'shutdown', 'orphaned'];
    const tasks = await pollUntil(
      WAIT_MS,
      () => tasksOf(running.name),
      found => found.some(({ Status }) => ENDED.includes(Status.State)),
      50,
    );
    const state = tasks[0]?.Status.State;
    const reason = await stateOf(running.name);
    await running.remove();
    if (state !== 'complete' && state !== 'failed') throw new Error(`the service did not run: ${reason}`);
    return await running.text();
  }

  return {
    ...swarm,
    directory,
    instance,
    shared,
    context,
    image,
    begin,
    run,
    tasksOf,
    close,
    async add() {
      const machine = await swarm.add();
      await load(machine);
      return machine;
    },
  };
}

/** By its ID: for a name, each machine would first ask a registry. */
async function makeHostImage(context: EngineContext): Promise<LocalImage> {
  const { call } = context;
  const { reference, mounts } = await createImages(context, { runAs: RUN_AS }).prepareImage(HOST_IMAGE);
  const { Id } = await call('inspect an image', docker => docker.getImage(reference).inspect());
  return { reference: Id, mounts };
}

async function copyImage(from: EngineContext, { docker: to }: SwarmMachine, image: string): Promise<void> {
  const saved = await from.call('save an image', docker => docker.getImage(image).get());
  await to.call('load an image', async docker => readProgress(await docker.loadImage(saved)));
}
