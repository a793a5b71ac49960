// What a compile left becomes an artifact: read out of its volume, safe in DATA, and in a volume of its own for suites.

import { rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { CompileVerdict } from '../domain/container/compile-plan.ts';
import { type Captured, CaptureStopped, captureTar } from '../engine/archive/artifact-tar.ts';
import { createArtifact, findCompiledRecipe } from '../store/artifacts.ts';
import { keepArchive } from '../store/data/archive.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import { artifactPath } from '../store/data/paths.ts';
import type { Dependency } from '../store/dependencies.ts';
import type { Artifacts } from './artifacts.ts';
import { CannotRun, type Job, JobEnded, type JobOptions, mayContinueJob } from './job.ts';
import type { KeyedMutex } from './keyed-mutex.ts';

export type CompileJobOptions = JobOptions & {
  artifacts: Artifacts;
  /** One compile of a recipe at a time: whoever wants the same waits for the artifact. */
  recipeMutex: KeyedMutex;
};

/** What a compile was begun with: the dependency may be changed while it runs. */
export type Begun = { recipeHash: string; prefix: string; volume: string; inside: string };

export type CompileJob = Job<CompileVerdict> & {
  dependency: Dependency;
  artifact?: { hash: string; recipeHash: string };
};

export async function keepArtifact(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
  begun: Begun,
): Promise<void> {
  const file = join(job.directory, 'artifact');
  const { hash, files, sizeBytes } = await capture(options, job, begun, file);
  if (files === 0) throw new CannotRun(`The command left nothing under its prefix ${begun.prefix}.`);
  job.held.defer(options.artifacts.hold(hash));
  await keepArchive(file, artifactPath(options.dataDirectory, hash));
  createArtifact(options.db, { hash, prefix: begun.prefix, sizeBytes });
  await log.line(`kept ${files} files, ${sizeBytes} bytes, of ${begun.prefix}`);
  await makeReady(options, job, hash);
  job.artifact = { hash, recipeHash: begun.recipeHash };
}

/** Suites start at once when the volume is there. When it is not, the first of them makes it. */
async function makeReady(options: CompileJobOptions, job: CompileJob, hash: string): Promise<void> {
  try {
    await options.artifacts.ready(hash);
  } catch (error) {
    options.log.warn('artifact is not in Docker yet', { dependency: job.dependency.id, cause: error });
  }
}

async function capture(
  options: CompileJobOptions,
  job: CompileJob,
  begun: Begun,
  file: string,
): Promise<Captured> {
  const { host } = options;
  const { diskBytes, runAs } = options.settings;
  // It is unpacked for suites, holes filled: what cannot fit is not kept.
  const { bavail, bsize } = await statfs(options.dataDirectory);
  let grownBytes = 0;
  const fits = (sizeBytes: number) => {
    grownBytes = sizeBytes;
    return sizeBytes <= Math.min(diskBytes || Number.POSITIVE_INFINITY, bavail * bsize);
  };
  try {
    return await host.engine.readVolume(begun, tar =>
      captureTar(tar, {
        file,
        prefix: begun.prefix,
        owner: runAs,
        mayContinue: sizeBytes => fits(sizeBytes) && mayContinueJob(options, job),
      }),
    );
  } catch (error) {
    await rm(file, { force: true });
    const isTooBig = diskBytes > 0 && grownBytes > diskBytes;
    if (error instanceof CaptureStopped && isTooBig && !options.stopping.aborted)
      throw new JobEnded({ kind: 'too_big' });
    throw error;
  }
}

/** The artifact of a compile of the very same, where there is one. */
export async function findKeptArtifact(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
  recipeHash: string,
): Promise<boolean> {
  const artifact = findCompiledRecipe(options.db, recipeHash);
  if (!artifact) return false;
  // The sweep leaves it alone until this compile has ended.
  job.held.defer(options.artifacts.hold(artifact.hash));
  const isKept = await stat(artifactPath(options.dataDirectory, artifact.hash)).then(
    () => true,
    () => false,
  );
  if (!isKept) return false;
  await log.line('the same archive was compiled in the same way before: its artifact is used');
  await makeReady(options, job, artifact.hash);
  job.artifact = { hash: artifact.hash, recipeHash };
  return true;
}
