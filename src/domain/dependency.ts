// The state machine of a dependency's compile. Sharing is a separate flag; `marketplaceState` combines the two.

import { type Machine, unfinishedStates } from './machine.ts';
import { checkVariableName } from './names.ts';

export type CompileState =
  | 'waiting_archive_upload'
  | 'enqueued_for_compile'
  | 'compiling'
  | 'compiled'
  | 'compile_failed';
export type CompileEvent =
  | 'upload'
  | 'recompile'
  /** The artifact comes from another appliance. */
  | 'import'
  | 'start'
  | 'compile'
  | 'fail'
  | 'cancel'
  | 'requeue';

/** How long a launch command may take. */
export const LAUNCH_SECONDS = { min: 5, max: 600, defaultValue: 60 };

/** The error that a canceled compile records. */
export const COMPILE_CANCELED = 'The compile was canceled.';

export const compileMachine: Machine<CompileState, CompileEvent> = {
  waiting_archive_upload: { upload: 'enqueued_for_compile', import: 'compiled' },
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
  compiled: { upload: 'enqueued_for_compile', recompile: 'enqueued_for_compile', import: 'compiled' },
  compile_failed: { upload: 'enqueued_for_compile', recompile: 'enqueued_for_compile', import: 'compiled' },
};

export const UNFINISHED_COMPILES: readonly CompileState[] = unfinishedStates(
  compileMachine,
  'upload',
  'recompile',
  'import',
);

export type MarketplaceState = CompileState | 'shared' | 'private';

export function marketplaceState(dependency: {
  compileState: CompileState;
  shared: boolean;
}): MarketplaceState {
  return dependency.shared && dependency.compileState === 'compiled' ? 'shared' : dependency.compileState;
}

export type EnvironmentVariable = { name: string; value: string };

/** Reads lines of NAME=value. Blank lines are ignored. */
export function parseEnvironment(text: string): EnvironmentVariable[] {
  return text.split(/\r?\n/).flatMap(line => {
    const [name = '', ...value] = line.trim().split('=');
    return name === '' && value.length === 0 ? [] : [{ name: name.trim(), value: value.join('=') }];
  });
}

/** Each line of a dependency's environment is NAME=value, and no name is reserved or there twice. */
export function checkEnvironment(text: string): 'invalid_format' | 'is_reserved' | undefined {
  const lines = text.split(/\r?\n/).filter(line => line.trim() !== '');
  const names = parseEnvironment(text).map(({ name }) => name);
  if (lines.some(line => !line.includes('=')) || new Set(names).size < names.length) return 'invalid_format';
  const errors = names.map(checkVariableName);
  return errors.includes('invalid_format') ? 'invalid_format' : errors.find(error => error !== undefined);
}

/** The listed dependencies and their transitive ones, each once and after the dependencies it relates to. */
export function orderByRelation<D extends { id: bigint }>(
  listed: readonly D[],
  relatedTo: (dependency: D) => readonly D[],
): D[] {
  const ordered = new Map<bigint, D>();
  const seen = new Set<bigint>();
  // Not recursive, because a chain may be long.
  const stack = [...listed].reverse();
  for (let top = stack.at(-1); top; top = stack.at(-1)) {
    const open = seen.has(top.id) ? [] : relatedTo(top).filter(({ id }) => !seen.has(id));
    seen.add(top.id);
    if (open.length > 0) stack.push(...open.reverse());
    else {
      stack.pop();
      if (!ordered.has(top.id)) ordered.set(top.id, top);
    }
  }
  return [...ordered.values()];
}

/**
 * Why a compile that relates to it cannot start: it is not compiled yet, it has no archive yet, or it could not be compiled,
 * so that the other one fails too. Undefined if it has an artifact that can be used.
 */
export function compileObstacle(
  compileState: CompileState,
  hasArtifact: boolean,
): 'compile' | 'archive' | 'failed' | undefined {
  if (UNFINISHED_COMPILES.includes(compileState)) return 'compile';
  if (hasArtifact) return undefined;
  return compileState === 'waiting_archive_upload' ? 'archive' : 'failed';
}
