// Where the program begins: the command line in, an exit status out.

import { version } from './version.ts';

const argv = process.argv.slice(2);

if (argv[0] === '--version') process.stdout.write(`assay ${version}\n`);
// Loaded only now: what serves takes longer to load than a version takes to print.
else
  import('./cli.ts').then(async ({ runCommand }) => {
    process.exitCode = await runCommand(argv);
  });
