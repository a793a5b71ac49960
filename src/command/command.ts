// The type of a command of the command line, its help text, and what all commands print with. The administrator's commands
// (src/cli) and those of the client (src/client) share it.

import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';

/** The exit status after Ctrl-C. */
const INTERRUPTED = 130;

/** Printed without a stack trace. Exit status 2. */
export class UsageError extends Error {}

/** Why a command cannot do its work. Printed without a stack trace. */
export class CommandError extends Error {
  readonly exitStatus: number;
  constructor(message: string, exitStatus: number) {
    super(message);
    this.exitStatus = exitStatus;
  }
}

export type Invocation = {
  /** By name, with dashes. */
  flags: ReadonlyMap<string, string>;
  positionals: readonly string[];
  environment: NodeJS.ProcessEnv;
};

/** A `flag` takes no value. A shell completes a `path`. */
export type FlagKind = 'flag' | 'value' | 'path';

export type Command = {
  name: string;
  summary: string;
  /** `NAME`; `[NAME]` may be left out; `[NAME...]`, the last one, may be repeated. */
  positionals: readonly string[];
  /** Names without dashes. */
  flags: Record<string, FlagKind>;
  /** Flags by their letter. */
  letters?: Record<string, string>;
  /** The words that can be given as positionals, for completion. */
  words?: () => readonly string[];
  /** What --help says below the summary. */
  help: readonly string[] | (() => readonly string[]);
  /** Resolves with the exit status. */
  run(invocation: Invocation): Promise<number>;
};

export const JSON_LINE = '  --json                prints JSON';

export const helpLines = ({ help }: Command) => (typeof help === 'function' ? help() : help);

export type ExplainedFlag = {
  name: string;
  letter: string | undefined;
  kind: FlagKind;
  /** What the help says. */
  text: string;
};

/** The flags that the help explains. Commands accept some others, which belong to `assay serve`. */
export function explainedFlags(command: Command): ExplainedFlag[] {
  const letterOf = new Map(Object.entries(command.letters ?? {}).map(([letter, flag]) => [flag, letter]));
  return helpLines(command).flatMap((line, at, lines) => {
    const [, names = '', rest = ''] = /^ {2}((?:-\w, )?--[\w-]+(?:, --[\w-]+)*)(.*)$/.exec(line) ?? [];
    return [...names.matchAll(/--([\w-]+)/g)].flatMap(([, name = '']) => {
      const kind = command.flags[name];
      if (kind === undefined) return [];
      const beside = (kind === 'flag' ? rest : rest.replace(/^ \S+/, '')).trim();
      return [{ name, letter: letterOf.get(name), kind, text: beside || (lines[at + 1] ?? '').trim() }];
    });
  });
}

export const usageOf = ({ name, positionals }: Command) => `assay ${[name, ...positionals].join(' ')}`;

export const helpText = (command: Command): string =>
  [`usage: ${usageOf(command)} [FLAGS]`, '', command.summary, '', ...helpLines(command)].join('\n');

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
  const answer = await ask(question, withoutTerminal);
  return /^y(es)?$/i.test(answer?.trim() ?? '');
}

/** Undefined if the input ended without an answer. A secret does not appear on the screen. */
export async function ask(
  question: string,
  withoutTerminal: string,
  options: { isSecret?: boolean } = {},
): Promise<string | undefined> {
  if (!process.stdin.isTTY) throw new UsageError(withoutTerminal);
  const { isSecret = false } = options;
  const unseen = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({
    input: process.stdin,
    ...(isSecret ? { output: unseen, terminal: true } : { output: process.stderr }),
  });
  // From here on the terminal does not echo what is typed.
  if (isSecret) process.stderr.write(question);
  const closed = new AbortController();
  let isInterrupted = false;
  terminal.once('close', () => closed.abort());
  terminal.once('SIGINT', () => {
    isInterrupted = true;
    terminal.close();
  });
  try {
    return await terminal.question(isSecret ? '' : question, { signal: closed.signal });
  } catch (error) {
    if (isInterrupted) throw new CommandError('interrupted', INTERRUPTED);
    if (closed.signal.aborted) return undefined;
    throw error;
  } finally {
    terminal.close();
    if (isSecret) process.stderr.write('\n');
  }
}

/** The first line of standard input, when it is not a terminal. */
export async function readInputLine(): Promise<string> {
  const lines = createInterface({ input: process.stdin });
  for await (const line of lines) {
    lines.close();
    return line;
  }
  return '';
}
