// The entry point: runs the command line and sets the exit status.

import { version } from './version.ts';

const argv = process.argv.slice(2);

if (argv[0] === '--version') process.stdout.write(`assay ${version}\n`);
// Loaded lazily, because loading the server takes longer than printing the version.
else
  import('./cli.ts').then(async ({ runCommand }) => {
    process.exitCode = await runCommand(argv);
  });
