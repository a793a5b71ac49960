// The lifecycle of a job, which is a build or a compile: claim it, start its container or resume one that a previous server
// started, classify the outcome, record it, clean up. suite-job.ts and compile-job.ts supply what differs.

import { mkdir, readFile, rm, rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Settings } from '../config.ts';
import { type Limits, resourceName } from '../domain/container/container-plan.ts';
import type { Outcome } from '../domain/container/verdict.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { hideHostPaths } from '../domain/host-paths.ts';
import { maskText } from '../domain/text/mask.ts';
import { CaptureStopped } from '../engine/archive/artifact-tar.ts';
import { hasNoEntry } from '../engine/begin.ts';
import { EngineRefused, EngineUnavailable, VolumeLost } from '../engine/engine.ts';
import { createOutput } from '../engine/output.ts';
import type { Log } from '../log.ts';
import { type LogWriter, openLog, removeLog } from '../store/data/log-file.ts';
import { buildLogPath, dependencyLogPath, jobDirectory } from '../store/data/paths.ts';
import type { Db } from '../store/database/db.ts';
import { instanceOf } from '../store/database/stored-values.ts';
import { defaultImage, type ImageSettings, isImageUsable } from '../store/images.ts';
import type { Disk } from './disk.ts';
import { type ContainerRun, type FollowOptions, mayHaveStarted } from './follow-container.ts';
import type { Run, WorkKind } from './queue.ts';

export type JobOptions = FollowOptions & {
  db: Db;
  log: Log;
  dataDirectory: string;
  disk: Pick<Disk, 'hasFreeSpace' | 'isNearlyFull' | 'stopReason' | 'evict'>;
  settings: Limits &
    ImageSettings &
    Pick<
      Settings,
      | 'timeoutMs'
      | 'retryLost'
      | 'logLimitBytes'
      | 'artifactLimitBytes'
      | 'diskBytes'
      | 'cacheLimitBytes'
      | 'network'
    >;
};

export type JobKind = 'build' | 'dependency';

/** A claimed row of a build or a dependency. */
type ClaimedRow = {
  id: bigint;
  nonce: string | null;
  attempts: number;
  startedAt: number | null;
  /** The duration of its earlier attempts. */
  spentMs: number;
};

type JobBase = Omit<ContainerRun, 'describeStep'> & {
  directory: string;
  logPath: string;
  attempts: number;
  spentMs: number;
  isCanceled(): boolean;
  /** Locks and reservations, released when the outcome is recorded or the server stops. */
  held: DisposableStack;
};

type JobVerdict = { event: string; error: string | null; lines: string[] };

export type Job<Verdict extends JobVerdict> = JobBase &
  ContainerRun & {
    /** What the job may have created in Docker. It is removed when the job ends. */
    resources: JobResources;
    /** Whether a later job has the same name and directory. */
    isRepeatable: boolean;
    /** Prepares a container and follows it until it ends. May throw CannotRun or JobEnded. */
    start(log: LogWriter, release: () => void): Promise<Outcome>;
    /** Follows a container that a previous server started. */
    resume(log: LogWriter): Promise<Outcome>;
    /**
     * Keeps what the container left, before the verdict is recorded and after the slot is free. Does not change the
     * outcome. Returns lines for the log. Repeated if the server is killed meanwhile.
     */
    collect?(outcome: Outcome, log: LogWriter): Promise<string[]>;
    /** Reads the finished log, before the verdict is recorded. Repeated if the server is killed meanwhile. */
    readLog?(verdict: Verdict): Promise<void>;
    classify(outcome: Outcome): Verdict;
    /** Moves the row to its next state. */
    record(verdict: Verdict, changes: { attempts?: number; spentMs?: number }): void | Promise<void>;
  };

type JobResources = { containers: string[]; volumes: string[] };

/** Assay cannot run the job. The user sees the message. */
export class CannotRun extends Error {}

/** Ends the job with this outcome. */
export class JobEnded extends Error {
  readonly outcome: Outcome;
  constructor(outcome: Outcome) {
    super(outcome.kind);
    this.outcome = outcome;
  }
}

/** Connects one kind of job to the queue. */
export function jobWork<Row extends ClaimedRow, Verdict extends JobVerdict>(
  options: JobOptions,
  kind: JobKind,
  rows: {
    listWaiting(): { id: bigint; owner: string }[];
    claim(id: bigint): Row | undefined;
    listRunning(): Row[];
    createJob(row: Row): Job<Verdict>;
  },
): WorkKind {
  const itemOf = (id: bigint) => ({ key: `${kind} ${id}`, groups: [kind] });
  const run =
    (row: Row, isResumed: boolean): Run =>
    release =>
      runJob(options, rows.createJob(row), isResumed, release);
  return {
    listWaiting: () =>
      rows.listWaiting().map(({ id, owner }) => ({
        ...itemOf(id),
        owner,
        enqueuedAt: id,
        claim() {
          const row = rows.claim(id);
          return row && run(row, false);
        },
      })),
    listClaimed: () => rows.listRunning().map(row => ({ ...itemOf(row.id), run: run(row, true) })),
  };
}

export const outputFileIn = (directory: string) => join(directory, 'output');

export function describeJob(
  options: JobOptions,
  kind: JobKind,
  row: ClaimedRow,
  isCanceled: () => boolean,
): JobBase {
  const { db, dataDirectory, disk } = options;
  const { id } = row;
  const nonce = row.nonce as string;
  const directory = jobDirectory(dataDirectory, kind, id);
  return {
    topic: `${kind}:${id}`,
    name: resourceName({ instance: instanceOf(db), kind, id: `${id}` }),
    nonce,
    directory,
    outputFile: outputFileIn(directory),
    logPath: (kind === 'build' ? buildLogPath : dependencyLogPath)(dataDirectory, id),
    secrets: [],
    attempts: row.attempts,
    spentMs: row.spentMs,
    deadlineAt: (row.startedAt ?? Date.now()) + options.settings.timeoutMs - row.spentMs,
    isCanceled,
    stopReason: () => (isCanceled() ? 'canceled' : disk.stopReason(nonce)),
    evict: () => disk.evict(nonce),
    isDiskFull: disk.isNearlyFull,
    held: new DisposableStack(),
  };
}

/**
 * Runs a claimed job until it ends. `isResumed` means that a server that stopped or a worker that failed had claimed it.
 * `release` frees the slot when the container has ended, before the verdict is recorded.
 */
async function runJob<Verdict extends JobVerdict>(
  options: JobOptions,
  job: Job<Verdict>,
  isResumed: boolean,
  release: () => void,
): Promise<void> {
  const openJobLog = () => openLog({ path: job.logPath, limitBytes: options.settings.logLimitBytes });
  let log = await openJobLog();
  try {
    let outcome: Outcome;
    try {
      const isRunning = isResumed && !hasNoEntry(job.directory) && (await mayHaveStarted(options, job));
      if (isResumed && !isRunning) {
        await removeFromDocker(options, job);
        await removeFiles(options, job);
        if (job.attempts === 1) {
          // Nothing has run yet, so the log starts from scratch.
          await log.close();
          removeLog(job.logPath);
          log = await openJobLog();
        }
      }
      if (!isRunning) await log.beginAttempt();
      outcome = await (isRunning ? job.resume(log) : job.start(log, release));
    } catch (error) {
      outcome = outcomeOf(options, job, error);
    }
    release();
    const lines = (await job.collect?.(outcome, log)) ?? [];
    await conclude(options, job, log, outcome, lines);
  } catch (error) {
    // The next server resumes the job.
    if (!options.stopping.aborted) throw error;
  } finally {
    job.held.dispose();
    await log.close();
  }
}

/** Converts an error to an outcome. Rethrows it if the server is stopping. */
function outcomeOf(options: JobOptions, job: JobBase, error: unknown): Outcome {
  if (options.stopping.aborted) throw error;
  if (error instanceof JobEnded) return error.outcome;
  if (error instanceof EngineUnavailable) options.host.reportUnavailable(error);
  // The stop may have caused the error.
  const reason = job.stopReason();
  if (reason) return { kind: reason };
  if (error instanceof CaptureStopped)
    return { kind: Date.now() >= job.deadlineAt ? 'timed_out' : 'disk_full' };
  if (isDiskFull(error)) return { kind: 'disk_full' };
  const hide = (message: string) => hideHostPaths(message, options.dataDirectory);
  if (error instanceof EngineUnavailable)
    // A call without an answer counts as an attempt. Otherwise, the job could be retried forever.
    return error.reached ? { kind: 'lost', reason: hide(error.message) } : { kind: 'not_started' };
  if (error instanceof VolumeLost) return { kind: 'lost' };
  const { message } = error as Error;
  if (error instanceof CannotRun || error instanceof EngineRefused)
    return { kind: 'cannot_run', reason: hide(message) };
  options.log.error('job could not be run', { job: job.topic, cause: error });
  return { kind: 'cannot_run', reason: hide(`The service could not run it: ${message}`) };
}

/** A container ends just after it has recorded its exit. Docker would start a process to kill it if it was removed before. */
const EXIT_MS = 200;

/** Records the verdict and cleans up. */
async function conclude<Verdict extends JobVerdict>(
  options: JobOptions,
  job: Job<Verdict>,
  log: LogWriter,
  outcome: Outcome,
  collected: readonly string[],
): Promise<void> {
  const isUndecided = outcome.kind === 'lost' || outcome.kind === 'not_started';
  const verdict = job.classify(isUndecided && job.isCanceled() ? { kind: 'canceled' } : outcome);
  const mask = (text: string) => maskText(job.secrets, text);
  // The next attempt may start as soon as the row has moved, with containers and volumes of the same names. The files
  // of a finished job stay until then: a server that is killed before it recorded the verdict left them for the next.
  const isRequeued = verdict.event === 'requeue';
  const mustCleanFirst = job.isRepeatable || isRequeued;
  let isLogFinished = false;
  const record = async () => {
    // The log is complete on disk before anybody sees the verdict.
    if (!isLogFinished) await log.finish([...collected, ...verdict.lines].map(mask));
    isLogFinished = true;
    options.live.publish([`log:${job.topic}`]);
    await job.readLog?.(verdict);
    if (mustCleanFirst) await removeFromDocker(options, job);
    if (isRequeued) await removeFiles(options, job);
    await job.record(
      { ...verdict, error: verdict.error === null ? null : mask(verdict.error) },
      outcome.kind === 'not_started' ? { attempts: job.attempts - 1, spentMs: job.spentMs } : {},
    );
  };
  try {
    await record();
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    // Free what the container wrote, and retry. Keep the output: it contains the exit status.
    await removeResources(options, job.resources);
    await record();
  }
  if (!mustCleanFirst) {
    if (outcome.kind === 'exit')
      await pause(EXIT_MS, undefined, { signal: options.stopping }).catch(() => {});
    await removeFromDocker(options, job);
  }
  if (!isRequeued) await removeFiles(options, job);
}

type Remains = Pick<Job<JobVerdict>, 'directory' | 'resources' | 'topic'>;

const removeFromDocker = (options: JobOptions, { resources, topic }: Remains) =>
  tryToRemove(options, topic, () => removeResources(options, resources));

/** Most directories have nothing but the output. A recursive removal takes several times as long. */
const removeFiles = (options: JobOptions, { directory, topic }: Remains) =>
  tryToRemove(options, topic, () =>
    unlink(outputFileIn(directory))
      .then(() => rmdir(directory))
      .catch(() => rm(directory, { recursive: true, force: true })),
  );

/** Never fails. The sweep removes what is left. */
async function tryToRemove(options: JobOptions, job: string, remove: () => Promise<void>): Promise<void> {
  try {
    await remove();
  } catch (error) {
    options.log.debug('left for the sweep', { job, cause: error });
  }
}

export async function removeResources(
  { host }: Pick<JobOptions, 'host'>,
  { containers, volumes }: JobResources,
): Promise<void> {
  for (const name of containers) await host.engine.removeContainer(name);
  for (const name of volumes) await host.engine.removeVolume(name);
}

/** Recreates the directory of the job, with an empty output file. */
export async function createJobDirectory({
  directory,
  outputFile,
}: Pick<JobBase, 'directory' | 'outputFile'>): Promise<void> {
  const create = () => mkdir(directory, { recursive: true, mode: 0o700 });
  const isNew = (await create()) !== undefined;
  if (!isNew) {
    await rm(directory, { recursive: true, force: true });
    await create();
  }
  await createOutput(outputFile);
}

/** Reads a file of the job's directory. Undefined if it is missing or incomplete after a crash. */
export async function readJson<T>(file: string): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as T;
  } catch {
    return undefined;
  }
}

/** Polled during long reads and writes by the server itself. */
export const mayContinueJob = (
  { stopping, disk }: JobOptions,
  job: Pick<JobBase, 'stopReason' | 'deadlineAt'>,
) =>
  !stopping.aborted && job.stopReason() === undefined && Date.now() < job.deadlineAt && disk.hasFreeSpace();

/** Checks the image again at the start, because ANY_IMAGE may have been on when the suite was saved. */
export function chooseImage(
  { db, settings }: Pick<JobOptions, 'db' | 'settings'>,
  named: string | null,
): string {
  const image = named ?? defaultImage(db, settings);
  if (!isImageUsable(db, settings, image))
    throw new CannotRun(
      `The image ${image} was never imported: choose another one, or ask an administrator to run "assay image import FILE --name ${image}" or to set ANY_IMAGE.`,
    );
  return image;
}
