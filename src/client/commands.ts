// The commands of the client, in the order in which --help lists them.

import type { Command } from '../command/command.ts';
import { api } from './commands/api.ts';
import { builds } from './commands/builds.ts';

export const clientCommands: readonly Command[] = [builds, api];
