// The entry point: runs the command line and sets the exit status.

import { clientLine } from './client/command-line.ts';
import { clientCommands } from './client/commands.ts';
import { runCommandLine } from './command/run-command.ts';
import { version } from './version.ts';

const argv = process.argv.slice(2);
const isOfClient = clientCommands.some(({ name }) => name.split(' ')[0] === argv[0]);

if (argv[0] === '--version') process.stdout.write(`assay ${version}\n`);
else if (isOfClient)
  runCommandLine(clientLine, argv).then(status => {
    process.exitCode = status;
  });
else
  import('./load-server.ts').then(async ({ loadServer }) => {
    const { runCommand } = await loadServer(argv);
    process.exitCode = await runCommand(argv);
  });
