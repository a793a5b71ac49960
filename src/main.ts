// The entry point: runs the command line and sets the exit status.

import { version } from './version.ts';

const argv = process.argv.slice(2);

if (argv[0] === '--version') process.stdout.write(`assay ${version}\n`);
else
  (argv[0] === 'serve' ? runServerCommand() : runAnyCommand()).then(status => {
    process.exitCode = status;
  });

async function runAnyCommand(): Promise<number> {
  const { clientCommands } = await import('./client/commands.ts');
  const isOfClient = clientCommands.some(({ name }) => name.split(' ')[0] === argv[0]);
  if (!isOfClient) return runServerCommand();
  const { clientLine } = await import('./client/command-line.ts');
  const { runCommandLine } = await import('./command/run-command.ts');
  return runCommandLine(clientLine, argv);
}

/** The server starts sooner if the commands of the client are not loaded. */
async function runServerCommand(): Promise<number> {
  const { loadServer } = await import('./load-server.ts');
  const { runCommand } = await loadServer(argv);
  return runCommand(argv);
}
