// Runs a command line: finds the command, parses its arguments, and turns errors into an exit status.

import { parseArgs } from 'node:util';
import { type Command, CommandError, helpText, printLines, UsageError, usageOf } from './command.ts';

export type CommandGroup = { title: string; commands: readonly Command[] };

export type CommandLine = {
  /** In the order in which --help lists them. */
  groups: readonly CommandGroup[];
  /** What --help says first, and last. */
  introduction: string;
  conclusion: string;
  /** The exit status for an expected error of another kind. Undefined for a defect. */
  statusOf?(error: unknown): number | undefined;
};

const USAGE = 2;

export async function runCommandLine(line: CommandLine, argv: readonly string[]): Promise<number> {
  process.stdout.on('error', ignoreClosed);
  const commands = line.groups.flatMap(group => group.commands);
  try {
    if (argv.length === 0 || isHelp(argv[0])) return printLines(overview(line));
    if (isHelp(argv[1])) {
      const group = commands.filter(({ name }) => name.startsWith(`${argv[0]} `));
      if (group.length > 0)
        return printLines(
          `usage: assay ${group.map(({ name }) => name).join(' | ')}\n\n${listOf(group)}\n\n  "--help" after one of them shows its flags.`,
        );
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
    process.stderr.write(`assay: ${(error as Error).message}\n`);
    return status;
  }
}

const isHelp = (word: string | undefined) => word === '--help' || word === '-h';

/** A reader that closes the pipe early (`| head`) is no error. */
function ignoreClosed(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error;
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
  throw new UsageError(`there is no command ${JSON.stringify(argv[0])}; "assay --help" lists them`);
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

function listOf(listed: readonly Command[], width = widthOf(listed)): string {
  return listed.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join('\n');
}

const widthOf = (commands: readonly Command[]) => Math.max(...commands.map(({ name }) => name.length));

export function overview({ groups, introduction, conclusion }: CommandLine): string {
  const width = widthOf(groups.flatMap(({ commands }) => commands));
  return [
    introduction,
    '',
    'usage: assay COMMAND [FLAGS]',
    '',
    ...groups.flatMap(({ title, commands }) => [`${title}:`, listOf(commands, width), '']),
    conclusion,
  ].join('\n');
}
