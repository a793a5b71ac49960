// The command line of the client alone.

import { completionCommand } from '../command/completion.ts';
import type { CommandLine } from '../command/run-command.ts';
import { clientCommands } from './commands.ts';

export const clientLine: CommandLine = {
  introduction: 'The command line of Assay, a self-hosted continuous-integration appliance.',
  groups: [
    { title: 'Commands', commands: clientCommands },
    {
      title: 'Help',
      commands: [completionCommand(() => clientLine.groups.flatMap(group => group.commands))],
    },
  ],
  conclusion: '  --version, --help; "assay COMMAND --help" explains a command.',
};
