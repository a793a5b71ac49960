// Saves the result of a compile as an artifact: copies it from the prefix volume to the data directory, and creates the
// volume that suites mount.

import { existsSync } from 'node:fs';
import { rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { CompileVerdict } from '../domain/container/compile-plan.ts';
import { type Captured, CaptureStopped, captureTar } from '../engine/archive/artifact-tar.ts';
import { createArtifact, findCompiledRecipe } from '../store/artifacts.ts';
import { keepArchive } from '../store/data/archive-file.ts';
import { createIndex, type IndexWriter } from '../store/data/artifact-index.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import { artifactIndexPath, artifactPath, compiledLogPath } from '../store/data/paths.ts';
import type { Dependency } from '../store/dependencies.ts';
import type { Artifacts } from './artifacts.ts';
import { CannotRun, type Job, JobEnded, type JobOptions, mayContinueJob } from './job.ts';
import type { KeyedMutex } from './keyed-mutex.ts';

export type CompileJobOptions = JobOptions & {
  artifacts: Artifacts;
  /** Held during a compile, by recipe: others with the same recipe wait, and use the artifact. */
  recipeMutex: KeyedMutex;
};

/** What a compile is made of. The dependency may change meanwhile. A compile that an older version started lacks the lists. */
export type Recipe = {
  recipeHash: string;
  /** The artifacts of related dependencies and of those they were compiled with, in search order. */
  related?: string[] | undefined;
  /** The related dependencies, in order. */
  relatedIds?: string[] | undefined;
};

export type StartedCompile = Recipe & {
  prefix: string;
  /** The directory of the volume that it writes to. Absent if it writes to its container. */
  volume?: string;
  inside?: string;
};

export type CompileJob = Job<CompileVerdict> & {
  dependency: Dependency;
  artifact?: Recipe & {
    hash: string;
    /** Set if an earlier compile made it: the dependency that has the log of that compile, if it may be shown. */
    reused?: { logOf: bigint | undefined };
  };
};

export async function saveArtifact(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
  started: StartedCompile,
): Promise<void> {
  const file = join(job.directory, 'artifact');
  using index = createIndex(join(job.directory, 'index'));
  const { hash, files, sizeBytes } = await capture(options, job, started, file, index);
  if (files === 0) throw new CannotRun(`The command left nothing under its prefix ${started.prefix}.`);
  job.held.defer(options.artifacts.hold(hash));
  await keepArchive(file, artifactPath(options.dataDirectory, hash));
  await index.finish(artifactIndexPath(options.dataDirectory, hash));
  createArtifact(options.db, { hash, prefix: started.prefix, sizeBytes, files });
  await log.line(`kept ${files} files, ${sizeBytes} bytes, of ${started.prefix}`);
  await makeReady(options, job, hash);
  const { recipeHash, related, relatedIds } = started;
  job.artifact = { hash, recipeHash, related, relatedIds };
}

/** Creates the volume now so that suites start faster. If it fails, the first suite creates it. */
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
  started: StartedCompile,
  file: string,
  index: IndexWriter,
): Promise<Captured> {
  const { host } = options;
  const { diskBytes, runAs } = options.settings;
  // The volume for suites holds it unpacked, without holes.
  const { bavail, bsize } = await statfs(options.dataDirectory);
  let grownBytes = 0;
  const fits = (sizeBytes: number) => {
    grownBytes = sizeBytes;
    return sizeBytes <= Math.min(diskBytes || Number.POSITIVE_INFINITY, bavail * bsize);
  };
  try {
    const { volume, inside = '', prefix } = started;
    const read = (tar: Readable) =>
      captureTar(tar, {
        file,
        prefix,
        owner: runAs,
        // Related dependencies may have the same prefix.
        isOnlyChanged: volume === undefined,
        mayContinue: sizeBytes => fits(sizeBytes) && mayContinueJob(options, job),
        onEntry: index.add,
      });
    if (volume !== undefined) return await host.engine.readVolume({ volume, inside }, read);
    const captured = await host.engine.readContainer(
      { container: job.name, directory: prefix, inside: '' },
      read,
    );
    if (!captured)
      throw new CannotRun(`The command left nothing under its prefix ${prefix}, or its image has no tar.`);
    return captured;
  } catch (error) {
    await rm(file, { force: true });
    const isTooBig = diskBytes > 0 && grownBytes > diskBytes;
    if (error instanceof CaptureStopped && isTooBig && !options.stopping.aborted)
      throw new JobEnded({ kind: 'too_big' });
    throw error;
  }
}

/** Uses the artifact of an earlier compile of the same recipe, if there is one, and shows the log of that compile. */
export async function reuseArtifact(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
  recipe: Recipe,
): Promise<boolean> {
  const { dataDirectory, db } = options;
  const { dependency } = job;
  const found = findCompiledRecipe(db, recipe.recipeHash, dependency);
  if (!found) return false;
  const isOwn = found.ownerId === dependency.ownerId;
  const logPath = compiledLogPath(dataDirectory, found.id);
  const reused = { logOf: isOwn && existsSync(logPath) ? found.id : undefined };
  if (!useArtifact(options, job, { ...recipe, hash: found.artifact.hash, reused })) return false;
  const hasLog = reused.logOf !== undefined && (await log.copy(logPath));
  const whose = found.id === dependency.id ? '' : ` by the dependency ${found.name}`;
  const line = 'the same archive was compiled in the same way before';
  if (!isOwn) await log.line(`${line}, by another account, whose log is not shown: its artifact is used`);
  else if (hasLog)
    await log.line(`${line}${whose}: its artifact is used, and the log above is that of its compile`);
  else await log.line(`${line}${whose}: its artifact is used`);
  await makeReady(options, job, found.artifact.hash);
  return true;
}

/** Makes a stored artifact the result of the job. False if its file is missing. */
export function useArtifact(
  options: CompileJobOptions,
  job: CompileJob,
  artifact: NonNullable<CompileJob['artifact']>,
): boolean {
  job.held.defer(options.artifacts.hold(artifact.hash));
  if (!existsSync(artifactPath(options.dataDirectory, artifact.hash))) return false;
  job.artifact = artifact;
  return true;
}
