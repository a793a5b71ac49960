// `assay watch`: follows a build request that is there already.

import type { Command } from '../../command/command.ts';
import { findTarget, REQUEST_LINES, resolveAddress } from '../find-build.ts';
import { followAndReport } from '../report-request.ts';
import { projectCommand } from '../session.ts';

const command = projectCommand({
  name: 'watch',
  summary: 'Follows a build request, by default the newest of the current branch.',
  positionals: ['[BUILD_REQUEST]'],
  flags: { branch: 'value', local: 'flag' },
  help: [
    'BUILD_REQUEST is an ID, or the address of a page. The exit status is that of "assay run". Ctrl-C leaves, and the',
    'build goes on.',
    '',
    ...REQUEST_LINES,
  ],
  async run(session, invocation) {
    const { request } = await findTarget(session, invocation);
    return followAndReport(session, request.id_str, {
      environment: invocation.environment,
      isJson: invocation.flags.has('--json'),
      onInterrupt: 'leave',
    });
  },
});

export const watch: Command = { ...command, run: invocation => command.run(resolveAddress(invocation)) };
