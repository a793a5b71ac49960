// The command line of the executable: the list of commands.

import { accountCommands } from './cli/accounts.ts';
import { backupCommands } from './cli/backup.ts';
import { cacheCommands } from './cli/cache.ts';
import { cleanup } from './cli/cleanup.ts';
import { statusOf } from './cli/command.ts';
import { demo } from './cli/demo.ts';
import { dependencyCommands } from './cli/dependency.ts';
import { doctor } from './cli/doctor.ts';
import { helpCommand } from './cli/help.ts';
import { imageCommands } from './cli/image.ts';
import { nodeCommands } from './cli/node.ts';
import { serve } from './cli/serve.ts';
import { clientCommands, clientFamilies } from './client/commands.ts';
import type { Command } from './command/command.ts';
import { completionCommand } from './command/completion.ts';
import { type CommandLine, commandsOf, runCommandLine } from './command/run-command.ts';

export const line: CommandLine = {
  introduction: 'Assay, a self-hosted continuous-integration appliance.',
  groups: [
    { title: 'Work with builds, on any machine', commands: clientCommands },
    {
      title: 'Run and manage the server',
      commands: [
        serve,
        demo,
        ...accountCommands,
        ...imageCommands,
        ...cacheCommands,
        ...nodeCommands,
        ...dependencyCommands,
        ...backupCommands,
        doctor,
        cleanup,
      ],
    },
    {
      title: 'Help',
      commands: [completionCommand(() => line), helpCommand(() => line)],
    },
  ],
  families: {
    ...clientFamilies,
    user: 'Accounts',
    image: 'Images that containers run in',
    cache: 'Caches of suites',
    node: 'Machines of a Docker Swarm that run builds',
    dependency: 'Dependencies of all accounts, as files for other appliances',
  },
  conclusion:
    '  --version, --help; "assay COMMAND --help" explains a command, "assay help" lists the topics of the manual.',
  statusOf,
};

export const commands: readonly Command[] = commandsOf(line);

export const runCommand = (argv: readonly string[]): Promise<number> => runCommandLine(line, argv);
