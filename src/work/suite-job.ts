// Runs a build as a job: collects its source, variables, cache and dependencies, plans its container, and makes the checkout
// in a separate container if the image has no git.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isFinishedBuild } from '../domain/build.ts';
import { CHECKOUT_STEP, volumeCheckoutPlan } from '../domain/container/checkout-script.ts';
import { forkCacheName, workspaceVolumeName } from '../domain/container/container-plan.ts';
import { COMMAND_STEP } from '../domain/container/entry-script.ts';
import {
  findLaunched,
  type LaunchedDependency,
  planSuite,
  type SuiteOptions,
  suiteCheckout,
} from '../domain/container/suite-plan.ts';
import { classifyOutcome, type Outcome, type Verdict } from '../domain/container/verdict.ts';
import { HOST_IMAGE } from '../domain/names.ts';
import { stepsBetween } from '../domain/result/history.ts';
import { hasBegin, signalBegin } from '../engine/begin.ts';
import { GitFailure } from '../engine/git/git.ts';
import { createOutput } from '../engine/output.ts';
import { type Build, claimBuild, findBuild, findBuildRequest, recordNode } from '../store/builds.ts';
import { markCacheUsed } from '../store/caches.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { findProject, type Project } from '../store/projects.ts';
import { listFirstWaitingBuilds, listRunningBuilds } from '../store/queue.ts';
import type { ArtifactCounts } from '../store/result/build-artifacts.ts';
import { recordFailureLines } from '../store/result/failure-lines.ts';
import { type PreparedReport, recordReport } from '../store/result/reports.ts';
import { findSuite, listAllVariables, type Variable } from '../store/suites.ts';
import { moveBuild } from '../store/transition.ts';
import { watchCancellation } from './cancellation.ts';
import type { EarlyStarts } from './early-start.ts';
import { followContainer, startOnce } from './follow-container.ts';
import {
  CannotRun,
  createJobDirectory,
  describeJob,
  type Job,
  JobEnded,
  type JobOptions,
  jobWork,
  readJson,
  removeResources,
} from './job.ts';
import { type Attached, type PrepareOptions, prepareSuite } from './prepare-suite.ts';
import { collectArtifacts, workspacePaths } from './result/collect-artifacts.ts';
import { collectTests } from './result/collect-tests.ts';
import { recordPresentInputs, recordUsedInputs, variablesOf } from './result/record-inputs.ts';
import { logFailure } from './source/fetch-mirror.ts';
import { findSource, type SourceProject, trustedSource } from './source/source.ts';
import { environmentFileIn, readSecrets, writeEnvironment, writeSecrets } from './suite-variables.ts';

type SuiteJobOptions = JobOptions &
  PrepareOptions & {
    early: Pick<EarlyStarts, 'claim' | 'take'>;
    /** Queues a fetch of the commit, and resolves when it is done. */
    fetchSource(project: SourceProject, hash: string, signal: AbortSignal): Promise<void>;
    onFinished(build: Build): void;
  };

/** Connects builds to the queue. No build of a project starts while `isSourceMissing`. */
export const suiteWork = (options: SuiteJobOptions, isSourceMissing: (projectId: bigint) => boolean) =>
  jobWork(options, 'build', {
    listWaiting: () =>
      listFirstWaitingBuilds(options.db)
        .filter(({ projectId }) => !isSourceMissing(projectId))
        .map(({ id, projectId }) => ({ id, owner: `project ${projectId}` })),
    claim: id =>
      options.db.write(() => {
        const build = claimBuild(options.db, id);
        if (!build) return undefined;
        recordPresentInputs(options, build);
        markCacheUsed(options.db, build.suiteId);
        options.early.claim(id);
        return build;
      }),
    listRunning: () => listRunningBuilds(options.db),
    createJob: build => createSuiteJob(options, build),
  });

/** What the log needs to know of a dependency that is started. */
type Launched = Pick<LaunchedDependency, 'name' | 'launchCommand' | 'launchSeconds'>;

type SuiteJob = Job<Verdict> & { launched: Launched[] };

/** For a server that resumes: the dependencies may change meanwhile. Missing if there are none. */
const launchedFile = ({ directory }: SuiteJob) => join(directory, 'launched');

function createSuiteJob(options: SuiteJobOptions, build: Build): Job<Verdict> {
  const { db } = options;
  const find = () => findBuild(db, build.projectId, build.id);
  const base = describeJob(options, 'build', build, () => find()?.cancelBecause !== null);
  let counts: Partial<ArtifactCounts> = {};
  let report: PreparedReport | undefined;
  /** When the steps of this attempt began. Undefined if another server started it. */
  let marks: { name: string; at: number }[] | undefined = [
    { name: 'prepare', at: build.startedAt ?? Date.now() },
  ];
  const job: SuiteJob = {
    ...base,
    ownerTopic: `project:${build.projectId}`,
    resources: resourcesOf(db, build, base),
    isRepeatable: false,
    launched: [],
    describeStep: name => describeStep(options, build, job.launched, name),
    onStepBegun(name) {
      const dependency = findLaunched(job.launched, name);
      marks?.push({ name: dependency ? `launch ${dependency.name}` : name, at: Date.now() });
    },
    describeEnd(name, durationMs) {
      const dependency = findLaunched(job.launched, name);
      if (!dependency) return undefined;
      const time = durationMs === undefined ? '' : ` in ${(durationMs / 1000).toFixed(1)} s`;
      return `${dependency.name} started${time}`;
    },
    async start(log, release) {
      // Read once, so that exactly the values that the container gets are masked.
      const variables = variablesOf(db, build);
      job.secrets = variables.map(({ content }) => content);
      const early = options.early.take(build.id);
      try {
        return await start(options, build, job, variables, log, release, early);
      } finally {
        // What it has in Docker is removed next.
        await (await early)?.settle();
      }
    },
    async resume(log) {
      marks = undefined;
      const kept = await readSecrets(db.vault, build.id, job.directory);
      job.secrets = kept ?? variablesOf(db, build).map(({ content }) => content);
      job.launched = (await readJson<Launched[]>(launchedFile(job))) ?? [];
      if (hasBegin(job.directory)) {
        // A server that was killed may not have let it run.
        await options.host.engine.protectNetwork();
        job.held.use(signalBegin(job.directory));
      }
      return followContainer(options, job, log, undefined);
    },
    async collect(outcome, log) {
      marks?.push({ name: 'collect', at: Date.now() });
      const collected = await collectArtifacts(options, build, job, outcome, log);
      counts = collected.counts;
      const tests = await collectTests(options, build, job, collected.entries);
      report = tests.report;
      return [...collected.lines, ...tests.lines];
    },
    async readLog({ event }) {
      if (event !== 'fail' && event !== 'error' && event !== 'time_out') return;
      try {
        await recordFailureLines(db, build, job.logPath);
      } catch (error) {
        // The verdict does not depend on it.
        options.log.error('error lines of a build could not be recorded', { build: build.id, cause: error });
      }
    },
    classify: outcome =>
      classifyOutcome(outcome, {
        ...options.settings,
        attempts: build.attempts,
        cancelBecause: find()?.cancelBecause ?? null,
        findLaunched: step => findLaunched(job.launched, step),
      }),
    async record({ event, exitCode, error }, changes) {
      const tests = report && { tests: report.counts };
      const steps = event !== 'requeue' &&
        marks?.some(({ name }) => name === COMMAND_STEP) && { steps: stepsBetween(marks, Date.now()) };
      const moved = await db.writeTogether(() => {
        const changed = moveBuild(db, build.id, event, {
          exitCode,
          error,
          ...counts,
          ...tests,
          ...steps,
          ...changes,
        });
        if (changed && report) recordReport(db, report);
        if (changed && isFinishedBuild(changed.buildState)) markCacheUsed(db, changed.suiteId);
        return changed;
      });
      if (moved && isFinishedBuild(moved.buildState)) options.onFinished(moved);
    },
  };
  return job;
}

function describeStep(
  { db }: SuiteJobOptions,
  build: Build,
  launched: readonly Launched[],
  name: string,
): string {
  if (name === CHECKOUT_STEP) return `checkout of ${build.commitRef}`;
  if (name === COMMAND_STEP) {
    const suite = findSuite(db, build.projectId, build.suiteId);
    return `suite ${build.suiteName}: ${firstLine(suite?.command ?? '')}`;
  }
  const dependency = findLaunched(launched, name);
  return dependency
    ? `launch ${dependency.name}: ${firstLine(dependency.launchCommand)}`
    : `launch of dependency ${name.replace('launch-', '')}`;
}

function firstLine(text: string): string {
  const [line = '', ...more] = text.trim().split('\n');
  return more.length > 0 ? `${line} …` : line;
}

const WITHOUT_VARIABLES =
  'the variables of the suite are not set, because this is a local run of a collaborator: the owner of the project can allow them in its settings, “Variables in local runs”';

async function start(
  options: SuiteJobOptions,
  build: Build,
  job: SuiteJob,
  variables: readonly Variable[],
  log: LogWriter,
  release: () => void,
  starting: ReturnType<EarlyStarts['take']>,
): Promise<Outcome> {
  const { db, host } = options;
  const found = findProject(db, build.projectId);
  const suite = findSuite(db, build.projectId, build.suiteId);
  const request = findBuildRequest(db, build.projectId, build.buildRequestId);
  const project = found && request && chooseSource(options, found, request);
  if (!project) return { kind: 'canceled' };
  if (!suite) throw new CannotRun('The suite was deleted before its build started.');
  const source = await findSource(options, project, build.commitRef);
  if (!source) {
    // The fetch does not occupy the slot. The build is queued again afterwards.
    release();
    await (await starting)?.remove();
    await fetchMissingSource(options, build, project, log);
    return { kind: 'not_started' };
  }
  for (const note of source.notes) await log.line(note);
  if (request.local && request.withoutVariables && listAllVariables(db, suite.id).length > 0)
    await log.line(WITHOUT_VARIABLES);
  const {
    image,
    imageName,
    attached,
    plan: prepared,
  } = await prepareSuite(options, suite, request, build.id);
  const recordInputs = ({ dependencies }: Attached) =>
    recordUsedInputs(options, build, {
      command: suite.command,
      image: imageName,
      imageId: image.imageId,
      variables,
      dependencies,
    });
  recordInputs(attached);
  job.resources = resourcesOf(db, build, job, { hasGit: image.hasGit, isCacheKept: prepared.isCacheKept });
  const early = await starting;
  if (!early) await createJobDirectory(job);
  await writeSecrets(db.vault, build.id, job.directory, variables);
  const planned: SuiteOptions = {
    ...prepared,
    build: {
      id: build.id,
      commitRef: build.commitRef,
      nonce: job.nonce,
      startedAt: build.startedAt ?? Date.now(),
    },
    project,
    branch: request.branch,
    tag: request.tag,
    mirror: source.mirror,
    snapshot: source.snapshot,
    submoduleMirrors: source.submoduleMirrors,
    submodules: source.submodules,
    hasLfs: source.hasLfs,
    outputFile: job.outputFile,
    ...(host.engine.isRemote && {
      remote: { layers: attached.layers, kept: workspacePaths(suite), deadlineAt: job.deadlineAt },
    }),
  };
  const begin = async (plan: SuiteOptions, { dependencies, used, mounts, layers }: Attached) => {
    job.launched = dependencies.map(({ name, launchCommand, launchSeconds }) => ({
      name,
      launchCommand,
      launchSeconds,
    }));
    if (job.launched.length > 0) await writeFile(launchedFile(job), JSON.stringify(job.launched));
    const written = await writeEnvironment(job.directory, variables, used);
    const environmentFile = written ?? (early && environmentFileIn(job.directory));
    const container = planSuite({
      ...plan,
      dependencies,
      used,
      artifactMounts: mounts,
      ...(environmentFile && { environmentFile }),
      ...(plan.remote && { remote: { ...plan.remote, layers } }),
    });
    if (early?.fits(container))
      return followContainer(options, job, log, async signal => {
        job.held.use(await early.begin(container));
        await startOnce(host, container, early.started)(signal);
      });
    await early?.remove();
    const start = startOnce(host, container);
    const outcome = await followContainer(options, job, log, async signal => {
      await start(signal);
      await recordNodeOf(options, build, container.name);
    });
    // A short command ends before its node is known.
    await recordNodeOf(options, build, container.name);
    return outcome;
  };
  if (image.hasGit) return begin(planned, attached);
  const workspaceVolume = workspaceVolumeName(planned.instance, build.id);
  const outcome = await checkOutInVolume(options, job, log, planned, workspaceVolume);
  if (outcome.kind !== 'exit' || outcome.status !== 0) return outcome;
  // The checkout may have taken longer than the artifacts are reserved for.
  const attachedAgain = await options.attach(suite.id);
  recordInputs(attachedAgain);
  return begin({ ...planned, workspaceVolume }, attachedAgain);
}

function chooseSource(
  options: SuiteJobOptions,
  project: Project,
  request: Parameters<typeof trustedSource>[2],
): SourceProject {
  try {
    return trustedSource(options, project, request);
  } catch (error) {
    throw error instanceof GitFailure ? new CannotRun(error.reason) : error;
  }
}

/** Where the container runs, if there are several machines. */
async function recordNodeOf({ db, host }: SuiteJobOptions, build: Build, container: string): Promise<void> {
  const node = host.engine.isRemote ? await host.engine.findNode(container) : undefined;
  if (node !== undefined) recordNode(db, build.id, node);
}

/** Everything that a build may have in Docker, or what it needs if that is known: each removal is a request to Docker. */
function resourcesOf(
  db: Db,
  { id }: Build,
  job: { name: string },
  needs = { hasGit: false, isCacheKept: false },
): SuiteJob['resources'] {
  const instance = instanceOf(db);
  return {
    containers: [job.name, ...(needs.hasGit ? [] : [checkoutName(job)])],
    volumes: [
      ...(needs.hasGit ? [] : [workspaceVolumeName(instance, id)]),
      ...(needs.isCacheKept ? [] : [forkCacheName(instance, id)]),
    ],
  };
}

const checkoutName = ({ name }: { name: string }) => `${name}-checkout`;

/** Makes the checkout in a volume, with the image `host`, because the suite's image has no git. */
async function checkOutInVolume(
  options: SuiteJobOptions,
  job: SuiteJob,
  log: LogWriter,
  planned: SuiteOptions,
  volume: string,
): Promise<Outcome> {
  const { host } = options;
  const { image } = await host.prepare(HOST_IMAGE);
  const checkout = { ...job, name: checkoutName(job), outputFile: join(job.directory, 'checkout') };
  const suite = planSuite(planned);
  await createOutput(checkout.outputFile);
  // An attempt that ended while Docker was unavailable may have left files.
  await removeResources(options, job.resources);
  await host.engine.createVolume({ name: volume, owner: { ...suite.owner, kind: 'workspace' } });
  const plan = volumeCheckoutPlan({
    suite,
    host: image,
    step: suiteCheckout(planned),
    mirror: planned.mirror,
    snapshot: planned.snapshot,
    submoduleMirrors: planned.submoduleMirrors,
    volume,
    outputFile: checkout.outputFile,
    nonce: job.nonce,
  });
  const outcome = await followContainer(options, checkout, log, startOnce(host, plan));
  // The suite's output is another file, so its offsets start at 0.
  await log.beginAttempt();
  return outcome;
}

async function fetchMissingSource(
  options: SuiteJobOptions,
  build: Build,
  project: SourceProject,
  log: LogWriter,
): Promise<void> {
  const { db } = options;
  const cancellation = watchCancellation(options, [
    [`build:${build.id}`, () => findBuild(db, build.projectId, build.id)?.cancelBecause === null],
    [`project:${project.id}`, () => findProject(db, project.id) !== undefined],
  ]);
  try {
    await log.line('the commit is no longer on this server: fetching it again');
    await options.fetchSource(project, build.commitRef, cancellation.signal);
  } catch (error) {
    if (options.stopping.aborted) throw error;
    if (cancellation.isCanceled()) throw new JobEnded({ kind: 'canceled' });
    logFailure(options.log, 'source of a build could not be fetched', { build: build.id }, error);
    const reason = error instanceof GitFailure ? error.reason : (error as Error).message;
    throw new CannotRun(`The commit could not be fetched: ${reason}`);
  } finally {
    cancellation.stopWatching();
  }
}
