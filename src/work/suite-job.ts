// What is particular to a build as a job: its source, variables, cache and dependencies, the plan made of them, and a
// checkout beside the suite's container where its image has no git.

import { join } from 'node:path';
import { isFinishedBuild } from '../domain/build.ts';
import { CHECKOUT_STEP, volumeCheckoutPlan } from '../domain/container/checkout-script.ts';
import { type Mount, workspaceVolumeName } from '../domain/container/container-plan.ts';
import {
  type AttachedDependency,
  COMMAND_STEP,
  launchStep,
  planSuite,
  type SuiteOptions,
  suiteCheckout,
} from '../domain/container/suite-plan.ts';
import { classifyOutcome, type Outcome, type Verdict } from '../domain/container/verdict.ts';
import { HOST_IMAGE } from '../domain/names.ts';
import { GitFailure } from '../engine/git/git.ts';
import { createOutput } from '../engine/output.ts';
import { type Build, claimBuild, findBuild, findBuildRequest } from '../store/builds.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import { instanceOf } from '../store/database/settings.ts';
import { findProject, type Project } from '../store/projects.ts';
import { listFirstWaitingBuilds, listRunningBuilds } from '../store/queue.ts';
import { findSuite, listAllVariables } from '../store/suites.ts';
import { moveBuild } from '../store/transition.ts';
import { logFailure } from './fetch-mirror.ts';
import { followContainer } from './follow-container.ts';
import {
  beginOutput,
  CannotRun,
  chooseImage,
  describeJob,
  type Job,
  JobEnded,
  type JobOptions,
  jobWork,
  removeResources,
} from './job.ts';
import { findSource } from './source.ts';
import {
  environmentFile,
  isTooMuch,
  keepVariables,
  readKeptSecrets,
  TOO_MUCH,
  type Variable,
} from './suite-variables.ts';
import { whileWanted } from './wanted.ts';

export type SuiteJobOptions = JobOptions & {
  /** The artifacts of a suite's dependencies, ready to mount. */
  attach(suiteId: bigint): Promise<Attached>;
  /** The volume that the suite keeps /srv/cache in. */
  openCache(suiteId: bigint): string;
  /** Waits for its turn with the project's Git host. */
  fetchSource(project: Project, hash: string, signal: AbortSignal): Promise<void>;
  onFinished(build: Build): void;
};

/** Builds, as work of the queue. No build of a project starts while `isSourceMissing`. */
export const suiteWork = (options: SuiteJobOptions, isSourceMissing: (projectId: bigint) => boolean) =>
  jobWork(options, 'build', {
    listWaiting: () =>
      listFirstWaitingBuilds(options.db)
        .filter(({ projectId }) => !isSourceMissing(projectId))
        .map(({ id, projectId }) => ({ id, owner: `project ${projectId}` })),
    claim: id => claimBuild(options.db, id),
    listRunning: () => listRunningBuilds(options.db),
    createJob: build => createSuiteJob(options, build),
  });

export type Attached = {
  /** In the order in which they are launched. */
  dependencies: AttachedDependency[];
  /** In the order in which they are searched, each once. */
  prefixes: string[];
  mounts: Mount[];
};

/** A build as a job, with what its suite has attached once that is known. */
type SuiteJob = Job<Verdict> & { launched: AttachedDependency[] };

function createSuiteJob(options: SuiteJobOptions, build: Build): Job<Verdict> {
  const { db } = options;
  const find = () => findBuild(db, build.projectId, build.id);
  const base = describeJob(options, 'build', build, () => find()?.cancelBecause !== null);
  const job: SuiteJob = {
    ...base,
    ownerTopic: `project:${build.projectId}`,
    resources: {
      containers: [base.name, checkoutName(base)],
      volumes: [workspaceVolumeName(instanceOf(db), build.id)],
    },
    isRepeatable: false,
    launched: [],
    describeStep: name => describeStep(options, build, job.launched, name),
    async start(log, release) {
      // Read once: what the container gets is what is masked.
      const variables = listAllVariables(db, build.suiteId);
      job.secrets = variables.map(({ content }) => content);
      return start(options, build, job, variables, log, release);
    },
    async resume(log) {
      const kept = await readKeptSecrets(db.vault, build.id, job.directory);
      job.secrets = kept ?? listAllVariables(db, build.suiteId).map(({ content }) => content);
      return followContainer(options, job, log, undefined);
    },
    classify: outcome =>
      classifyOutcome(outcome, {
        ...options.settings,
        attempts: build.attempts,
        cancelBecause: find()?.cancelBecause ?? null,
      }),
    record({ event, exitCode, error }, changes) {
      const moved = moveBuild(db, build.id, event, { exitCode, error, ...changes });
      if (moved && isFinishedBuild(moved.buildState)) options.onFinished(moved);
    },
  };
  return job;
}

function describeStep(
  { db }: SuiteJobOptions,
  build: Build,
  launched: readonly AttachedDependency[],
  name: string,
): string {
  if (name === CHECKOUT_STEP) return `checkout of ${build.commitRef}`;
  if (name === COMMAND_STEP) {
    const suite = findSuite(db, build.projectId, build.suiteId);
    return `suite ${build.suiteName}: ${firstLine(suite?.command ?? '')}`;
  }
  const dependency = launched.find((_, index) => name === launchStep(index));
  return dependency
    ? `launch ${dependency.name}: ${firstLine(dependency.launchCommand)}`
    : `launch of dependency ${name.replace('launch-', '')}`;
}

function firstLine(text: string): string {
  const [line = '', ...more] = text.trim().split('\n');
  return more.length > 0 ? `${line} …` : line;
}

async function start(
  options: SuiteJobOptions,
  build: Build,
  job: SuiteJob,
  variables: readonly Variable[],
  log: LogWriter,
  release: () => void,
): Promise<Outcome> {
  const { db, host } = options;
  const project = findProject(db, build.projectId);
  const suite = findSuite(db, build.projectId, build.suiteId);
  const request = findBuildRequest(db, build.projectId, build.buildRequestId);
  if (!project || !request) return { kind: 'canceled' };
  if (!suite) throw new CannotRun('The suite was deleted before its build could start.');
  if (isTooMuch(variables)) throw new CannotRun(TOO_MUCH);
  const cacheVolume = options.openCache(suite.id);
  const source = await findSource(options, project, build.commitRef);
  if (!source) {
    // Others may run meanwhile. This build then waits for a slot again.
    release();
    await fetchMissingSource(options, build, project, log);
    return { kind: 'not_started' };
  }
  for (const note of source.notes) await log.line(note);
  const [{ image, network }, attached] = await Promise.all([
    host.prepare(chooseImage(options, suite.image)),
    options.attach(suite.id),
    beginOutput(job).then(() => keepVariables(db.vault, build.id, job.directory, variables)),
  ]);
  const planned: SuiteOptions = {
    instance: instanceOf(db),
    build: { id: build.id, commitRef: build.commitRef, nonce: job.nonce },
    project,
    suite,
    branch: request.branch,
    ...(variables.length > 0 && { environmentFile: environmentFile(job.directory) }),
    dependencies: attached.dependencies,
    prefixes: attached.prefixes,
    artifactMounts: attached.mounts,
    cacheVolume,
    image,
    network,
    limits: options.settings,
    mirror: source.mirror,
    submoduleMirrors: source.submoduleMirrors,
    submodules: source.submodules,
    hasLfs: source.hasLfs,
    outputFile: job.outputFile,
  };
  job.launched = attached.dependencies;
  if (image.hasGit) return followContainer(options, job, log, planSuite(planned));
  const workspaceVolume = workspaceVolumeName(planned.instance, build.id);
  const outcome = await checkOutBeside(options, job, log, planned, workspaceVolume);
  if (outcome.kind !== 'exit' || outcome.status !== 0) return outcome;
  // The checkout may have taken longer than what was attached is kept for.
  const { dependencies, prefixes, mounts } = await options.attach(suite.id);
  job.launched = dependencies;
  const plan = planSuite({ ...planned, dependencies, prefixes, artifactMounts: mounts, workspaceVolume });
  return followContainer(options, job, log, plan);
}

const checkoutName = ({ name }: { name: string }) => `${name}-checkout`;

/** For an image without git: the checkout is made by a container of the image `host`, in a volume. */
async function checkOutBeside(
  options: SuiteJobOptions,
  job: SuiteJob,
  log: LogWriter,
  planned: SuiteOptions,
  volume: string,
): Promise<Outcome> {
  const { host } = options;
  const { image } = await host.prepare(HOST_IMAGE);
  const beside = { ...job, name: checkoutName(job), outputFile: join(job.directory, 'checkout') };
  const suite = planSuite(planned);
  await createOutput(beside.outputFile);
  // Files of an attempt that ended while Docker was away do not belong to this one.
  await removeResources(options, job.resources);
  await host.engine.createVolume({ name: volume, labels: { ...suite.labels, kind: 'workspace' } });
  const plan = volumeCheckoutPlan({
    suite,
    host: image,
    step: suiteCheckout(planned),
    mirror: planned.mirror,
    submoduleMirrors: planned.submoduleMirrors,
    volume,
    outputFile: beside.outputFile,
    nonce: job.nonce,
  });
  const outcome = await followContainer(options, beside, log, plan);
  // The suite's own output is another file, read from its beginning.
  await log.beginAttempt();
  return outcome;
}

async function fetchMissingSource(
  options: SuiteJobOptions,
  build: Build,
  project: Project,
  log: LogWriter,
): Promise<void> {
  const { db } = options;
  const wanted = whileWanted(options, [
    [`build:${build.id}`, () => findBuild(db, build.projectId, build.id)?.cancelBecause === null],
    [`project:${project.id}`, () => findProject(db, project.id) !== undefined],
  ]);
  try {
    await log.line('what is to be checked out is not on this server any more, and is fetched again');
    await options.fetchSource(project, build.commitRef, wanted.signal);
  } catch (error) {
    if (options.stopping.aborted) throw error;
    if (!wanted.isWanted()) throw new JobEnded({ kind: 'canceled' });
    logFailure(options.log, 'source of a build could not be fetched', { build: build.id }, error);
    const reason = error instanceof GitFailure ? error.reason : (error as Error).message;
    throw new CannotRun(`The commit could not be fetched: ${reason}`);
  } finally {
    wanted.end();
  }
}
