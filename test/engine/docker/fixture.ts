// A fixture for tests against the real engine: an instance and a directory of its own, which it removes at the end.
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ContainerPlan,
  environmentMount,
  HOME_DIRECTORY,
  type Mount,
  outputMount,
  PROJECT_DIRECTORY,
} from '../../../src/domain/container/container-plan.ts';
import {
  type MountedDependency,
  searchPathsOf,
} from '../../../src/domain/container/dependency-environment.ts';
import {
  type EntryStep,
  entryCommand,
  renderEnvironment,
} from '../../../src/domain/container/entry-script.ts';
import { HOST_IMAGE } from '../../../src/domain/names.ts';
import { openDocker } from '../../../src/engine/docker/client.ts';
import { createDockerEngine, type DockerEngineOptions } from '../../../src/engine/docker/docker-engine.ts';
import type { PreparedImage } from '../../../src/engine/engine.ts';
import { createOutput, followOutput, type OutputRecord } from '../../../src/engine/output.ts';

export const DOCKER_HOST = process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock';
export const RUN_AS = { uid: 1000, gid: 1000 };

export type Fixture = Awaited<ReturnType<typeof openFixture>>;

export type RunOptions = {
  image?: PreparedImage;
  steps?: EntryStep[];
  /** Dependencies that are on the search paths. */
  used?: Partial<MountedDependency>[];
  environment?: Record<string, string>;
  mounts?: Mount[];
  memoryBytes?: number;
  shmBytes?: number;
  network?: string;
};

export async function openFixture(dockerHost = DOCKER_HOST) {
  const instance = `test-${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'assay-docker-'));
  /** Another engine for the same instance, as another process would have it. */
  const openEngine = (options: Partial<DockerEngineOptions> = {}) =>
    createDockerEngine({ dockerHost, instance, runAs: RUN_AS, network: 'bridge', ...options });
  const engine = openEngine();
  const docker = await openDocker({ dockerHost }).call('open', async opened => opened);
  const host = await engine.prepareImage(HOST_IMAGE);
  let count = 0;

  async function begin(command: string, options: RunOptions = {}) {
    count += 1;
    const id = String(count);
    const file = join(directory, `output-${id}`);
    await createOutput(file);
    const nonce = randomBytes(16).toString('hex');
    const image = options.image ?? host;
    const steps: EntryStep[] = [
      ...(options.steps ?? []),
      { name: 'main', script: command, environment: 'suite' },
    ];
    const used = (options.used ?? []).map((one, index) => ({
      id: BigInt(index),
      name: `dependency ${index}`,
      prefix: '/opt/a',
      environment: '',
      libraryPath: true,
      ...one,
    }));
    const environmentFile = join(directory, `environment-${id}`);
    await writeFile(environmentFile, renderEnvironment([], searchPathsOf(used)), { mode: 0o644 });
    const plan: ContainerPlan = {
      name: `assay-${instance}-${id}`,
      owner: { instance, kind: 'build', id },
      image: image.reference,
      command: entryCommand({ nonce, steps }),
      environment: { HOME: HOME_DIRECTORY, CI: 'true', ...options.environment },
      workingDirectory: PROJECT_DIRECTORY,
      mounts: [
        ...image.mounts,
        outputMount(file),
        environmentMount(environmentFile),
        ...(options.mounts ?? []),
      ],
      limits: {
        runAs: RUN_AS,
        memoryBytes: options.memoryBytes ?? 256 * 1024 * 1024,
        cpus: 2,
        pids: 256,
        shmBytes: options.shmBytes ?? 64 * 1024 * 1024,
      },
      network: options.network ?? 'none',
    };
    return { file, nonce, plan };
  }

  /** Starts a container as the server does, and follows its output to the end. */
  async function run(command: string, options: RunOptions = {}) {
    const { file, nonce, plan } = await begin(command, options);
    const containerId = await engine.startContainer(plan);
    const gone = new AbortController();
    const exited = engine.waitForExit(containerId).then(state => {
      gone.abort();
      return state;
    });
    const records: OutputRecord[] = [];
    for await (const record of follow(file, nonce, { gone: gone.signal })) records.push(record);
    return {
      records,
      text: textOf(records),
      exit: exitOf(records),
      state: await exited,
      containerId,
      file,
      nonce,
    };
  }

  async function close() {
    for (const { containerId } of await engine.listContainers()) await engine.removeContainer(containerId);
    for (const { name } of await engine.listVolumes()) await engine.removeVolume(name);
    engine.close();
    await rm(directory, { recursive: true, force: true });
  }

  return { instance, directory, engine, openEngine, docker, host, begin, run, close };
}

export function follow(
  file: string,
  nonce: string,
  { gone, fromByte = 0 }: { gone?: AbortSignal; fromByte?: number } = {},
) {
  const never = new AbortController().signal;
  return followOutput({ file, nonce, fromByte, signal: never, gone: gone ?? never });
}

export function textOf(records: OutputRecord[]): string {
  return Buffer.concat(records.flatMap(record => (record.kind === 'bytes' ? [record.bytes] : []))).toString();
}

export function exitOf(records: OutputRecord[]) {
  return records.find(record => record.kind === 'exit');
}
