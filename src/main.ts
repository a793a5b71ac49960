// Where the program begins: the command line in, an exit status out.

import { runCommand } from './cli.ts';

process.exitCode = await runCommand(process.argv.slice(2));
