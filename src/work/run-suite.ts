// A build from claim to verdict: a plan, a container, one guarded move. Also picks up what ran when the server stopped.

import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isFinishedBuild } from '../domain/build.ts';
import { CHECKOUT_STEP, volumeCheckoutPlan } from '../domain/container/checkout-script.ts';
import { type Mount, resourceName } from '../domain/container/container-plan.ts';
import {
  type AttachedDependency,
  COMMAND_STEP,
  type Limits,
  launchStep,
  planSuite,
  type SuiteOptions,
  suiteCheckout,
} from '../domain/container/suite-plan.ts';
import {
  canceledBuild,
  classifyOutcome,
  retryBuild,
  type StopReason,
  type Verdict,
} from '../domain/container/verdict.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { hideHostPaths } from '../domain/host-paths.ts';
import { maskText } from '../domain/text/mask.ts';
import { EngineRefused, EngineUnavailable, ImageMissing } from '../engine/docker/docker.ts';
import { HOST_IMAGE } from '../engine/docker/image.ts';
import { createOutput } from '../engine/docker/output.ts';
import { GitFailure } from '../engine/git/git.ts';
import type { Log } from '../log.ts';
import { type Build, findBuild, findBuildRequest } from '../store/builds.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import { buildLogPath, jobDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/settings.ts';
import { defaultImage, type ImageSettings, isImageUsable } from '../store/images.ts';
import { findProject, type Project } from '../store/projects.ts';
import { findSuite, listAllVariables } from '../store/suites.ts';
import { moveBuild } from '../store/transition.ts';
import { logFailure } from './fetch-mirror.ts';
import {
  beginOutput,
  hasBegun,
  type Job,
  type JobOutcome,
  type JobParts,
  openJobLog,
  runJob,
} from './run-job.ts';
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

export type RunParts = JobParts & {
  db: Db;
  log: Log;
  dataDirectory: string;
  limits: Limits;
  /** The image to run in, for what names one or none; throws CannotRun where it may not be used. */
  imageFor(named: string | null): string;
  timeoutMs: number;
  logLimitBytes: number;
  diskBytes: number;
  cacheLimitBytes: number;
  /** Why a run must end: it outgrew a limit, or the disk is too full. */
  mustEnd(nonce: string): StopReason | undefined;
  /** Makes it so. */
  condemn(nonce: string): void;
  /** The artifacts of a suite's dependencies, ready to mount. */
  attach(suiteId: bigint): Promise<Attached>;
  /** The volume that the suite keeps /srv/cache in. */
  openCache(suiteId: bigint): string;
  onFinished(build: Build): void;
};

/** `fetchSource` waits for its turn with the project's Git host. */
export type SuiteParts = RunParts & {
  fetchSource(project: Project, hash: string, signal: AbortSignal): Promise<void>;
};

export type Attached = {
  /** In the order in which they are launched. */
  dependencies: AttachedDependency[];
  /** In the order in which they are searched, each once. */
  prefixes: string[];
  mounts: Mount[];
};

/** Told to the person whose suite could not be run: the build is errored, and the log says why. */
export class CannotRun extends Error {}

/** Something of what is to be checked out has to be fetched first. */
class SourceMissing extends Error {}

/** Looked at again when a container starts: what is named may have been allowed when it was written. */
export function chooseImage(db: Db, settings: ImageSettings, named: string | null): string {
  const image = named ?? defaultImage(db, settings);
  if (!isImageUsable(db, settings, image))
    throw new CannotRun(
      `The image ${image} was never imported, so it cannot be used: name another, or ask an administrator to bring it in with "assay image import FILE --name ${image}" or to set ANY_IMAGE.`,
    );
  return image;
}

/**
 * Runs a claimed build to its end; `resumed` when it was claimed before this server started. `release` is called when its
 * container has ended, before the verdict is safe on disk.
 */
export async function runSuite(
  parts: SuiteParts,
  build: Build,
  resumed: boolean,
  release: () => void,
): Promise<void> {
  const { db, host } = parts;
  const job = describeJob(parts, build);
  const left: Leftovers = { containers: [job.name], volumes: [] };
  const log = await openJobLog(job);
  let isLogEnded = false;
  const cancelBecause = () => findBuild(db, build.projectId, build.id)?.cancelBecause ?? null;
  const record = async (verdict: Verdict) => {
    // The log is whole and safe before anybody is told the verdict.
    if (!isLogEnded) await log.finish(verdict.lines.map(line => maskText(job.secrets, line)));
    isLogEnded = true;
    const { event, exitCode } = verdict;
    const error = verdict.error && maskText(job.secrets, verdict.error);
    const again = event === 'requeue';
    // The next try has the same name and place: nothing of this one may be in its way.
    if (again) await tidy(parts, job, left);
    const moved = moveBuild(db, build.id, event, { exitCode, error, ...(again && { nonce: null }) });
    if (moved && isFinishedBuild(moved.buildState)) parts.onFinished(moved);
    if (!again) tidy(parts, job, left);
  };
  /** It never began: this attempt does not count. */
  const giveBack = () => {
    const { attempts, spentMs } = build;
    const moved = moveBuild(db, build.id, 'requeue', { nonce: null, attempts: attempts - 1, spentMs });
    if (moved && isFinishedBuild(moved.buildState)) parts.onFinished(moved);
  };
  let isJudged = false;
  const end = async (verdict: Verdict) => {
    isJudged = true;
    try {
      await record(verdict);
    } catch (cause) {
      if (!isDiskFull(cause)) throw cause;
      // The disk may be full of what the container wrote, which nobody needs any more.
      for (const name of left.containers) await host.engine.removeContainer(name);
      await record(verdict);
    }
  };
  try {
    const begun = resumed && (await hasBegun(parts, job));
    if (resumed && !begun) await tidy(parts, job, everythingOf(job));
    // Read once: what the container gets is what is masked.
    const kept = begun ? await readKeptSecrets(db.vault, build.id, dirname(job.outputFile)) : undefined;
    const variables = kept ? [] : listAllVariables(db, build.suiteId);
    job.secrets = kept ?? variables.map(({ content }) => content);
    const outcome = begun
      ? await runJob(parts, job, log, undefined)
      : await start(parts, build, job, variables, log, left);
    if (outcome.kind === 'left') return;
    release();
    await end(
      classifyOutcome(outcome, {
        attempts: build.attempts,
        timeoutMs: parts.timeoutMs,
        memoryBytes: parts.limits.memoryBytes,
        diskBytes: parts.diskBytes,
        cacheLimitBytes: parts.cacheLimitBytes,
        cancelBecause: cancelBecause(),
      }),
    );
  } catch (cause) {
    if (parts.stopping.aborted) return;
    // The next look at the queue tries again: the verdict is in the output still.
    if (isDiskFull(cause) && isJudged) throw cause;
    if (cause instanceof SourceMissing) {
      // Others may run meanwhile; this one waits for a slot again when it is fetched.
      release();
      const failure = await fetchFirst(parts, build, log);
      if (parts.stopping.aborted) return;
      if (failure) return await end(failure);
      await log.close();
      return giveBack();
    }
    if (cause instanceof EngineUnavailable) {
      host.reportUnavailable(cause);
      const because = cancelBecause();
      if (because !== null) return await end(canceledBuild(because));
      // A call that was begun and not answered counts: it may never be.
      if (cause.reached)
        return await end(retryBuild(hideHostPaths(cause.message, parts.dataDirectory), build.attempts));
      // Before it is given back: whoever takes it next writes to the same file.
      await log.close();
      return giveBack();
    }
    if (!isExpected(cause)) parts.log.error('build could not be run', { build: build.id, cause });
    const error = hideHostPaths(sentence(cause), parts.dataDirectory);
    await end({ event: 'error', exitCode: null, error, lines: [error] });
  } finally {
    // Also where the disk is too full to end it: nobody else would.
    await log.close();
  }
}

/** Undefined when everything is there, else the end of the build. */
async function fetchFirst(parts: SuiteParts, build: Build, log: LogWriter): Promise<Verdict | undefined> {
  const { db } = parts;
  const project = findProject(db, build.projectId);
  const find = () => findBuild(db, build.projectId, build.id);
  const wanted = whileWanted(parts, [
    [`build:${build.id}`, () => find()?.cancelBecause === null],
    [`project:${build.projectId}`, () => findProject(db, build.projectId) !== undefined],
  ]);
  try {
    await log.line('what is to be checked out is not on this server any more, and is fetched again');
    if (project) await parts.fetchSource(project, build.commitRef, wanted.signal);
    return undefined;
  } catch (cause) {
    if (!wanted.isWanted()) return canceledBuild(find()?.cancelBecause ?? null);
    logFailure(parts.log, 'source of a build could not be fetched', { build: build.id }, cause);
    const error = hideHostPaths(
      `The commit could not be fetched: ${cause instanceof GitFailure ? cause.reason : (cause as Error).message}`,
      parts.dataDirectory,
    );
    return { event: 'error', exitCode: null, error, lines: [error] };
  } finally {
    wanted.end();
  }
}

const isExpected = (cause: unknown) =>
  cause instanceof CannotRun || cause instanceof ImageMissing || cause instanceof EngineRefused;

function sentence(cause: unknown): string {
  return isExpected(cause)
    ? (cause as Error).message
    : `The service could not run it: ${(cause as Error).message}`;
}

function describeJob(parts: RunParts, build: Build): Job {
  const suite = findSuite(parts.db, build.projectId, build.suiteId);
  return {
    topic: `build:${build.id}`,
    ownerTopic: `project:${build.projectId}`,
    name: resourceName({ instance: instanceOf(parts.db), kind: 'build', id: `${build.id}` }),
    nonce: build.nonce as string,
    outputFile: join(jobDirectory(parts.dataDirectory, 'build', build.id), 'output'),
    logPath: buildLogPath(parts.dataDirectory, build.id),
    logLimitBytes: parts.logLimitBytes,
    secrets: [],
    deadlineAt: (build.startedAt ?? Date.now()) + parts.timeoutMs - build.spentMs,
    diskBytes: parts.diskBytes,
    condemn: () => parts.condemn(build.nonce as string),
    stopReason: () => {
      const row = findBuild(parts.db, build.projectId, build.id);
      if (!row || row.cancelBecause !== null) return 'canceled';
      return parts.mustEnd(build.nonce as string);
    },
    describeStep: name => {
      if (name === CHECKOUT_STEP) return `checkout of ${build.commitRef}`;
      if (name === COMMAND_STEP) return `suite ${build.suiteName}: ${firstLine(suite?.command ?? '')}`;
      return `launch of dependency ${name.replace('launch-', '')}`;
    },
  };
}

function firstLine(text: string): string {
  const [line = '', ...more] = text.trim().split('\n');
  return more.length > 0 ? `${line} …` : line;
}

async function start(
  parts: RunParts,
  build: Build,
  job: Job,
  variables: readonly Variable[],
  log: LogWriter,
  left: Leftovers,
): Promise<JobOutcome> {
  const { db, host } = parts;
  const directory = dirname(job.outputFile);
  await log.beginAttempt();
  const project = findProject(db, build.projectId);
  const suite = findSuite(db, build.projectId, build.suiteId);
  const request = findBuildRequest(db, build.projectId, build.buildRequestId);
  if (!project || !request) return { kind: 'canceled' };
  if (!suite) throw new CannotRun('The suite was deleted before its build could start.');
  if (isTooMuch(variables)) throw new CannotRun(TOO_MUCH);
  const cacheVolume = parts.openCache(suite.id);
  const source = await findSource(parts, project, build.commitRef);
  if (!source) throw new SourceMissing();
  for (const note of source.notes) await log.line(note);
  const [{ image, network }, attached] = await Promise.all([
    host.prepare(parts.imageFor(suite.image)),
    parts.attach(suite.id),
    beginOutput(job).then(() => keepVariables(db.vault, build.id, directory, variables)),
  ]);
  const factsWith = ({ dependencies, prefixes, mounts }: Attached): SuiteOptions => ({
    instance: instanceOf(db),
    build: { id: build.id, commitRef: build.commitRef, nonce: job.nonce },
    project,
    suite,
    branch: request.branch,
    ...(variables.length > 0 && { environmentFile: environmentFile(directory) }),
    dependencies,
    prefixes,
    artifactMounts: mounts,
    cacheVolume,
    image,
    network,
    limits: parts.limits,
    mirror: source.mirror,
    submoduleMirrors: source.submoduleMirrors,
    submodules: source.submodules,
    hasLfs: source.hasLfs,
    outputFile: job.outputFile,
  });
  if (image.hasGit) return runJob(parts, naming(job, attached), log, planSuite(factsWith(attached)));
  Object.assign(left, everythingOf(job));
  const checkedOut = await checkOutBeside(parts, job, log, factsWith(attached));
  if (checkedOut.kind !== 'exit' || checkedOut.status !== 0) return checkedOut;
  // The checkout may have taken longer than what was attached is kept for.
  const anew = await parts.attach(suite.id);
  const plan = planSuite({ ...factsWith(anew), workspaceVolume: workspaceOf(job) });
  return runJob(parts, naming(job, anew), log, plan);
}

/** The steps of a job that launch something say what. */
function naming(job: Job, { dependencies }: Attached): Job {
  return {
    ...job,
    describeStep: name => {
      const launched = dependencies.find((_, index) => name === launchStep(index));
      return launched
        ? `launch ${launched.name}: ${firstLine(launched.launchCommand)}`
        : job.describeStep(name);
    },
  };
}

const workspaceOf = (job: Job) => `${job.name}-workspace`;
const checkoutOf = (job: Job) => `${job.name}-checkout`;

/** What a build has in Docker, beside its suite's cache. */
type Leftovers = { containers: string[]; volumes: string[] };

const everythingOf = (job: Job): Leftovers => ({
  containers: [job.name, checkoutOf(job)],
  volumes: [workspaceOf(job)],
});

/** For an image without git: the checkout is made by a container of the image `host`, in a volume. */
async function checkOutBeside(
  parts: RunParts,
  job: Job,
  log: LogWriter,
  facts: SuiteOptions,
): Promise<JobOutcome> {
  const { host } = parts;
  const { image } = await host.prepare(HOST_IMAGE);
  const beside = {
    ...job,
    name: checkoutOf(job),
    outputFile: join(dirname(job.outputFile), 'checkout'),
  };
  const suite = planSuite(facts);
  await createOutput(beside.outputFile);
  // What an attempt left that ended while Docker was away: its files are not this one's.
  await removeEverything(host.engine, everythingOf(job));
  await host.engine.createVolume({ name: workspaceOf(job), labels: { ...suite.labels, kind: 'workspace' } });
  const outcome = await runJob(
    parts,
    beside,
    log,
    volumeCheckoutPlan({
      suite,
      host: image,
      step: suiteCheckout(facts),
      mirror: facts.mirror,
      submoduleMirrors: facts.submoduleMirrors,
      volume: workspaceOf(job),
      outputFile: beside.outputFile,
      nonce: job.nonce,
    }),
  );
  // The suite's own output is another file, read from its beginning.
  await log.beginAttempt();
  return outcome;
}

/** The containers and files go when the verdict is written; what fails here is found by the sweep. */
async function tidy(parts: RunParts, job: Job, left: Leftovers): Promise<void> {
  try {
    await removeEverything(parts.host.engine, left);
    await rm(dirname(job.outputFile), { recursive: true, force: true });
  } catch (cause) {
    parts.log.debug('left for the sweep', { name: job.name, cause });
  }
}

async function removeEverything(engine: RunParts['host']['engine'], left: Leftovers): Promise<void> {
  for (const name of left.containers) await engine.removeContainer(name);
  for (const name of left.volumes) await engine.removeVolume(name);
}
