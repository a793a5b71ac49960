// Runs a compile as a job: prepares its archive, compiles each recipe only once, and writes the files that the next server
// resumes from. save-artifact.ts stores the result.

import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type CompileVerdict,
  classifyCompile,
  hashRecipe,
  KEEP_STEP,
  LIBRARIES_STEP,
  planCompile,
  UNPACK_STEP,
} from '../domain/container/compile-plan.ts';
import { COMMAND_STEP } from '../domain/container/entry-script.ts';
import type { Outcome } from '../domain/container/verdict.ts';
import { compileObstacle } from '../domain/dependency.ts';
import type { ArchiveFormat } from '../domain/text/archive-format.ts';
import { BadArchive, formatOf, needsTar, writeTar } from '../engine/archive/archive-reader.ts';
import { listFirstCompiles } from '../store/compile-queue.ts';
import { type LogWriter, linkLog, removeLog } from '../store/data/log-file.ts';
import { archivePath, compiledLogPath, dependencyLogPath, jobDirectory } from '../store/data/paths.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import {
  beginCompileStep,
  type Dependency,
  findDependency,
  measureSteps,
  recordCompileNode,
} from '../store/dependencies.ts';
import { listRelated } from '../store/dependency-use.ts';
import { listCompiling } from '../store/queue.ts';
import { moveDependency } from '../store/transition.ts';
import { watchCancellation } from './cancellation.ts';
import { followContainer, startOnce } from './follow-container.ts';
import type { Slots } from './host-slots.ts';
import {
  CannotRun,
  chooseImage,
  createJobDirectory,
  describeJob,
  type Job,
  type JobOptions,
  jobWork,
  mayContinueJob,
  readJson,
  removeResources,
} from './job.ts';
import {
  type CompileJob,
  type CompileJobOptions,
  reuseArtifact,
  type StartedCompile,
  saveArtifact,
  useArtifact,
} from './save-artifact.ts';
import { writeEnvironment } from './suite-variables.ts';

/** Connects compiles to the queue. */
export const compileWork = (options: CompileJobOptions, slots: Pick<Slots, 'mayBegin'>) =>
  jobWork(options, 'dependency', {
    // The queue is read with every event: skip it while no compile may begin.
    listWaiting: () =>
      slots.mayBegin(['dependency'])
        ? listFirstCompiles(options.db).map(({ id, ownerId }) => ({ id, owner: `account ${ownerId}` }))
        : [],
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
    // In the same transaction: once the row is `compiling`, nobody may read the log or the files of the previous compile.
    if (claimed?.attempts === 1) {
      removeLog(dependencyLogPath(dataDirectory, id));
      rmSync(jobDirectory(dataDirectory, 'dependency', id), { recursive: true, force: true });
    }
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
    describeStep(name) {
      if (name === LIBRARIES_STEP) return undefined;
      if (name === UNPACK_STEP) return `unpacking the archive, ${dependency.archiveFileSize} bytes`;
      return `compiling ${dependency.name}: ${dependency.command.trim().split('\n')[0]}`;
    },
    onStepBegun(name) {
      if (name !== LIBRARIES_STEP) beginCompileStep(db, id, name);
    },
    start: log => start(options, job, log),
    resume: log => resume(options, job, log),
    classify: outcome => classifyCompile(outcome, { ...options.settings, attempts: dependency.attempts }),
    record({ event, error }, changes) {
      const { artifact } = job;
      if (event !== 'compile' || !artifact) return void moveDependency(db, id, event, { error, ...changes });
      const { hash, recipeHash, related, relatedIds, reused } = artifact;
      const recorded = {
        error,
        ...changes,
        artifactHash: hash,
        recipeHash,
        relatedArtifacts: related ? JSON.stringify(related) : null,
        ...(!reused && { compileSteps: measureSteps(db, id) }),
      };
      db.write(() => {
        if (moveDependency(db, id, event, recorded, relatedIds?.map(BigInt))) keepLog(options, job, reused);
      });
    },
  };
  return job;
}

/** Keeps the log of the compile that made the artifact for later compiles that use the artifact again. */
function keepLog(
  { dataDirectory }: CompileJobOptions,
  { dependency, logPath }: CompileJob,
  reused: { logOf: bigint | undefined } | undefined,
): void {
  const kept = compiledLogPath(dataDirectory, dependency.id);
  if (!reused) linkLog(logPath, kept);
  else if (reused.logOf === undefined) removeLog(kept);
  else if (reused.logOf !== dependency.id) linkLog(compiledLogPath(dataDirectory, reused.logOf), kept);
}

const startedFile = ({ directory }: CompileJob) => join(directory, 'begun');
const outcomeFile = ({ directory }: CompileJob) => join(directory, 'outcome');
const savedFile = ({ directory }: CompileJob) => join(directory, 'saved');
const tarFile = ({ directory }: CompileJob) => join(directory, 'archive.tar');

async function start(options: CompileJobOptions, job: CompileJob, log: LogWriter): Promise<Outcome> {
  const { db, host, artifacts } = options;
  const { dependency } = job;
  const relatedTo = listRelated(db, dependency.id);
  const failed = relatedTo.find(
    ({ compileState, artifactHash }) => compileObstacle(compileState, artifactHash !== null) === 'failed',
  );
  if (failed) throw new CannotRun(`It relates to ${failed.name}, which could not be compiled.`);
  const related = artifacts.listArtifacts(relatedTo);
  const { image, network } = await host.prepare(chooseImage(options, dependency.image));
  const { runAs } = options.settings;
  const archiveHash = dependency.archiveHash as string;
  const imageIdentity = await host.engine.identifyImage(image);
  const recipe = {
    recipeHash: hashRecipe({ archiveHash, dependency, imageIdentity, runAs, related }),
    related: related.map(({ hash }) => hash),
    relatedIds: relatedTo.map(({ id }) => id.toString()),
  };
  await lockRecipe(options, job, recipe.recipeHash);
  if (!dependency.forced && (await reuseArtifact(options, job, log, recipe)))
    return { kind: 'exit', step: COMMAND_STEP, status: 0, outOfMemory: false };

  await removeResources(options, job.resources);
  await createJobDirectory(job);
  const archive = await prepareArchive(options, job, log);
  const { mounts, layers, source } = await artifacts.attachToCompile(dependency, related);
  const { prefix } = dependency;
  const started: StartedCompile = { ...recipe, prefix, ...source };
  await writeFile(startedFile(job), JSON.stringify(started), { flush: true });
  const environmentFile = await writeEnvironment(job.directory, [], related);
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
    ...(environmentFile && { environmentFile }),
    artifactMounts: mounts,
    ...(host.engine.isRemote && {
      remote: {
        layers,
        writable: prefix,
        kept: [{ directory: prefix, inside: '' }],
        deadlineAt: job.deadlineAt,
      },
    }),
  });
  return finish(
    options,
    job,
    log,
    started,
    await followContainer(options, job, log, async signal => {
      await startOnce(host, plan)(signal);
      const node = host.engine.isRemote ? await host.engine.findNode(plan.name) : undefined;
      if (node !== undefined) recordCompileNode(db, dependency.id, node);
    }),
  );
}

async function resume(options: CompileJobOptions, job: CompileJob, log: LogWriter): Promise<Outcome> {
  const started = await readJson<StartedCompile>(startedFile(job));
  if (!started) return { kind: 'lost' };
  await lockRecipe(options, job, started.recipeHash);
  const saved = await readJson<CompileJob['artifact']>(savedFile(job));
  if (saved && useArtifact(options, job, saved))
    return { kind: 'exit', step: COMMAND_STEP, status: 0, outOfMemory: false };
  const outcome =
    (await readJson<Outcome>(outcomeFile(job))) ?? (await followContainer(options, job, log, undefined));
  return finish(options, job, log, started, outcome);
}

async function finish(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
  started: StartedCompile,
  outcome: Outcome,
): Promise<Outcome> {
  // The artifact, or the record of a full disk, may need its space.
  await rm(tarFile(job), { force: true });
  if (outcome.kind !== 'exit' || outcome.status !== 0) return outcome;
  // The log is past the exit record by now, so a server that resumes would not see it again.
  await writeFile(outcomeFile(job), JSON.stringify(outcome), { flush: true });
  beginCompileStep(options.db, job.dependency.id, KEEP_STEP);
  await saveArtifact(options, job, log, started);
  // Containers and volumes are removed before the verdict is recorded, so a server that resumes cannot save it again.
  await writeFile(savedFile(job), JSON.stringify(job.artifact), { flush: true });
  return outcome;
}

/** Waits for other compiles of the recipe, and holds the lock until this one is recorded. */
async function lockRecipe(options: CompileJobOptions, job: CompileJob, recipeHash: string): Promise<void> {
  const cancellation = watchCancellation(options, [[job.topic, () => job.stopReason() === undefined]]);
  try {
    job.held.use(await options.recipeMutex(recipeHash, cancellation.signal));
  } finally {
    cancellation.stopWatching();
  }
}

/** Returns the archive in a format that the container can read. */
async function prepareArchive(
  options: CompileJobOptions,
  job: CompileJob,
  log: LogWriter,
): Promise<{ file: string; format: ArchiveFormat }> {
  const file = archivePath(options.dataDirectory, job.dependency.archiveHash as string);
  const tar = tarFile(job);
  try {
    const format = await formatOf(file);
    if (!format) throw new BadArchive('it is neither a tar nor a zip');
    if (!needsTar(format)) {
      // Older versions stored it with a mode that the user of the container cannot read.
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
      throw new CannotRun('The archive is missing from the data directory: upload it again.');
    throw error;
  }
}
