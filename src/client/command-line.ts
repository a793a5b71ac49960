// The command line of the client alone.

import { type Command, printLines, UsageError } from '../command/command.ts';
import { completionCommand } from '../command/completion.ts';
import {
  type CommandLine,
  commandsOf,
  explain,
  overview,
  runCommandLine,
  unknownCommand,
} from '../command/run-command.ts';
import { clientCommands, clientFamilies } from './commands.ts';

const help: Command = {
  name: 'help',
  summary: 'Explains a command; without one, lists them.',
  positionals: ['[COMMAND...]'],
  flags: {},
  help: ['The manual is at /ui/manual of the server.'],
  async run({ positionals }) {
    const text = positionals.length === 0 ? overview(clientLine) : explain(clientLine, positionals);
    if (text === undefined)
      throw new UsageError(unknownCommand(commandsOf(clientLine), positionals[0] as string));
    return printLines(text);
  },
};

export const clientLine: CommandLine = {
  introduction: 'The command line of Assay, a self-hosted continuous-integration appliance.',
  groups: [
    { title: 'Commands', commands: clientCommands },
    {
      title: 'Help',
      commands: [completionCommand(() => clientLine), help],
    },
  ],
  families: clientFamilies,
  conclusion: '  --version, --help; "assay COMMAND --help" explains a command.',
};

/** Returns the exit status, or undefined if it is not a command of the client. */
export async function runClientCommand(argv: readonly string[]): Promise<number | undefined> {
  const isOfClient = clientCommands.some(({ name }) => name.split(' ')[0] === argv[0]);
  return isOfClient ? runCommandLine(clientLine, argv) : undefined;
}
