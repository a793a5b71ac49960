// A room for tests against the real engine: an instance of its own, a directory, and an end that leaves nothing.
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ContainerPlan,
  HOME_DIRECTORY,
  type Mount,
  outputMount,
  PROJECT_DIRECTORY,
} from '../../../src/domain/container/container-plan.ts';
import { type Entry, type EntryStep, entryCommand } from '../../../src/domain/container/entry-script.ts';
import { createEngine } from '../../../src/engine/docker/container.ts';
import { createImages, type PreparedImage } from '../../../src/engine/docker/image.ts';
import { createOutput, followOutput, type OutputRecord } from '../../../src/engine/docker/output.ts';

export const DOCKER_HOST = process.env.DOCKER_HOST ?? 'unix:///var/run/docker.sock';
export const RUN_AS = { uid: 1000, gid: 1000 };

export type Room = Awaited<ReturnType<typeof openRoom>>;

export type RunWishes = {
  image?: PreparedImage;
  steps?: EntryStep[];
  searchPaths?: Entry['searchPaths'];
  environment?: Record<string, string>;
  mounts?: Mount[];
  memoryBytes?: number;
  shmBytes?: number;
  network?: string;
};

export async function openRoom(dockerHost = DOCKER_HOST) {
  const instance = `test-${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'assay-docker-'));
  const engine = createEngine({ dockerHost });
  const images = createImages(engine.door, instance);
  const host = await images.prepareImage('host', RUN_AS);
  let count = 0;

  async function begin(command: string, wishes: RunWishes = {}) {
    count += 1;
    const id = String(count);
    const file = join(directory, `output-${id}`);
    await createOutput(file);
    const nonce = randomBytes(16).toString('hex');
    const image = wishes.image ?? host;
    const steps: EntryStep[] = [
      ...(wishes.steps ?? []),
      { name: 'main', script: command, environment: 'suite' },
    ];
    const plan: ContainerPlan = {
      name: `assay-${instance}-${id}`,
      labels: { instance, kind: 'build', id },
      image: image.reference,
      user: '1000:1000',
      command: entryCommand({
        nonce,
        steps,
        ...(wishes.searchPaths ? { searchPaths: wishes.searchPaths } : {}),
      }),
      environment: { HOME: HOME_DIRECTORY, CI: 'true', ...wishes.environment },
      workingDirectory: PROJECT_DIRECTORY,
      mounts: [...image.mounts, outputMount(file), ...(wishes.mounts ?? [])],
      memoryBytes: wishes.memoryBytes ?? 256 * 1024 * 1024,
      cpus: 2,
      pids: 256,
      shmBytes: wishes.shmBytes ?? 64 * 1024 * 1024,
      network: wishes.network ?? 'none',
    };
    return { file, nonce, plan };
  }

  /** Runs to the end, as the server would: start, follow, and when the container is gone, drain. */
  async function run(command: string, wishes: RunWishes = {}) {
    const { file, nonce, plan } = await begin(command, wishes);
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
    for (const { containerId } of await engine.listContainers(instance))
      await engine.removeContainer(containerId);
    for (const { name } of await engine.listVolumes(instance)) await engine.removeVolume(name);
    await rm(directory, { recursive: true, force: true });
  }

  return { instance, directory, engine, images, host, begin, run, close };
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
