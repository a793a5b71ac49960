// The type of a command of the command line, and what all commands share.

import { createInterface } from 'node:readline/promises';
import { readSettings, type Settings, settings, UsageError } from '../config.ts';
import { Refusal } from '../domain/refusal.ts';
import { createDataDirectory, openData } from '../store/data/data.ts';
import type { Db } from '../store/database/db.ts';
import { errorMessage } from '../web/frame/error-text.ts';

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
  /** What --help says below the summary. */
  help: readonly string[] | (() => readonly string[]);
  /** Resolves with the exit status. */
  run(invocation: Invocation): Promise<number>;
};

/** Every setting as a flag. Commands that open the data directory accept them all, so that they can share an env file. */
export const settingFlags: Record<string, 'value'> = Object.fromEntries(
  settings.map(({ name }) => [name.toLowerCase().replaceAll('_', '-'), 'value'] as const),
);

export const DATA_LINE = '  --data DIRECTORY      the data directory [./assay-data]';
export const JSON_LINE = '  --json                prints JSON';

export const helpLines = ({ help }: Command) => (typeof help === 'function' ? help() : help);

export function helpText(command: Command): string {
  const usage = [command.name, ...command.positionals].join(' ');
  return [`usage: assay ${usage} [FLAGS]`, '', command.summary, '', ...helpLines(command)].join('\n');
}

/** Opens the data directory, which is created on first use, and closes it at the end. */
export async function withData<T>(
  { flags, environment }: Invocation,
  use: (db: Db, settings: Settings) => T | Promise<T>,
): Promise<T> {
  const chosen = readSettings(flags, environment).settings;
  createDataDirectory(chosen.data);
  const db = openData(chosen.data, environment);
  try {
    return await use(db, chosen);
  } finally {
    db.close();
  }
}

/** Returns the exit status of success. */
export function printLines(...lines: readonly string[]): number {
  process.stdout.write(lines.map(line => `${line}\n`).join(''));
  return 0;
}

/** Prints the record with --json, else the lines. */
export const print = ({ flags }: Invocation, record: unknown, lines: readonly string[]): number =>
  printLines(...(flags.has('--json') ? [JSON.stringify(record)] : lines));

/** Asks on the terminal; no answer is no. Without a terminal, throws a usage error with the text. */
export async function askYesNo(question: string, withoutTerminal: string): Promise<boolean> {
  if (!process.stdin.isTTY) throw new UsageError(withoutTerminal);
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const closed = new AbortController();
  terminal.once('close', () => closed.abort());
  try {
    return /^y(es)?$/i.test((await terminal.question(question, { signal: closed.signal })).trim());
  } catch (error) {
    if (closed.signal.aborted) return false;
    throw error;
  } finally {
    terminal.close();
  }
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
      ([field, codes]) =>
        `${given[field] ?? field}: ${codes.map(code => errorMessage(field, code)).join(' ')}`,
    );
    throw new UsageError(lines.join(' '));
  }
}
