// The command line: the list of commands, the parsing of arguments, and the exit status.

import { parseArgs } from 'node:util';
import { accountCommands } from './cli/accounts.ts';
import { backupCommands } from './cli/backup.ts';
import { cacheCommands } from './cli/cache.ts';
import { cleanup } from './cli/cleanup.ts';
import { type Command, helpText, printLines } from './cli/command.ts';
import { completionCommand } from './cli/completion.ts';
import { demo } from './cli/demo.ts';
import { dependencyCommands } from './cli/dependency.ts';
import { doctor } from './cli/doctor.ts';
import { helpCommand, topicList } from './cli/help.ts';
import { imageCommands } from './cli/image.ts';
import { serve } from './cli/serve.ts';
import { UsageError } from './config.ts';
import { EngineRefused, EngineUnavailable } from './engine/engine.ts';
import { DataError } from './store/data/data.ts';

/** In the order in which --help lists them. */
export const commands: readonly Command[] = [
  serve,
  demo,
  ...accountCommands,
  ...imageCommands,
  ...cacheCommands,
  ...dependencyCommands,
  ...backupCommands,
  doctor,
  cleanup,
  completionCommand(() => commands),
  helpCommand(() => commands),
];

const USAGE = 2;

export async function runCommand(argv: readonly string[]): Promise<number> {
  process.stdout.on('error', ignoreClosed);
  try {
    if (argv.length === 0 || argv[0] === '--help' || argv[0] === '-h') return printLines(overview());
    if (argv[0] === 'help' && argv.length === 1)
      return printLines(
        `${overview()}\n\nTopics of the manual, each printed by "assay help TOPIC":\n\n${topicList()}`,
      );
    if (argv[1] === '--help' || argv[1] === '-h') {
      const group = commands.filter(({ name }) => name.startsWith(`${argv[0]} `));
      if (group.length > 0)
        return printLines(
          `usage: assay ${group.map(({ name }) => name).join(' | ')}\n\n${listOf(group)}\n\n  "--help" after one of them shows its flags.`,
        );
    }
    const command = findCommand(argv);
    const rest = argv.slice(command.name.split(' ').length);
    if (rest.includes('--help') || rest.includes('-h')) return printLines(helpText(command));
    const { values, positionals } = parse(command, rest);
    return await command.run({
      flags: new Map(Object.entries(values)),
      positionals,
      environment: process.env,
    });
  } catch (error) {
    if (error instanceof UsageError) return complain(error.message, USAGE);
    if (error instanceof DataError || error instanceof EngineUnavailable || error instanceof EngineRefused)
      return complain(error.message, 1);
    throw error;
  }
}

/** A reader that closes the pipe early (`| head`) is no error. */
function ignoreClosed(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error;
}

function findCommand(argv: readonly string[]): Command {
  const words = argv.filter(word => !word.startsWith('-'));
  const found = commands.find(({ name }) => name.split(' ').every((word, at) => argv[at] === word));
  if (found) return found;
  const group = commands.filter(({ name }) => name.startsWith(`${words[0]} `));
  if (group.length > 0)
    throw new UsageError(
      `assay ${words[0]} needs one of: ${group.map(({ name }) => name.split(' ')[1]).join(', ')}`,
    );
  throw new UsageError(`there is no command ${JSON.stringify(argv[0])}; "assay --help" lists them`);
}

function parse(command: Command, rest: readonly string[]) {
  try {
    const { values, positionals } = parseArgs({
      args: [...rest],
      options: Object.fromEntries(
        Object.entries(command.flags).map(
          ([name, kind]) => [name, { type: kind === 'flag' ? 'boolean' : 'string' }] as const,
        ),
      ),
      allowPositionals: true,
    });
    if (positionals.length !== command.positionals.length)
      throw new UsageError(`usage: assay ${command.name} ${command.positionals.join(' ')}`);
    return {
      positionals,
      values: Object.fromEntries(Object.entries(values).map(([name, value]) => [`--${name}`, String(value)])),
    };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new UsageError(`${error.message.split(/\.\s/)[0]}; "assay ${command.name} --help" lists its flags`);
  }
}

function listOf(listed: readonly Command[]): string {
  const width = Math.max(...listed.map(({ name }) => name.length));
  return listed.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join('\n');
}

function overview(): string {
  return [
    'Assay, a self-hosted continuous-integration appliance.',
    '',
    'usage: assay COMMAND [FLAGS]',
    '',
    listOf(commands),
    '',
    '  --version, --help; "assay COMMAND --help" explains a command, "assay help" lists the topics of the manual.',
  ].join('\n');
}

function complain(text: string, status: number): number {
  process.stderr.write(`assay: ${text}\n`);
  return status;
}
