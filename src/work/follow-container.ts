// Follows one container of a job: starts it, or finds one that a previous server started; copies its output into the log
// with secrets masked; stops it at the deadline, on cancel, or when the disk is full. The caller classifies the outcome.

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

export type ContainerRun = {
  /** Topic of the row: published when it is canceled or deleted. */
  topic: string;
  /** Topic of the row's owner: published when the owner is deleted. */
  ownerTopic?: string;
  name: string;
  nonce: string;
  outputFile: string;
  secrets: readonly string[];
  deadlineAt: number;
  /** Why it must stop now, if it must. Checked whenever a topic is published. */
  stopReason(): StopReason | undefined;
  /** Makes `stopReason` return `disk_full` until the server stops. */
  evict(): void;
  /** Whether its output may have been cut off because the disk is full. */
  isDiskFull(): boolean;
  /** Returns the log line for the start of a step. */
  describeStep(name: string): string | undefined;
  /** Returns the log line for a step that has succeeded. */
  describeEnd?(name: string, durationMs: number | undefined): string | undefined;
  /** Called when a step begins. Repeated if the server is killed meanwhile. */
  onStepBegun?(name: string): void;
};

export type FollowOptions = { host: ContainerHost; live: Live; stopping: AbortSignal };

/** With a longer delay, a timer of Node fires immediately. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const WATCH_AFTER_MS = 500;
const WATCH_AGAIN_MS = 2_000;
const RELEASE_EVERY_BYTES = 64 * 1024 * 1024;

/** Starts a container. `signal` is aborted when nobody waits for the result. */
type Start = (signal: AbortSignal) => Promise<void>;

/**
 * Follows the container until it has ended. Without `start`, it was started before. Throws when the server stops, and
 * leaves the container running.
 */
export async function followContainer(
  { host, live, stopping }: FollowOptions,
  run: ContainerRun,
  log: LogWriter,
  start: Start | undefined,
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
  const check = () => {
    const why = run.stopReason();
    if (why) stop(why);
  };
  check();
  if (stopped) {
    // It was stopped before, but the disk was too full to record that.
    if (stopped === 'disk_full') await freeOutput(run, Number.POSITIVE_INFINITY);
    return { kind: stopped };
  }
  const watches = [run.topic, run.ownerTopic ?? run.topic].map(topic => live.watch(topic, check));
  const cancelDeadline = callAfter(run.deadlineAt - Date.now(), () => stop('timed_out'));

  const progress: Progress = { step: undefined };
  const following = follow(live, run, log, progress, {
    gone: gone.signal,
    signal: AbortSignal.any([stopping, ended.signal]),
  });
  // It is awaited below, but may fail before that.
  following.catch(() => {});
  try {
    if (start) {
      const started = start(AbortSignal.any([stopping, gone.signal, ended.signal]));
      // An exit record in the output is enough, even if the engine never answers the start request.
      const recorded = following.then(
        outcome => (outcome ? undefined : started),
        () => started,
      );
      await Promise.race([started, recorded]);
    }
    check();
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
    const lost = await outcomeWithoutRecord(host, run, progress.step);
    if (lost.kind !== 'lost' || !run.isDiskFull()) return lost;
    // The processes that write the output end when they cannot.
    run.evict();
    await freeOutput(run, log.rawOffset);
    return { kind: 'disk_full' };
  } catch (error) {
    if (isDiskFull(error) && !stopping.aborted) {
      // Its output cannot be stored. If that cannot be recorded either, the next attempt ends it.
      run.evict();
      stop('disk_full');
      if (!gone.signal.aborted) await once(gone.signal, 'abort');
      await freeOutput(run, log.rawOffset);
    }
    // The stop may have caused the error.
    if (stopped && !stopping.aborted) return { kind: stopped };
    throw error;
  } finally {
    for (const unwatch of watches) unwatch();
    cancelDeadline();
    ended.abort();
    await following.catch(() => {});
  }
}

/** Like setTimeout, for a delay of any length. The returned function cancels it. */
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

/** Frees the output that the log has already, because recording the verdict needs disk space. */
async function freeOutput({ outputFile }: ContainerRun, throughByte: number): Promise<void> {
  const found = await stat(outputFile).catch(() => undefined);
  if (found) await releaseOutput(outputFile, Math.min(throughByte, found.size));
}

/** The step that the job has reached, if this server saw it begin. */
type Progress = { step: string | undefined };

/** The outcome of a container that has ended without an exit record. */
async function outcomeWithoutRecord(
  host: ContainerHost,
  run: ContainerRun,
  seen: string | undefined,
): Promise<Outcome> {
  const state = await host.engine.inspectContainer(run.name).catch(error => {
    if (!(error instanceof EngineUnavailable)) throw error;
    host.reportUnavailable(error);
  });
  const isOutOfMemory = state?.oomKilled === true;
  const isKilledInside = state?.running === false && state.exitCode === RELAYED_STATUS;
  const step = isOutOfMemory || isKilledInside ? (seen ?? (await lastStep(run))) : undefined;
  if (step === undefined) return { kind: 'lost', ...(state?.reason && { reason: state.reason }) };
  // Out of memory can kill the entry script too, for example when files in /dev/shm use the memory.
  return isOutOfMemory ? { kind: 'exit', step, status: 137, outOfMemory: true } : { kind: 'killed', step };
}

/** Reads the last step from the output, for a server that has not seen it begin. */
async function lastStep({ outputFile, nonce }: ContainerRun): Promise<string | undefined> {
  const gone = AbortSignal.abort();
  const signal = new AbortController().signal;
  let step: string | undefined;
  for await (const record of followOutput({ file: outputFile, fromByte: 0, nonce, signal, gone }))
    if (record.kind === 'step') step = record.name;
  return step;
}

/**
 * If a start gets no answer, checks whether the container has started, so that it never starts twice. `started` is there if
 * it is being started already.
 */
export const startOnce =
  (host: ContainerHost, plan: ContainerPlan, started?: Promise<unknown>): Start =>
  async signal => {
    try {
      await (started ?? host.startContainer(plan));
    } catch (error) {
      if (!(error instanceof EngineUnavailable && error.reached)) throw error;
      host.reportUnavailable(error);
      if (!(await hasStarted(host, plan.name, signal))) throw error;
    }
  };

/**
 * Whether the container of a job that was claimed before has started, or may have. Waits while the engine does not answer.
 * At the deadline of the job it returns true, and followContainer ends the job.
 */
export async function mayHaveStarted(
  { host, live, stopping }: FollowOptions,
  run: ContainerRun,
): Promise<boolean> {
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
  // Only a lost container needs this, because others record their exit. The delay keeps starts fast.
  await pause(WATCH_AFTER_MS, undefined, { signal });
  for (;;) {
    try {
      await askEngine(host, signal, () => host.engine.waitForExit(name, signal));
      return;
    } catch (error) {
      // An engine that starts may refuse what it accepts later. Without a watch, the end of a lost container goes unnoticed.
      if (signal.aborted) throw error;
      await pause(WATCH_AGAIN_MS, undefined, { signal });
    }
  }
}

/** Retries while the engine is unavailable. */
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

/** Copies the output to the log until the exit record, the end of the file, or the stop of the server. */
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
  /** Each write takes time, so an offset alone is not worth one: a server that resumes reads the records again. */
  const appendRest = async (rawOffset: number) => {
    const rest = mask.end();
    if (rest.length > 0) await log.append(rest, rawOffset);
  };
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
      // Output past the limit of the log is not needed again, so its disk space is freed.
      if (log.omittedBytes > 0 && rawEnd - released > RELEASE_EVERY_BYTES) {
        await releaseOutput(run.outputFile, rawEnd);
        released = rawEnd;
      }
    } else if (record.kind === 'step') {
      progress.step = record.name;
      if (record.phase === 'begin') run.onStepBegun?.(record.name);
      const title =
        record.phase === 'begin'
          ? run.describeStep(record.name)
          : record.status === 0
            ? run.describeEnd?.(record.name, record.durationMs)
            : undefined;
      await appendRest(record.rawOffset);
      // The line and the offset after the record are one write, so a crash leaves both or neither.
      if (title !== undefined) await log.line(maskText(run.secrets, title), rawEnd);
      live.publish(grown);
    } else if (record.kind === 'exit') {
      // A server that resumes before the verdict is recorded has to read it again.
      rawEnd = record.rawOffset;
      const { name: step, status, outOfMemory, overran, hasNoArtifacts } = record;
      outcome = { kind: 'exit', step, status, outOfMemory, ...(overran && { overran }), hasNoArtifacts };
    } else outcome = { kind: 'tampered' };
  }
  if (signals.signal.aborted && !outcome) return undefined;
  await appendRest(rawEnd);
  live.publish(grown);
  return outcome;
}
