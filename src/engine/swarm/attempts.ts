// The directories on the shared file system that containers on other machines write to, one for each attempt of a job. An
// attempt is found by its directory, even if the server was killed before or after Docker knew its service.
import { constants, type Stats } from 'node:fs';
import {
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  realpath,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import {
  ARTIFACTS_DIRECTORY,
  type ContainerPlan,
  type KeptPath,
  type Mount,
  OUTPUT_FILE,
  type Ownership,
} from '../../domain/container/container-plan.ts';
import {
  ATTEMPT_DIRECTORY,
  ENTRY_FILE,
  guardedEntry,
  keptFile,
} from '../../domain/container/remote-script.ts';
import { renderEntry } from '../../domain/container/waiting-plan.ts';
import { UNCHANGED_AT } from '../docker/skeleton.ts';
import { EngineRefused } from '../engine.ts';
import { waitForContent } from '../output.ts';

/** What is known of an attempt without Docker. */
export type Attempt = {
  /** The name of the service. It is unique for each attempt. */
  service: string;
  /** The name of the plan. */
  name: string;
  owner: Ownership;
  createdAt: number;
  kept: readonly KeptPath[];
  volumes: { name: string; target: string }[];
};

export type Attempts = {
  /** Returns what the service mounts. The same attempt twice is one directory. */
  create(service: string, plan: ContainerPlan): Promise<Mount[]>;
  list(): Promise<Attempt[]>;
  /** Whether a plan of this name may have a service: the directory of an attempt is created first and removed last. */
  mayHaveService(plan: string): Promise<boolean>;
  /** By the name of the plan or of the service. */
  find(name: string): Promise<Attempt[]>;
  artifactsOf(attempt: Attempt): string;
  /** Whether the container has printed something. Waits for it, for up to a second. */
  waitForOutput(service: string): Promise<boolean>;
  /** When the output last grew. */
  grownAt(attempt: Attempt): Promise<number>;
  /** The tar of a path that the container kept. Undefined if there is none. */
  openKept(attempt: Attempt, path: KeptPath): Promise<Readable | undefined>;
  remove(attempt: Attempt): Promise<void>;
};

const DESCRIPTION = 'attempt.json';

export function createAttempts(options: {
  directory: string;
  /** Where volumes are on the shared file system. */
  volumePath(name: string): string;
  /** Removes a directory whose files belong to other users. */
  removeTree(path: string): Promise<void>;
}): Attempts {
  const { directory } = options;
  const pathOf = (service: string, ...rest: string[]) => join(directory, service, ...rest);

  async function describe(service: string): Promise<Attempt | undefined> {
    try {
      return JSON.parse(await readFile(pathOf(service, DESCRIPTION), 'utf8')) as Attempt;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT' || error instanceof SyntaxError)
        return undefined;
      throw error;
    }
  }

  /** Without the files of an earlier start of the same attempt. */
  async function createDirectory(service: string): Promise<void> {
    const create = () => mkdir(pathOf(service), { mode: 0o711 });
    await create().catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
      await options.removeTree(pathOf(service));
      await create();
    });
  }

  /** Nodes see only the shared file system, and a later attempt must not use the files of this one. */
  async function shareFile(service: string, source: string, index: number): Promise<string> {
    const target = pathOf(service, `file-${index}`);
    try {
      await link(source, target);
    } catch (error) {
      if (!['EXDEV', 'EPERM', 'EMLINK'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      await copyFile(source, target, constants.COPYFILE_FICLONE);
      await chmod(target, 0o644);
    }
    return target;
  }

  /** Directories in the data directory may be links to shared ones. */
  async function sharedPath(source: string): Promise<string> {
    const path = await realpath(source);
    if (!path.startsWith(`${dirname(directory)}/`))
      throw new EngineRefused(`${source} is not in the shared directory (SHARED), so nodes cannot mount it.`);
    return path;
  }

  const listOf = async (isWanted: (service: string) => boolean) => {
    const found = await Promise.all((await readdir(directory)).filter(isWanted).map(describe));
    return found.filter(one => one !== undefined);
  };
  const isOfPlan = (service: string, plan: string) => service.startsWith(`${plan}-`);

  return {
    async create(service, plan) {
      await createDirectory(service);
      const description: Attempt = {
        service,
        name: plan.name,
        owner: plan.owner,
        createdAt: Date.now(),
        kept: plan.remote?.kept ?? [],
        volumes: plan.mounts.flatMap(({ type, source, target }) =>
          type === 'volume' ? [{ name: source, target }] : [],
        ),
      };
      await writeFile(pathOf(service, DESCRIPTION), JSON.stringify(description), { mode: 0o600 });
      await writeFile(pathOf(service, 'entry'), guardedEntry(renderEntry(plan)));
      // Root of a node may read only what everybody may read.
      await chmod(pathOf(service, 'entry'), 0o644);
      // Commands run as another user. On the nodes, the parent of the shared directory protects them.
      for (const name of ['work', 'artifacts']) {
        await mkdir(pathOf(service, name));
        await chmod(pathOf(service, name), 0o777);
      }
      await utimes(pathOf(service, 'artifacts'), UNCHANGED_AT, UNCHANGED_AT);
      const mounts = await Promise.all(
        plan.mounts.map(async (mount, index): Promise<Mount> => {
          const { type, source, target, readOnly } = mount;
          if (type === 'volume')
            return { type: 'bind', source: options.volumePath(source), target, readOnly };
          // The node's own file or directory, for the image `host`.
          if (source === target) return mount;
          const isFile = (await lstat(source)).isFile();
          if (target === OUTPUT_FILE) {
            await link(source, pathOf(service, 'output'));
            return { ...mount, source: pathOf(service, 'output') };
          }
          return {
            ...mount,
            source: isFile ? await shareFile(service, source, index) : await sharedPath(source),
          };
        }),
      );
      return [
        ...mounts,
        { type: 'bind', source: pathOf(service, 'entry'), target: ENTRY_FILE, readOnly: true },
        { type: 'bind', source: pathOf(service, 'work'), target: ATTEMPT_DIRECTORY, readOnly: false },
        { type: 'bind', source: pathOf(service, 'artifacts'), target: ARTIFACTS_DIRECTORY, readOnly: false },
      ];
    },
    list: () => listOf(() => true),
    mayHaveService: async plan => (await readdir(directory)).some(service => isOfPlan(service, plan)),
    find: async name =>
      (await listOf(service => service === name || isOfPlan(service, name))).filter(
        one => one.name === name || one.service === name,
      ),
    artifactsOf: ({ service }) => pathOf(service, 'artifacts'),
    waitForOutput: service => waitForContent(pathOf(service, 'output')),
    grownAt: ({ service }) =>
      lstat(pathOf(service, 'output')).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    async openKept({ service, kept }, { directory: inDirectory, inside }) {
      const index = kept.findIndex(one => one.directory === inDirectory && one.inside === inside);
      if (index === -1) return undefined;
      return openPlainFile(pathOf(service, 'work', keptFile(index)));
    },
    remove: ({ service }) => options.removeTree(pathOf(service)),
  };
}

/** The command could have replaced the file: a link or a pipe is not opened. */
async function openPlainFile(path: string): Promise<Readable | undefined> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ELOOP') return undefined;
      throw error;
    },
  );
  if (!handle) return undefined;
  const found: Stats = await handle.stat();
  if (found.isFile()) return handle.createReadStream();
  await handle.close();
  return undefined;
}
