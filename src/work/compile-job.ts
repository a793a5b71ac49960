// What is particular to a compile as a job: its archive, its recipe, which is compiled once however many ask for it, and
// the files from which another server goes on. What the container left is kept by keep-artifact.ts.

import { randomBytes } from 'node:crypto';
import { chmod, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type CompileVerdict,
  classifyCompile,
  hashRecipe,
  planCompile,
  UNPACK_STEP,
} from '../domain/container/compile-plan.ts';
import { COMMAND_STEP } from '../domain/container/suite-plan.ts';
import type { Outcome } from '../domain/container/verdict.ts';
import type { ArchiveFormat } from '../domain/text/archive-format.ts';
import { BadArchive, formatOf, needsTar, writeTar } from '../engine/archive/archive-reader.ts';
import { type LogWriter, removeLog } from '../store/data/log-file.ts';
import { archivePath, dependencyLogPath } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/settings.ts';
import { type Dependency, findDependency } from '../store/dependencies.ts';
import { listCompiling, listFirstWaitingCompiles } from '../store/queue.ts';
import { moveDependency } from '../store/transition.ts';
import { followContainer } from './follow-container.ts';
import {
  beginOutput,
  CannotRun,
  chooseImage,
  describeJob,
  type Job,
  type JobOptions,
  jobWork,
  mayContinueJob,
  removeResources,
} from './job.ts';
import {
  type Begun,
  type CompileJob,
  type CompileJobOptions,
  findKeptArtifact,
  keepArtifact,
} from './keep-artifact.ts';
import { whileWanted } from './wanted.ts';

/** Compiles, as work of the queue. */
export const compileWork = (options: CompileJobOptions) =>
  jobWork(options, 'dependency', {
    listWaiting: () =>
      listFirstWaitingCompiles(options.db).map(({ id, ownerId }) => ({ id, owner: `account ${ownerId}` })),
    claim: id => claimCompile(options, id),
    listRunning: () => listCompiling(options.db),
    createJob: dependency => createCompileJob(options, dependency),
  });

function claimCompile({ db, dataDirectory }: JobOptions, id: bigint): Dependency | undefined {
  return db.write(() => {
    const claimed = moveDependency(db, id, 'start', {
      nonce: randomBytes(16).toString('hex'),
      attempts: (findDependency(db, id)?.attempts ?? 0) + 1,
      cancelRequested: false,
      error: null,
    });
    // Before anybody sees it compile: whoever follows it then must not read the log of the last compile.
    if (claimed?.attempts === 1) removeLog(dependencyLogPath(dataDirectory, id));
    return claimed;
  });
}

function createCompileJob(options: CompileJobOptions, dependency: Dependency): Job<CompileVerdict> {
  const { db } = options;
  const { id } = dependency;
  const base = describeJob(
    options,
    'dependency',
    dependency,
    () => findDependency(db, id)?.cancelRequested !== false,
  );
  const job: CompileJob = {
    ...base,
    dependency,
    resources: { containers: [base.name], volumes: options.artifacts.compileVolumes(id) },
    isRepeatable: true,
    describeStep: name =>
      name === UNPACK_STEP
        ? `unpacking the archive, ${dependency.archiveFileSize} bytes`
        : `compiling ${dependency.name}: ${dependency.command.trim().split('\n')[0]}`,
    start: log => start(options, job, log),
    resume: log => resume(options, job, log),
    classify: outcome => classifyCompile(outcome, { ...options.settings, attempts: dependency.attempts }),
    record({ event, error }, changes) {
      const { artifact } = job;
      moveDependency(db, id, event, {
        error,
        ...changes,
        ...(event === 'compile' &&
          artifact && { artifactHash: artifact.hash, recipeHash: artifact.recipeHash }),
      });
    },
  };
  return job;
}

const begunFile = ({ directory }: CompileJob) => join(directory, 'begun');
const outcomeFile = ({ directory }: CompileJob) => join(directory, 'outcome');
const tarFile = ({ directory }: CompileJob) => join(directory, 'archive.tar');

async function start(options: CompileJobOptions, job: CompileJob, log: LogWriter): Promise<Outcome> {
  const { db, host, artifacts } = options;
  const { dependency } = job;
  const related = artifacts.listRelatedArtifacts(dependency);
  const { image, network } = await host.prepare(chooseImage(options, dependency.image));
  const { runAs } = options.settings;
  const archiveHash = dependency.archiveHash as string;
  const recipeHash = hashRecipe({ archiveHash, dependency, image: image.reference, runAs, related });
  await enterRecipe(options, job, recipeHash);
  if (await findKeptArtifact(options, job, log, recipeHash))
    return { kind: 'exit', step: COMMAND_STEP, status: 0, outOfMemory: false };

  await removeResources(options, job.resources);
  await beginOutput(job);
  const archive = await prepareArchive(options, job, log);
  const { mounts, volume, inside } = await artifacts.attachToCompile(dependency, related);
  const begun: Begun = { recipeHash, prefix: dependency.prefix, volume, inside };
  await writeFile(begunFile(job), JSON.stringify(begun), { flush: true });
  const plan = planCompile({
    instance: instanceOf(db),
    dependency,
    nonce: job.nonce,
    format: archive.format,
    archiveFile: archive.file,
    outputFile: job.outputFile,
    image,
    network,
    limits: options.settings,
    prefixes: [...new Set(related.map(({ prefix }) => prefix))],
    artifactMounts: mounts,
  });
  return finish(options, job, log, begun, await followContainer(options, job, log, plan));
}

async function resume(options: CompileJobOptions, job: CompileJob, log: LogWriter): Promise<Outcome> {
  const begun = await readJson<Begun>(begunFile(job));
  if (!begun) return { kind: 'lost' };
  await enterRecipe(options, job, begun.recipeHash);
  const outcome =
    (await readJson<Outcome>(outcomeFile(job))) ?? (await followContainer(options, job, log, undefined));
  return finish(options, job, log, begun, outcome);
}

async function finish(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
  begun: Begun,
  outcome: Outcome,
): Promise<Outcome> {
  // Its space may be needed for the artifact, or to record that the disk is full.
  await rm(tarFile(job), { force: true });
  if (outcome.kind !== 'exit' || outcome.status !== 0) return outcome;
  // The output is read to its end by now: a server that takes over would find no exit record in it.
  await writeFile(outcomeFile(job), JSON.stringify(outcome), { flush: true });
  await keepArtifact(options, job, log, begun);
  return outcome;
}

/** Waits for other compiles of the recipe, and holds it until this one has been recorded. */
async function enterRecipe(options: CompileJobOptions, job: CompileJob, recipeHash: string): Promise<void> {
  const wanted = whileWanted(options, [[job.topic, () => job.stopReason() === undefined]]);
  try {
    job.held.use(await options.recipeMutex(recipeHash, wanted.signal));
  } finally {
    wanted.end();
  }
}

/** The archive as the container can read it. */
async function prepareArchive(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
): Promise<{ file: string; format: ArchiveFormat }> {
  const file = archivePath(options.dataDirectory, job.dependency.archiveHash as string);
  const tar = tarFile(job);
  try {
    const format = await formatOf(file);
    if (!format) throw new BadArchive('the archive is neither a tar nor a zip any more');
    if (!needsTar(format)) {
      // Another user reads it in the container; on the host the directory around it is closed.
      await chmod(file, 0o644);
      return { file, format };
    }
    await log.line(`reading the ${format} archive`);
    await writeTar({ file, format }, tar, () => mayContinueJob(options, job));
    await chmod(tar, 0o644);
    return { file: tar, format: 'tar' };
  } catch (error) {
    await rm(tar, { force: true });
    if (error instanceof BadArchive) throw new CannotRun(`The archive could not be read: ${error.message}.`);
    if ((error as NodeJS.ErrnoException).code === 'ENOENT')
      throw new CannotRun('The archive is not in the data directory any more: upload it again.');
    throw error;
  }
}

/** Undefined where the file is not there, or a crash left only a part of it. */
async function readJson<T>(file: string): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as T;
  } catch {
    return undefined;
  }
}
