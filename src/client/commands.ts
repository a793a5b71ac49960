// The commands of the client, in the order in which --help lists them.

import type { Command } from '../command/command.ts';
import { api } from './commands/api.ts';
import { artifactCommands } from './commands/artifacts.ts';
import { builds } from './commands/builds.ts';
import { dependencies } from './commands/dependencies.ts';
import { deploy } from './commands/deploy.ts';
import { diff } from './commands/diff.ts';
import { logs } from './commands/logs.ts';
import { open } from './commands/open.ts';
import { cancel, rerun } from './commands/rerun.ts';
import { run } from './commands/run.ts';
import { search } from './commands/search.ts';
import { signInCommands } from './commands/sign-in.ts';
import { tests } from './commands/tests.ts';
import { watch } from './commands/watch.ts';

export const clientCommands: readonly Command[] = [
  ...signInCommands,
  run,
  watch,
  builds,
  logs,
  rerun,
  cancel,
  open,
  tests,
  ...artifactCommands,
  search,
  diff,
  ...dependencies,
  deploy,
  api,
];

/** What commands with the same first word are for. */
export const clientFamilies = {
  artifacts: 'Files that builds keep',
  dependencies: 'Software for your suites, compiled by the server',
};
