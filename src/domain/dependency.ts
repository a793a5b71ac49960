// The state machine of a dependency's compile. Sharing is a separate flag; `marketplaceState` combines the two.

import { type Machine, unfinishedStates } from './machine.ts';

export type CompileState =
  | 'waiting_archive_upload'
  | 'enqueued_for_compile'
  | 'compiling'
  | 'compiled'
  | 'compile_failed';
export type CompileEvent = 'upload' | 'start' | 'compile' | 'fail' | 'cancel' | 'requeue';

/** The error that a canceled compile records. */
export const COMPILE_CANCELED = 'The compile was canceled.';

export const compileMachine: Machine<CompileState, CompileEvent> = {
  waiting_archive_upload: { upload: 'enqueued_for_compile' },
  enqueued_for_compile: {
    upload: 'enqueued_for_compile',
    start: 'compiling',
    fail: 'compile_failed',
    cancel: 'compile_failed',
  },
  compiling: {
    compile: 'compiled',
    fail: 'compile_failed',
    cancel: 'compile_failed',
    requeue: 'enqueued_for_compile',
  },
  compiled: { upload: 'enqueued_for_compile' },
  compile_failed: { upload: 'enqueued_for_compile' },
};

export const UNFINISHED_COMPILES: readonly CompileState[] = unfinishedStates(compileMachine, 'upload');

export type MarketplaceState = CompileState | 'shared' | 'private';

export function marketplaceState(dependency: {
  compileState: CompileState;
  shared: boolean;
}): MarketplaceState {
  return dependency.shared && dependency.compileState === 'compiled' ? 'shared' : dependency.compileState;
}
