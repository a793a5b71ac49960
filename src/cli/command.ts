// What a command of the command line is.

import { settings } from '../config.ts';

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
