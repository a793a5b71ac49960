// The exit statuses of the client. Scripts depend on them: the manual lists them.

import { CommandError } from '../command/command.ts';

export const EXIT = {
  passed: 0,
  /** A suite said no. */
  failed: 1,
  usage: 2,
  /** Assay could not run a suite, or stopped it because it took too long. */
  errored: 3,
  canceled: 4,
  /** Not signed in, not allowed, or not found. */
  refused: 5,
  /** The server cannot be reached, or cannot respond. */
  unreachable: 6,
  interrupted: 130,
} as const;

/** What each means, for the man page and the manual. */
export const exitMeanings: readonly [status: number, meaning: string][] = [
  [EXIT.passed, 'success; what was waited for passed'],
  [EXIT.failed, 'failed: a suite, a compile or a deploy command returned a non-zero exit status'],
  [EXIT.usage, 'wrong usage: the command line or a value in it is invalid'],
  [EXIT.errored, 'errored or timed out: Assay could not run it, or it took too long'],
  [EXIT.canceled, 'canceled'],
  [EXIT.refused, 'not signed in, not allowed, or not found'],
  [EXIT.unreachable, 'no connection to the server, or the server has a problem'],
  [EXIT.interrupted, 'interrupted with Ctrl-C'],
];

/** The exit status for the state of a finished build, build request, compile or deploy. */
export function exitStatusOf(state: string): number {
  if (state === 'failed' || state === 'compile_failed') return EXIT.failed;
  if (state === 'errored' || state === 'timed_out') return EXIT.errored;
  return state === 'canceled' ? EXIT.canceled : EXIT.passed;
}

export const refused = (message: string) => new CommandError(message, EXIT.refused);
export const unreachable = (message: string) => new CommandError(message, EXIT.unreachable);
