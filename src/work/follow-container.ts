// One container of a job: starts it or finds it again, copies its output into the log with secrets masked, and ends it at
// the deadline, on cancel, or when disk space runs out. What the outcome means for a row is decided by the caller.

import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import type { ContainerPlan } from '../domain/container/container-plan.ts';
import { RELAYED_STATUS } from '../domain/container/entry-script.ts';
import type { Outcome, StopReason } from '../domain/container/verdict.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { createMask, maskText } from '../domain/text/mask.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import { followOutput, releaseOutput } from '../engine/output.ts';
import type { Live } from '../live.ts';
import type { LogWriter } from '../store/data/log-file.ts';
import type { ContainerHost } from './container-host.ts';

/** What is followed: one container, and when it has to end. */
export type ContainerRun = {
  /** Topic of the row: published when it is canceled or deleted. */
  topic: string;
  /** Of what the row belongs to, with which it may be deleted. */
  ownerTopic?: string;
  name: string;
  nonce: string;
  outputFile: string;
  secrets: readonly string[];
  deadlineAt: number;
  /** Undefined to go on, else why it must stop. Asked whenever a topic is published. */
  stopReason(): StopReason | undefined;
  /** Remembers, until the server stops, that it must end because the disk is full. */
  evict(): void;
  /** What a step is called in the log. */
  describeStep(name: string): string | undefined;
};

export type FollowOptions = { host: ContainerHost; live: Live; stopping: AbortSignal };

/** Node's timers fire at once past this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const WATCH_AFTER_MS = 500;
const RELEASE_EVERY_BYTES = 64 * 1024 * 1024;

/**
 * Follows the container until it has ended. `plan` starts it; without one it runs, or has run, already. Throws when the
 * server stops: the container goes on.
 */
export async function followContainer(
  { host, live, stopping }: FollowOptions,
  run: ContainerRun,
  log: LogWriter,
  plan: ContainerPlan | undefined,
): Promise<Outcome> {
  const { engine } = host;
  const ended = new AbortController();
  const gone = new AbortController();
  let stopped: StopReason | 'timed_out' | undefined;

  const stop = (why: NonNullable<typeof stopped>) => {
    if (stopped) return;
    stopped = why;
    engine.stopContainer(run.name).then(
      () => gone.abort(),
      error => {
        if (error instanceof EngineUnavailable) host.reportUnavailable(error);
        gone.abort();
      },
    );
  };
  const look = () => {
    const why = run.stopReason();
    if (why) stop(why);
  };
  look();
  if (stopped) {
    // It had to end before, and the disk was too full to record that: its output is released.
    if (stopped === 'disk_full') await freeOutput(run, Number.POSITIVE_INFINITY);
    return { kind: stopped };
  }
  const watches = [run.topic, run.ownerTopic ?? run.topic].map(topic => live.watch(topic, look));
  const cancelDeadline = callAfter(run.deadlineAt - Date.now(), () => stop('timed_out'));

  const progress: Progress = { step: undefined };
  const following = follow(live, run, log, progress, {
    gone: gone.signal,
    signal: AbortSignal.any([stopping, ended.signal]),
  });
  // It may fail while the container is being started; it is asked for its outcome below.
  following.catch(() => {});
  try {
    if (plan) {
      const started = startOnce(host, plan, AbortSignal.any([stopping, gone.signal, ended.signal]));
      // An exit record in the output counts, although an engine that went away never answers the start.
      const recorded = following.then(
        outcome => (outcome ? undefined : started),
        () => started,
      );
      await Promise.race([started, recorded]);
    }
    look();
    watchContainer(host, run.name, AbortSignal.any([stopping, ended.signal])).then(
      () => gone.abort(),
      () => {},
    );
    const outcome = await following;
    if (stopped && outcome?.kind !== 'exit') {
      if (stopped === 'disk_full') await freeOutput(run, log.rawOffset);
      return { kind: stopped };
    }
    if (outcome) return outcome;
    stopping.throwIfAborted();
    return await withoutRecord(host, run, progress.step);
  } catch (error) {
    if (isDiskFull(error) && !stopping.aborted) {
      // What it prints cannot be kept any more. If that cannot be recorded either, the next try still ends it.
      run.evict();
      stop('disk_full');
      if (!gone.signal.aborted) await once(gone.signal, 'abort');
      await freeOutput(run, log.rawOffset);
    }
    // Ended while its start hung: why it was ended is what counts.
    if (stopped && !stopping.aborted) return { kind: stopped };
    throw error;
  } finally {
    for (const unwatch of watches) unwatch();
    cancelDeadline();
    ended.abort();
    await following.catch(() => {});
  }
}

/** Calls `act` after a time of any length; the returned function cancels that. */
function callAfter(ms: number, act: () => void): () => void {
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

/** The output may be what fills the disk, and recording the verdict needs some space: what the log has is released. */
async function freeOutput({ outputFile }: ContainerRun, throughByte: number): Promise<void> {
  const found = await stat(outputFile).catch(() => undefined);
  if (found) await releaseOutput(outputFile, Math.min(throughByte, found.size));
}

/** The step that a job has come to, where it was seen to begin. */
type Progress = { step: string | undefined };

/** What became of a container that has ended and left no exit record. */
async function withoutRecord(
  host: ContainerHost,
  run: ContainerRun,
  seen: string | undefined,
): Promise<Outcome> {
  const state = await host.engine.inspectContainer(run.name).catch(error => {
    if (!(error instanceof EngineUnavailable)) throw error;
    host.reportUnavailable(error);
  });
  const isMemory = state?.oomKilled === true;
  const isInside = state?.running === false && state.exitCode === RELAYED_STATUS;
  const step = isMemory || isInside ? (seen ?? (await lastStep(run))) : undefined;
  if (step === undefined) return { kind: 'lost' };
  // Memory that nobody can give back, such as files in it, costs the container its first process too.
  return isMemory ? { kind: 'exit', step, status: 137, outOfMemory: true } : { kind: 'killed', step };
}

/** The last step in the output: a server that takes over has not seen it begin. */
async function lastStep({ outputFile, nonce }: ContainerRun): Promise<string | undefined> {
  const gone = AbortSignal.abort();
  const signal = new AbortController().signal;
  let step: string | undefined;
  for await (const record of followOutput({ file: outputFile, fromByte: 0, nonce, signal, gone }))
    if (record.kind === 'step') step = record.name;
  return step;
}

/** A start whose answer never came may have happened: the container is looked for before anybody tries again. */
async function startOnce(host: ContainerHost, plan: ContainerPlan, signal: AbortSignal): Promise<void> {
  try {
    await host.startContainer(plan);
  } catch (error) {
    if (!(error instanceof EngineUnavailable && error.reached)) throw error;
    host.reportUnavailable(error);
    if (!(await hasStarted(host, plan.name, signal))) throw error;
  }
}

/**
 * Whether the container of a job that was claimed before this server started has run, or may have. While the engine does
 * not answer, it waits, but no longer than the job may take; then it counts as begun, and followContainer ends it.
 */
export async function hasBegun({ host, live, stopping }: FollowOptions, run: ContainerRun): Promise<boolean> {
  const output = await stat(run.outputFile).catch(() => undefined);
  if (output && output.size > 0) return true;
  const over = new AbortController();
  const unwatch = live.watch(run.topic, () => {
    if (run.stopReason() !== undefined) over.abort();
  });
  const cancelDeadline = callAfter(run.deadlineAt - Date.now(), () => over.abort());
  try {
    return await hasStarted(host, run.name, AbortSignal.any([stopping, over.signal]));
  } catch (error) {
    if (over.signal.aborted && !stopping.aborted) return true;
    throw error;
  } finally {
    unwatch();
    cancelDeadline();
  }
}

/** Whether the container runs or has run. */
const hasStarted = async (host: ContainerHost, name: string, signal: AbortSignal) =>
  (await askEngine(host, signal, () => host.engine.inspectContainer(name)))?.startedAt !== undefined;

/** Resolves when the container no longer runs. */
async function watchContainer(host: ContainerHost, name: string, signal: AbortSignal): Promise<void> {
  // Its output records its end. This is for one that is lost, and need not slow the start of others.
  await pause(WATCH_AFTER_MS, undefined, { signal });
  await askEngine(host, signal, () => host.engine.waitForExit(name, signal));
}

/** While the engine is away, waits for it and asks again. */
async function askEngine<T>(host: ContainerHost, signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || !(error instanceof EngineUnavailable)) throw error;
      host.reportUnavailable(error);
      await host.whenAvailable(signal);
    }
  }
}

/** Output to log, until the exit record, the end of the file, or the stop of the server. */
async function follow(
  live: Live,
  run: ContainerRun,
  log: LogWriter,
  progress: Progress,
  signals: { gone: AbortSignal; signal: AbortSignal },
): Promise<Outcome | undefined> {
  const mask = createMask(run.secrets);
  const grown = [`log:${run.topic}`];
  let rawEnd = log.rawOffset;
  let released = rawEnd;
  let outcome: Outcome | undefined;
  for await (const record of followOutput({
    file: run.outputFile,
    fromByte: rawEnd,
    nonce: run.nonce,
    ...signals,
  })) {
    rawEnd = record.nextOffset;
    if (record.kind === 'bytes') {
      await log.append(mask.push(record.bytes), rawEnd - mask.heldBytes);
      live.publish(grown);
      // What is past the limit is not needed again: the disk under it is given back.
      if (log.omittedBytes > 0 && rawEnd - released > RELEASE_EVERY_BYTES) {
        await releaseOutput(run.outputFile, rawEnd);
        released = rawEnd;
      }
    } else if (record.kind === 'step') {
      progress.step = record.name;
      const words = record.phase === 'begin' ? run.describeStep(record.name) : undefined;
      await log.append(mask.end(), record.rawOffset);
      // The line and the record that it describes are one write: a crash leaves both or neither.
      if (words === undefined) await log.append(Buffer.alloc(0), rawEnd);
      else await log.line(maskText(run.secrets, words), rawEnd);
      live.publish(grown);
    } else if (record.kind === 'exit') {
      // A server that takes over before the verdict is recorded has to read it again.
      rawEnd = record.rawOffset;
      outcome = { kind: 'exit', step: record.name, status: record.status, outOfMemory: record.outOfMemory };
    } else outcome = { kind: 'tampered' };
  }
  if (signals.signal.aborted && !outcome) return undefined;
  await log.append(mask.end(), rawEnd);
  live.publish(grown);
  return outcome;
}
