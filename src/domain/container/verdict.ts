// What became of a container, and what that means for a build: the command said no (`failed`), or we could not run it
// (`errored`). Never the second disguised as the first.

import type { BuildEvent } from '../build.ts';
import { CHECKOUT_STEP } from './checkout-script.ts';
import { COMMAND_STEP } from './suite-plan.ts';

/** Why a job is ended that would have gone on. */
export type StopReason = 'canceled' | 'disk_full' | 'too_big' | 'cache_too_big';

export type Outcome =
  | { kind: 'exit'; step: string; status: number; outOfMemory: boolean }
  | { kind: StopReason | 'timed_out' | 'tampered' }
  /** Something inside ended what waits for the command or carries its output: how the command ended is not known. */
  | { kind: 'killed'; step: string }
  /** The container is gone and left no verdict. */
  | { kind: 'lost' };

export type Verdict = {
  event: BuildEvent;
  exitCode: number | null;
  /** Why the service could not run it, for the record. */
  error: string | null;
  /** Lines of the service that end the log. */
  lines: string[];
};

export const MAX_ATTEMPTS = 3;

/** The rest of a sentence about what did it. */
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

/** An exit status for people: above 128 it is how a shell tells of a signal. */
export function describeStatus(status: number): string {
  const signal = SIGNALS[status - 128];
  return signal ? `${status} (${signal})` : `${status}`;
}

export const canceledBuild = (because: string | null): Verdict => ({
  event: 'cancel',
  exitCode: null,
  error: null,
  lines: [`canceled ${because ?? ''}`.trimEnd()],
});

export const LOST = 'The container ended without a verdict: Docker lost it, or it was killed from outside.';

/** After something that Docker did: no reason to give up at once, nor to try for ever. */
export function retryBuild(reason: string, attempts: number): Verdict {
  if (attempts < MAX_ATTEMPTS)
    return { event: 'requeue', exitCode: null, error: null, lines: [`${reason} It is run again.`] };
  const error = `${reason} It was tried ${attempts} times.`;
  return { event: 'error', exitCode: null, error, lines: [error] };
}

export function classifyOutcome(
  outcome: Outcome,
  facts: {
    attempts: number;
    timeoutMs: number;
    memoryBytes: number;
    diskBytes: number;
    cacheLimitBytes: number;
    /** By whom or for what it was canceled, as the end of a sentence. */
    cancelBecause?: string | null;
  },
): Verdict {
  const errored = (error: string): Verdict => ({ event: 'error', exitCode: null, error, lines: [error] });
  const { cancelBecause = null } = facts;
  switch (outcome.kind) {
    case 'exit':
      return classifyExit(outcome, facts.memoryBytes);
    case 'killed':
      return outcome.step === COMMAND_STEP
        ? { event: 'fail', exitCode: null, error: null, lines: [`the command ${KILLED}`] }
        : errored(`A step before the command ${KILLED}.`);
    case 'timed_out':
      return {
        event: 'time_out',
        exitCode: null,
        error: null,
        lines: [`stopped: it took longer than ${facts.timeoutMs / 1000} s`],
      };
    case 'canceled':
      return canceledBuild(cancelBecause);
    case 'disk_full':
      return errored('It was stopped because the disk of the appliance is nearly full.');
    case 'too_big':
      return errored(`It was stopped because its workspace grew past ${facts.diskBytes} bytes (DISK).`);
    case 'cache_too_big':
      return errored(
        `It was stopped because its cache grew past ${facts.cacheLimitBytes} bytes (CACHE_LIMIT). The next build begins with an empty cache.`,
      );
    case 'tampered':
      return errored('It was stopped because it changed the file that its output is kept in.');
    case 'lost':
      if (cancelBecause !== null) return canceledBuild(cancelBecause);
      return retryBuild(LOST, facts.attempts);
  }
}

function classifyExit(exit: Extract<Outcome, { kind: 'exit' }>, memoryBytes: number): Verdict {
  const memory = exit.outOfMemory
    ? [`out of memory: a process was ended at the limit of ${memoryBytes} bytes`]
    : [];
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
    exit.step === CHECKOUT_STEP
      ? `The checkout failed with ${exit.status}: the log says why.`
      : `A dependency's launch command failed with ${describeStatus(exit.status)}: the log says why.`;
  return { event: 'error', exitCode: null, error, lines: [...memory, error] };
}
