// The entry point of the client as one file, for machines without the executable.

import { runCommandLine } from '../command/run-command.ts';
import { version } from '../version.ts';
import { clientLine } from './command-line.ts';

const argv = process.argv.slice(2);
if (argv[0] === '--version') process.stdout.write(`assay ${version}\n`);
else process.exitCode = await runCommandLine(clientLine, argv);
