// The command line of the executable: the list of commands, and the exit status of expected errors.

import { accountCommands } from './cli/accounts.ts';
import { backupCommands } from './cli/backup.ts';
import { cacheCommands } from './cli/cache.ts';
import { cleanup } from './cli/cleanup.ts';
import { demo } from './cli/demo.ts';
import { dependencyCommands } from './cli/dependency.ts';
import { doctor } from './cli/doctor.ts';
import { helpCommand, topicList } from './cli/help.ts';
import { imageCommands } from './cli/image.ts';
import { serve } from './cli/serve.ts';
import { clientCommands } from './client/commands.ts';
import { type Command, printLines } from './command/command.ts';
import { completionCommand } from './command/completion.ts';
import { type CommandLine, overview, runCommandLine } from './command/run-command.ts';
import { EngineRefused, EngineUnavailable } from './engine/engine.ts';
import { DataError } from './store/data/data.ts';

const line: CommandLine = {
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
        ...dependencyCommands,
        ...backupCommands,
        doctor,
        cleanup,
      ],
    },
    {
      title: 'Help',
      commands: [completionCommand(() => commands), helpCommand(() => commands)],
    },
  ],
  conclusion:
    '  --version, --help; "assay COMMAND --help" explains a command, "assay help" lists the topics of the manual.',
  statusOf: error =>
    error instanceof DataError || error instanceof EngineUnavailable || error instanceof EngineRefused
      ? 1
      : undefined,
};

export const commands: readonly Command[] = line.groups.flatMap(group => group.commands);

export async function runCommand(argv: readonly string[]): Promise<number> {
  if (argv[0] === 'help' && argv.length === 1)
    return printLines(
      `${overview(line)}\n\nTopics of the manual, each printed by "assay help TOPIC":\n\n${topicList()}`,
    );
  return runCommandLine(line, argv);
}
