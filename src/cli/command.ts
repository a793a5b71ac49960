// What a command of the command line is.

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

/** Every setting as a flag: commands that open the data directory take them all, so that one env file serves them. */
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

/** What is refused is said in the words that the pages have for it, beside what was given; `given` is by field. */
export async function inWords<T>(given: Record<string, string>, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (!(cause instanceof Refusal)) throw cause;
    const lines = Object.entries(cause.errors).map(
      ([field, codes]) => `${given[field] ?? field}: ${codes.map(code => wordsFor(field, code)).join(' ')}`,
    );
    throw new UsageError(lines.join(' '));
  }
}
