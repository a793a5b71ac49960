// Plans a container that is started before it is known what it has to run. It waits for a line in a named pipe, and then
// runs the entry that the server has written beside it.

import { shellQuote } from '../text/shell.ts';
import { BEGIN_DIRECTORY, type ContainerPlan } from './container-plan.ts';

/** The names of both in BEGIN_DIRECTORY. */
export const BEGIN_PIPE = 'pipe';
export const BEGIN_ENTRY = 'entry';

const WAITING_COMMAND = [
  '/bin/sh',
  '-c',
  `until [ -p ${BEGIN_DIRECTORY}/${BEGIN_PIPE} ]; do sleep 1; done
read -r ASSAY_LINE <${BEGIN_DIRECTORY}/${BEGIN_PIPE} && . ${BEGIN_DIRECTORY}/${BEGIN_ENTRY}`,
  'assay',
];

/** The same container, except that it waits. `directory` is mounted as BEGIN_DIRECTORY. */
export const waitingPlan = (plan: ContainerPlan, directory: string): ContainerPlan => ({
  ...plan,
  command: WAITING_COMMAND,
  environment: {},
  mounts: [...plan.mounts, { type: 'bind', source: directory, target: BEGIN_DIRECTORY, readOnly: true }],
});

/** Sets the environment of the plan and runs its command, as the engine would have done. */
export function renderEntry({ command, environment }: ContainerPlan): string {
  const exports = Object.entries(environment).map(
    ([name, content]) => `export ${name}=${shellQuote(content)}\n`,
  );
  return `${exports.join('')}exec ${command.map(shellQuote).join(' ')}\n`;
}
