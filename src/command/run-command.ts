// Runs a command line: finds the command, parses its arguments, and turns errors into an exit status.

import { parseArgs } from 'node:util';
import { type Command, CommandError, helpText, printLines, UsageError, usageOf } from './command.ts';

export type CommandGroup = { title: string; commands: readonly Command[] };

export type CommandLine = {
  /** In the order in which --help lists them. */
  groups: readonly CommandGroup[];
  /** What commands with the same first word are for, by that word. */
  families: Readonly<Record<string, string>>;
  /** What --help says first, and last. */
  introduction: string;
  conclusion: string;
  /** The exit status for an expected error of another kind. Undefined for a defect. */
  statusOf?(error: unknown): number | undefined;
};

const USAGE = 2;

export async function runCommandLine(line: CommandLine, argv: readonly string[]): Promise<number> {
  process.stdout.on('error', ignoreClosed);
  const commands = commandsOf(line);
  try {
    if (argv.length === 0 || isHelp(argv[0])) return printLines(overview(line));
    if (isHelp(argv[1])) {
      const explained = explain(line, [argv[0] as string]);
      if (explained !== undefined) return printLines(explained);
    }
    const command = findCommand(commands, argv);
    const rest = argv.slice(command.name.split(' ').length);
    const end = rest.indexOf('--');
    if (rest.slice(0, end < 0 ? undefined : end).some(isHelp)) return printLines(helpText(command));
    const { flags, positionals } = parse(command, rest);
    return await command.run({ flags, positionals, environment: process.env });
  } catch (error) {
    const status =
      error instanceof UsageError
        ? USAGE
        : error instanceof CommandError
          ? error.exitStatus
          : line.statusOf?.(error);
    if (status === undefined) throw error;
    // Messages may quote a server.
    const message = (error as Error).message.replaceAll(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '\ufffd');
    process.stderr.write(`assay: ${message}\n`);
    return status;
  }
}

const isHelp = (word: string | undefined) => word === '--help' || word === '-h';

/** A reader that closes the pipe early (`| head`) is no error. */
function ignoreClosed(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error;
}

/** The help of a command, or the list of those with this first word. */
export function explain(line: CommandLine, words: readonly string[]): string | undefined {
  const name = words.join(' ');
  const family = familyOf(commandsOf(line), name);
  const [first, second] = family;
  if (!first || (first.name === name && !second)) return first && helpText(first);
  return [
    `usage: assay ${family.map(one => one.name).join(' | ')}`,
    '',
    ...(line.families[name] === undefined ? [] : [`${line.families[name]}.`, '']),
    listOf(family.map(one => [one.name, one.summary])),
    '',
    '  "--help" after one of them shows its flags.',
  ].join('\n');
}

function findCommand(commands: readonly Command[], argv: readonly string[]): Command {
  const words = argv.filter(word => !word.startsWith('-'));
  const found = commands
    .filter(({ name }) => name.split(' ').every((word, at) => argv[at] === word))
    .sort((a, b) => b.name.length - a.name.length)[0];
  if (found) return found;
  const group = commands.filter(({ name }) => name.startsWith(`${words[0]} `));
  if (group.length > 0)
    throw new UsageError(
      `assay ${words[0]} needs one of: ${group.map(({ name }) => name.split(' ')[1]).join(', ')}`,
    );
  throw new UsageError(unknownCommand(commands, argv[0] ?? ''));
}

/** Names the commands that the user may have meant. */
export function unknownCommand(commands: readonly Command[], word: string): string {
  const allowed = word.length < 4 ? 1 : 2;
  const near = firstWordsOf(commands)
    .map(name => ({ name, distance: name.startsWith(word) ? 0 : distanceBetween(word, name) }))
    .filter(({ distance }) => distance <= allowed)
    .sort((a, b) => a.distance - b.distance);
  const nearest = near.filter(({ distance }) => distance === near[0]?.distance).map(({ name }) => name);
  const meant = nearest.length === 0 ? '' : ` did you mean ${nearest.join(' or ')}?`;
  return `there is no command ${JSON.stringify(word)};${meant} "assay --help" lists them`;
}

/** How many letters to insert, delete, replace or swap to make one word of the other. */
function distanceBetween(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, at) => at)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (rows[i - 1]?.[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row.push(
        Math.min(
          replaced,
          (rows[i - 1]?.[j] ?? 0) + 1,
          (row[j - 1] ?? 0) + 1,
          isSwapped ? (rows[i - 2]?.[j - 2] ?? 0) + 1 : replaced,
        ),
      );
    }
    rows.push(row);
  }
  return rows[a.length]?.[b.length] ?? 0;
}

function parse(command: Command, rest: readonly string[]) {
  const letterOf = new Map(Object.entries(command.letters ?? {}).map(([letter, flag]) => [flag, letter]));
  try {
    const { values, positionals } = parseArgs({
      args: [...rest],
      options: Object.fromEntries(
        Object.entries(command.flags).map(([name, kind]) => {
          const letter = letterOf.get(name);
          const type: 'boolean' | 'string' = kind === 'flag' ? 'boolean' : 'string';
          return [name, { type, ...(letter !== undefined && { short: letter }) }];
        }),
      ),
      allowPositionals: true,
    });
    if (!hasRightCount(command, positionals.length)) throw new UsageError(`usage: ${usageOf(command)}`);
    return {
      positionals,
      flags: new Map(Object.entries(values).map(([name, value]) => [`--${name}`, String(value)])),
    };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UsageError(`${error.message.split(/\.\s/)[0]}; "assay ${command.name} --help" lists its flags`);
  }
}

function hasRightCount({ positionals }: Command, count: number): boolean {
  const least = positionals.filter(name => !name.startsWith('[')).length;
  return count >= least && (count <= positionals.length || positionals.at(-1)?.endsWith('...]') === true);
}

type Row = readonly [name: string, text: string];

const widthOf = (rows: readonly Row[]) => Math.max(...rows.map(([name]) => name.length));

const listOf = (rows: readonly Row[], width = widthOf(rows)): string =>
  rows.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`).join('\n');

export const firstWordsOf = (commands: readonly Command[]): string[] => [
  ...new Set(commands.map(({ name }) => name.split(' ')[0] as string)),
];

/** The commands with this first word. */
export const familyOf = (commands: readonly Command[], word: string): Command[] =>
  commands.filter(({ name }) => name === word || name.startsWith(`${word} `));

/** The summary of the command, or what those with this first word are for. */
export function describeWord({ groups, families }: CommandLine, word: string): string {
  const family = familyOf(commandsOf({ groups }), word);
  const [first, second] = family;
  if (first && !second) return first.summary;
  return `${families[word] ?? word}: ${family.flatMap(({ name }) => name.split(' ').slice(1)).join(', ')}.`;
}

export const commandsOf = ({ groups }: Pick<CommandLine, 'groups'>): Command[] =>
  groups.flatMap(group => group.commands);

/** Commands with the same first word are one line. */
export function overview(line: CommandLine): string {
  const { groups, introduction, conclusion } = line;
  const listed = groups.map(({ title, commands }) => ({
    title,
    rows: firstWordsOf(commands).map((word): Row => {
      const [first, second] = familyOf(commands, word);
      return [first && !second ? first.name : word, describeWord(line, word)];
    }),
  }));
  const width = widthOf(listed.flatMap(({ rows }) => rows));
  return [
    introduction,
    'usage: assay COMMAND [FLAGS]',
    '',
    listed.map(({ title, rows }) => `${title}:\n${listOf(rows, width)}\n`).join('\n') + conclusion,
  ].join('\n');
}
