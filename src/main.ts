// The entry point: runs the command line and sets the exit status.

import { loadClient, loadCommands } from './load-commands.ts';
import { keepThreadPoolGoing } from './thread-pool.ts';
import { version } from './version.ts';

const argv = process.argv.slice(2);

if (argv[0] === '--version') process.stdout.write(`assay ${version}\n`);
else
  run().then(status => {
    process.exitCode = status;
  });

async function run(): Promise<number> {
  keepThreadPoolGoing();
  // The server starts sooner if the commands of the client are not loaded.
  const status = argv[0] === 'serve' ? undefined : await (await loadClient()).runClientCommand(argv);
  return status ?? (await loadCommands(argv)).runCommand(argv);
}
