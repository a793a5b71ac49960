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

/** The exit status for the state of a finished build, build request, compile or deploy. */
export function exitStatusOf(state: string): number {
  if (state === 'failed' || state === 'compile_failed') return EXIT.failed;
  if (state === 'errored' || state === 'timed_out') return EXIT.errored;
  return state === 'canceled' ? EXIT.canceled : EXIT.passed;
}

export const refused = (message: string) => new CommandError(message, EXIT.refused);
export const unreachable = (message: string) => new CommandError(message, EXIT.unreachable);
