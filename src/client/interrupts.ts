// What Ctrl-C and other signals do while something is followed: leave, ask whether to cancel it, or cancel it.

import { askYesNo, CommandError } from '../command/command.ts';
import { EXIT } from './exit-status.ts';

/** What Ctrl-C does besides leaving. Without a terminal nothing is asked, and nothing is canceled. */
export type OnInterrupt = 'leave' | 'ask' | 'cancel';

export type Subject = {
  /** `build` or `deploy`. */
  noun: string;
  /** The command that follows it again. */
  watchCommand: string | undefined;
};

type Output = {
  /** Nothing is redrawn any more. */
  stop(): void;
  /** For standard error. */
  remark(text: string): void;
  end(last: undefined): void;
};

const SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** The first signal leaves, and asks before it if it should. The second one leaves at once. */
export function watchInterrupts(
  reporter: Output,
  leaving: AbortController,
  onInterrupt: OnInterrupt,
  { noun, watchCommand }: Subject,
  cancel: () => Promise<void>,
) {
  let handled: Promise<void> | undefined;
  let isFinished = false;
  const canAsk = process.stdin.isTTY === true && process.stderr.isTTY === true;

  /** Ctrl-C, or no answer, is undefined. */
  const askWhether = async (): Promise<boolean | undefined> => {
    try {
      return await askYesNo(`Cancel the ${noun}? [y/N] `, '');
    } catch (error) {
      if (error instanceof CommandError) return undefined;
      throw error;
    }
  };

  const handle = async (signal: NodeJS.Signals) => {
    reporter.stop();
    const isAsked = onInterrupt === 'ask' && canAsk && signal === 'SIGINT';
    const isCanceled = onInterrupt === 'cancel' || (isAsked && (await askWhether()));
    if (isFinished) return;
    if (isCanceled) {
      try {
        await cancel();
        reporter.remark(`the ${noun} is being canceled`);
      } catch (error) {
        if (!leaving.signal.aborted)
          reporter.remark(`the ${noun} was not canceled: ${(error as Error).message}`);
      }
    } else {
      const again = watchCommand === undefined ? '' : `; "${watchCommand}" follows it again`;
      reporter.remark(`the ${noun} goes on${again}`);
    }
    leaving.abort();
  };
  const onSignal = (signal: NodeJS.Signals) => {
    if (handled) {
      reporter.end(undefined);
      process.exit(EXIT.interrupted);
    }
    handled = handle(signal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return {
    answered: () => handled,
    /** It has ended. Resolves when a question is answered. */
    async finish() {
      isFinished = true;
      await handled;
    },
    stop() {
      for (const signal of SIGNALS) process.off(signal, onSignal);
    },
  };
}
