// One container from start to verdict, for suites and compiles alike: its output into the log, masked; its end by exit,
// timeout, cancel or loss. What the verdict means for a row is the caller's.

import { once } from 'node:events';
import { mkdir, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { ContainerPlan } from '../domain/container/container-plan.ts';
import { RELAYED_STATUS } from '../domain/container/entry-script.ts';
import type { Outcome, StopReason } from '../domain/container/verdict.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { createMask, maskText } from '../domain/text/mask.ts';
import { EngineUnavailable, ImageMissing, isRefused, VolumeLost } from '../engine/docker/docker.ts';
import { createOutput, followOutput, releaseOutput } from '../engine/docker/output.ts';
import type { Live } from '../live.ts';
import { type LogWriter, openLog } from '../store/data/log-file.ts';
import type { ContainerHost } from './container-host.ts';

export type Job = {
  /** Topic of the row: poked when it is canceled or deleted. */
  topic: string;
  /** Of what it belongs to, with which it may be deleted. */
  ownerTopic?: string;
  name: string;
  nonce: string;
  outputFile: string;
  logPath: string;
  logLimitBytes: number;
  secrets: readonly string[];
  /** When it must have ended. */
  deadlineAt: number;
  diskBytes: number;
  /** Remembers, until the server stops, that it must end for want of room. */
  condemn(): void;
  /** Undefined to go on, else why it must stop. Asked whenever a topic is poked. */
  stopReason(): StopReason | undefined;
  /** What steps are called in the log. */
  describeStep(name: string): string | undefined;
};

/** `left`: the server stops, the container goes on. */
export type JobOutcome = Outcome | { kind: 'left' };

/** Node's timers fire at once past this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const WATCH_AFTER_MS = 500;
const RELEASE_EVERY_BYTES = 64 * 1024 * 1024;

export type JobParts = { host: ContainerHost; live: Live; stopping: AbortSignal };

/** Where a run's log begins: the writer, opened at its last checkpoint. */
export async function openJobLog(job: Pick<Job, 'logPath' | 'logLimitBytes'>): Promise<LogWriter> {
  await mkdir(dirname(job.logPath), { recursive: true, mode: 0o700 });
  return openLog({ path: job.logPath, limitBytes: job.logLimitBytes });
}

/** The file that the container writes to, empty: the beginning of an attempt. */
export async function beginOutput(job: Pick<Job, 'outputFile'>): Promise<void> {
  await rm(dirname(job.outputFile), { recursive: true, force: true });
  await mkdir(dirname(job.outputFile), { recursive: true, mode: 0o700 });
  await createOutput(job.outputFile);
}

/** Follows the container until it has ended. `plan` starts it; without one it must be running, or have run, already. */
export async function runJob(
  { host, live, stopping }: JobParts,
  job: Job,
  log: LogWriter,
  plan: ContainerPlan | undefined,
): Promise<JobOutcome> {
  const { engine } = host;
  const ended = new AbortController();
  const gone = new AbortController();
  let stopped: StopReason | 'timed_out' | undefined;

  const stop = (why: NonNullable<typeof stopped>) => {
    if (stopped) return;
    stopped = why;
    engine.stopContainer(job.name).then(
      () => gone.abort(),
      cause => {
        if (cause instanceof EngineUnavailable) host.reportUnavailable(cause);
        gone.abort();
      },
    );
  };
  const look = () => {
    const why = job.stopReason();
    if (why) stop(why);
  };
  look();
  if (stopped) {
    // It was to end before, and there was no room to write that down: what is left of its output has to give way.
    if (stopped === 'disk_full') await giveRoom(job, Number.POSITIVE_INFINITY);
    return { kind: stopped };
  }
  const watches = [job.topic, job.ownerTopic ?? job.topic].map(topic => live.watch(topic, look));
  const cancelDeadline = atLast(job.deadlineAt - Date.now(), () => stop('timed_out'));

  const progress: Progress = { step: undefined };
  const following = follow(live, job, log, progress, {
    gone: gone.signal,
    signal: AbortSignal.any([stopping, ended.signal]),
  });
  // It may fail while the container is being started; it is asked for its outcome below.
  following.catch(() => {});
  try {
    if (plan) {
      const started = startOnce(host, plan, AbortSignal.any([stopping, gone.signal, ended.signal]));
      // Output that tells its end says more than an answer that an engine which went away never gave.
      const told = following.then(
        verdict => (verdict ? undefined : started),
        () => started,
      );
      await Promise.race([started, told]);
    }
    look();
    watchContainer(host, job.name, AbortSignal.any([stopping, ended.signal])).then(
      () => gone.abort(),
      () => {},
    );
    const verdict = await following;
    if (stopped && verdict?.kind !== 'exit') {
      if (stopped === 'disk_full') await giveRoom(job, log.rawOffset);
      return { kind: stopped };
    }
    if (verdict) return verdict;
    if (stopping.aborted) return { kind: 'left' };
    return await withoutRecord(host, job, progress.step);
  } catch (cause) {
    if (isDiskFull(cause) && !stopping.aborted) {
      // What it prints cannot be kept any more. Where that cannot be written down either, the next try knows of it.
      job.condemn();
      stop('disk_full');
      if (!gone.signal.aborted) await once(gone.signal, 'abort');
      await giveRoom(job, log.rawOffset);
    }
    // Ended while its start hung: why it was ended is what counts.
    if (stopped && !stopping.aborted) return { kind: stopped };
    if (cause instanceof VolumeLost) return { kind: 'lost' };
    throw cause;
  } finally {
    for (const unwatch of watches) unwatch();
    cancelDeadline();
    ended.abort();
    await following.catch(() => {});
  }
}

/** Calls `act` after a time of any length, unless the returned function is called before. */
function atLast(ms: number, act: () => void): () => void {
  const dueAt = performance.now() + ms;
  let timer: NodeJS.Timeout;
  const wait = () => {
    const leftMs = dueAt - performance.now();
    if (leftMs > LONGEST_TIMER_MS) timer = setTimeout(wait, LONGEST_TIMER_MS);
    else timer = setTimeout(act, Math.max(0, leftMs));
  };
  wait();
  return () => clearTimeout(timer);
}

/** Its output may be what fills the disk, and its verdict needs a little of it: what the log has of it can go before. */
async function giveRoom({ outputFile }: Job, throughByte: number): Promise<void> {
  const found = await stat(outputFile).catch(() => undefined);
  if (found) await releaseOutput(outputFile, Math.min(throughByte, found.size));
}

/** The step that a job has come to, where it was seen to begin. */
type Progress = { step: string | undefined };

/** What became of a container that has ended and left no exit record. */
async function withoutRecord(host: ContainerHost, job: Job, seen: string | undefined): Promise<Outcome> {
  const state = await host.engine.inspectContainer(job.name).catch(cause => {
    if (!(cause instanceof EngineUnavailable)) throw cause;
    host.reportUnavailable(cause);
  });
  const isMemory = state?.oomKilled === true;
  const isInside = state?.running === false && state.exitCode === RELAYED_STATUS;
  const step = isMemory || isInside ? (seen ?? (await lastStep(job))) : undefined;
  if (step === undefined) return { kind: 'lost' };
  // Memory that nobody can give back, such as files in it, costs the container its first process too.
  return isMemory ? { kind: 'exit', step, status: 137, outOfMemory: true } : { kind: 'killed', step };
}

/** The last step that the output tells of: a server that takes over has not seen it begin. */
async function lastStep({ outputFile, nonce }: Job): Promise<string | undefined> {
  const gone = AbortSignal.abort();
  const signal = new AbortController().signal;
  let step: string | undefined;
  for await (const record of followOutput({ file: outputFile, fromByte: 0, nonce, signal, gone }))
    if (record.kind === 'step') step = record.name;
  return step;
}

/** A start whose answer never came may have happened: it is looked for before anybody tries again. */
async function startOnce(host: ContainerHost, plan: ContainerPlan, signal: AbortSignal): Promise<void> {
  try {
    await host.startContainer(plan);
  } catch (cause) {
    if (cause instanceof ImageMissing || isRefused(cause, 404)) {
      await host.mend();
      await host.startContainer(plan);
      return;
    }
    if (!(cause instanceof EngineUnavailable && cause.reached)) throw cause;
    host.reportUnavailable(cause);
    if (!(await hasStarted(host, plan.name, signal))) throw cause;
  }
}

/**
 * Whether the container of a job that was claimed before this server started has run, or may have. While the engine does
 * not say, it waits, but no longer than the job may take; then it counts as begun, and what ends the job is left to runJob.
 */
export async function hasBegun({ host, live, stopping }: JobParts, job: Job): Promise<boolean> {
  const output = await stat(job.outputFile).catch(() => undefined);
  if (output && output.size > 0) return true;
  const over = new AbortController();
  const unwatch = live.watch(job.topic, () => {
    if (job.stopReason() !== undefined) over.abort();
  });
  const cancelDeadline = atLast(job.deadlineAt - Date.now(), () => over.abort());
  try {
    return await hasStarted(host, job.name, AbortSignal.any([stopping, over.signal]));
  } catch (cause) {
    if (over.signal.aborted && !stopping.aborted) return true;
    throw cause;
  } finally {
    unwatch();
    cancelDeadline();
  }
}

/** Whether the container runs or has run; waits for an engine that is away. */
async function hasStarted(host: ContainerHost, name: string, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    try {
      return (await host.engine.inspectContainer(name))?.startedAt !== undefined;
    } catch (cause) {
      if (!(cause instanceof EngineUnavailable)) throw cause;
      host.reportUnavailable(cause);
      await host.whenAvailable(signal);
    }
  }
}

/** Resolves when the container no longer runs; outlives an engine that goes away and comes back. */
async function watchContainer(host: ContainerHost, name: string, signal: AbortSignal): Promise<void> {
  // Its end is told by its output; this is for one that is lost, and need not slow the start of the others.
  await pause(WATCH_AFTER_MS, undefined, { signal });
  for (;;) {
    try {
      await host.engine.waitForExit(name, signal);
      return;
    } catch (cause) {
      if (signal.aborted || !(cause instanceof EngineUnavailable)) throw cause;
      host.reportUnavailable(cause);
      await host.whenAvailable(signal);
    }
  }
}

/** Output to log, until the exit record, the end of the file, or the stop of the server. */
async function follow(
  live: Live,
  job: Job,
  log: LogWriter,
  progress: Progress,
  signals: { gone: AbortSignal; signal: AbortSignal },
): Promise<Outcome | undefined> {
  const mask = createMask(job.secrets);
  const grown = [`log:${job.topic}`];
  let rawEnd = log.rawOffset;
  let released = rawEnd;
  let verdict: Outcome | undefined;
  for await (const record of followOutput({
    file: job.outputFile,
    fromByte: rawEnd,
    nonce: job.nonce,
    ...signals,
  })) {
    rawEnd = record.nextOffset;
    if (record.kind === 'bytes') {
      await log.append(mask.push(record.bytes), rawEnd - mask.heldBytes);
      live.publish(grown);
      // What is past the limit is not needed again: the disk under it is given back.
      if (log.omittedBytes > 0 && rawEnd - released > RELEASE_EVERY_BYTES) {
        await releaseOutput(job.outputFile, rawEnd);
        released = rawEnd;
      }
    } else if (record.kind === 'step') {
      progress.step = record.name;
      const words = record.phase === 'begin' ? job.describeStep(record.name) : undefined;
      await log.append(mask.end(), record.rawOffset);
      // The line and the record that it tells of are one write: a crash leaves both or neither.
      if (words === undefined) await log.append(Buffer.alloc(0), rawEnd);
      else await log.line(maskText(job.secrets, words), rawEnd);
      live.publish(grown);
    } else if (record.kind === 'exit') {
      // A server that takes over before the verdict is recorded has to read it again.
      rawEnd = record.rawOffset;
      verdict = { kind: 'exit', step: record.name, status: record.status, outOfMemory: record.outOfMemory };
    } else verdict = { kind: 'tampered' };
  }
  if (signals.signal.aborted && !verdict) return undefined;
  await log.append(mask.end(), rawEnd);
  live.publish(grown);
  return verdict;
}
