// The type of a command of the command line, and what all commands share.

import { settings, UsageError } from '../config.ts';
import { Refusal } from '../domain/refusal.ts';
import { wordsFor } from '../web/frame/error-text.ts';

export type Invocation = {
  flags: ReadonlyMap<string, string>;
  positionals: readonly string[];
  environment: NodeJS.ProcessEnv;
};

export type Command = {
  name: string;
  summary: string;
  positionals: readonly string[];
  /** Names without dashes; a `flag` takes no value. */
  flags: Record<string, 'flag' | 'value'>;
  help(): string;
  /** Resolves with the exit status. */
  run(invocation: Invocation): Promise<number>;
};

/** Every setting as a flag. Commands that open the data directory accept them all, so that they can share an env file. */
export const settingFlags: Record<string, 'value'> = Object.fromEntries(
  settings.map(({ name }) => [name.toLowerCase().replaceAll('_', '-'), 'value'] as const),
);

export function helpOf(
  command: Pick<Command, 'name' | 'summary' | 'positionals'>,
  lines: readonly string[],
): string {
  return [
    `usage: assay ${[command.name, ...command.positionals].join(' ')} [FLAGS]`,
    '',
    command.summary,
    '',
    ...lines,
  ].join('\n');
}

/** Reports a refusal with the texts of the web pages. `given` names, for each field, what the user typed. */
export async function describeRefusals<T>(
  given: Record<string, string>,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const lines = Object.entries(error.errors).map(
      ([field, codes]) => `${given[field] ?? field}: ${codes.map(code => wordsFor(field, code)).join(' ')}`,
    );
    throw new UsageError(lines.join(' '));
  }
}
