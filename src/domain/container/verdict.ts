// Classifies how a container ended: either the command failed (`failed`), or Assay or Docker could not run it
// (`errored`). The two are never confused.

import type { BuildEvent } from '../build.ts';
import { CHECKOUT_STEP } from './checkout-script.ts';
import { COMMAND_STEP } from './entry-script.ts';
import { NODE_REFUSALS, NODE_STEP, RULES_MISSING } from './remote-script.ts';

/** Why a running job is stopped. */
export type StopReason = 'canceled' | 'disk_full' | 'too_big' | 'cache_too_big';

export type Outcome =
  | {
      kind: 'exit';
      step: string;
      status: number;
      outOfMemory: boolean;
      /** The step was killed because it took longer than its limit. */
      overran?: boolean;
      /** Whether the directory of artifacts is certainly empty. */
      hasNoArtifacts?: boolean;
    }
  | { kind: StopReason | 'timed_out' | 'tampered' }
  /** The suite killed the supervisor or the relay: the exit status of the command is unknown. */
  | { kind: 'killed'; step: string }
  /** The container is gone without an exit record, or Docker did not answer. */
  | { kind: 'lost'; reason?: string }
  | { kind: 'cannot_run'; reason: string }
  /** Nothing was started: the attempt does not count. */
  | { kind: 'not_started' };

export type Verdict = {
  event: BuildEvent;
  exitCode: number | null;
  /** Why the build could not run; stored in the build's record. */
  error: string | null;
  /** Appended to the log as lines of the service. */
  lines: string[];
};

export const MAX_ATTEMPTS = 3;

/** The second half of a sentence. */
export const KILLED =
  'killed the processes that wait for it or carry its output: its exit status is not known';

const SIGNALS: Record<number, string> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  5: 'SIGTRAP',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  10: 'SIGUSR1',
  11: 'SIGSEGV',
  12: 'SIGUSR2',
  13: 'SIGPIPE',
  14: 'SIGALRM',
  15: 'SIGTERM',
  24: 'SIGXCPU',
  25: 'SIGXFSZ',
  31: 'SIGSYS',
};

/** A readable exit status. Above 128 it is how a shell reports a signal. */
export function describeStatus(status: number): string {
  const signal = SIGNALS[status - 128];
  return signal ? `${status} (${signal})` : `${status}`;
}

export const LOST = 'The container ended without a result: Docker lost it, or it was killed from outside.';

/** The setting RETRY_LOST. */
export const NOT_RETRIED = 'It is not run again, because it may still be running (RETRY_LOST).';

/** Why the node did not run the command. */
export const describeNodeRefusal = (status: number) =>
  `The command did not run: the node ${NODE_REFUSALS[status] ?? `failed its check with ${status}`}.`;

/** Whether the node may run the command next time. Nothing has run. */
export const isPassingRefusal = ({ step, status }: { step: string; status: number }, attempts: number) =>
  step === NODE_STEP && status === RULES_MISSING && attempts < MAX_ATTEMPTS;

/** Retries after a failure of Docker, at most MAX_ATTEMPTS times in all. */
function retryBuild(
  reason: string,
  { attempts, retryLost }: { attempts: number; retryLost: boolean },
): Verdict {
  if (!retryLost) {
    const error = `${reason} ${NOT_RETRIED}`;
    return { event: 'error', exitCode: null, error, lines: [error] };
  }
  if (attempts < MAX_ATTEMPTS)
    return { event: 'requeue', exitCode: null, error: null, lines: [`${reason} The build is run again.`] };
  const error = `${reason} It was tried ${attempts} times.`;
  return { event: 'error', exitCode: null, error, lines: [error] };
}

export function classifyOutcome(
  outcome: Outcome,
  options: {
    attempts: number;
    /** Whether a container that was lost is replaced by another. */
    retryLost: boolean;
    timeoutMs: number;
    memoryBytes: number;
    diskBytes: number;
    cacheLimitBytes: number;
    /** By whom or why the build was canceled, as the end of a sentence. */
    cancelBecause?: string | null;
    /** Returns the dependency that a step starts, if it is known. */
    findLaunched?: (step: string) => { name: string; launchSeconds: number } | undefined;
  },
): Verdict {
  const errored = (error: string): Verdict => ({ event: 'error', exitCode: null, error, lines: [error] });
  switch (outcome.kind) {
    case 'exit':
      return isPassingRefusal(outcome, options.attempts)
        ? retryBuild(describeNodeRefusal(outcome.status), { ...options, retryLost: true })
        : classifyExit(outcome, options.memoryBytes, options.findLaunched?.(outcome.step));
    case 'killed':
      return outcome.step === COMMAND_STEP
        ? { event: 'fail', exitCode: null, error: null, lines: [`the command ${KILLED}`] }
        : errored(`A step before the command ${KILLED}.`);
    case 'timed_out':
      return {
        event: 'time_out',
        exitCode: null,
        error: null,
        lines: [`stopped: it took longer than ${options.timeoutMs / 1000} s`],
      };
    case 'canceled':
      return {
        event: 'cancel',
        exitCode: null,
        error: null,
        lines: [`canceled ${options.cancelBecause ?? ''}`.trimEnd()],
      };
    case 'disk_full':
      return errored('The build was stopped because the disk of the appliance is nearly full.');
    case 'too_big':
      return errored(
        `The build was stopped because its workspace grew past ${options.diskBytes} bytes (DISK).`,
      );
    case 'cache_too_big':
      return errored(
        `The build was stopped because its cache grew past ${options.cacheLimitBytes} bytes (CACHE_LIMIT). The next build starts with an empty cache.`,
      );
    case 'tampered':
      return errored('The build was stopped because it changed the file that its output is written to.');
    case 'lost':
      return retryBuild(outcome.reason ?? LOST, options);
    case 'cannot_run':
      return errored(outcome.reason);
    case 'not_started':
      return { event: 'requeue', exitCode: null, error: null, lines: [] };
  }
}

export const memoryLines = ({ outOfMemory }: { outOfMemory: boolean }, memoryBytes: number): string[] =>
  outOfMemory ? [`out of memory: a process was killed at the limit of ${memoryBytes} bytes`] : [];

function classifyExit(
  exit: Extract<Outcome, { kind: 'exit' }>,
  memoryBytes: number,
  launched: { name: string; launchSeconds: number } | undefined,
): Verdict {
  const memory = memoryLines(exit, memoryBytes);
  if (exit.step === COMMAND_STEP)
    return exit.status === 0
      ? { event: 'pass', exitCode: 0, error: null, lines: memory }
      : {
          event: 'fail',
          exitCode: exit.status,
          error: null,
          lines: [...memory, `the command exited with ${describeStatus(exit.status)}`],
        };
  const error =
    exit.step === NODE_STEP
      ? describeNodeRefusal(exit.status)
      : exit.step === CHECKOUT_STEP
        ? `The checkout failed with ${exit.status}: the log says why.`
        : `The launch command of ${launched?.name ?? 'a dependency'} ${launchFailure(exit, launched?.launchSeconds)}`;
  return { event: 'error', exitCode: null, error, lines: [...memory, error] };
}

/** The second half of a sentence, and what to do. */
const launchFailure = (exit: { status: number; overran?: boolean }, seconds: number | undefined) =>
  exit.overran
    ? `did not return within ${seconds === undefined ? 'its launch_timeout' : `${seconds} s`}. Start a daemon in the background, with its own option or with ">/dev/null 2>&1 &", or raise launch_timeout.`
    : `failed with ${describeStatus(exit.status)}: the log says why.`;
