// `assay open`: shows the page of a build or of a build request in the browser.

import { platform } from 'node:os';
import type { Invocation } from '../../command/command.ts';
import { type Command, print } from '../../command/command.ts';
import { buildCommand, chooseBranch, findTarget, listRequests, ofSuite, pageOf } from '../find-build.ts';
import { openBrowser } from '../open-browser.ts';
import type { ProjectSession } from '../session.ts';

export const open: Command = buildCommand({
  name: 'open',
  summary: 'Opens the page of a build or a build request in the browser.',
  positionals: ['[BUILD|REQUEST]'],
  flags: { print: 'flag' },
  help: [
    '  assay open                         the newest build request of this branch, or the project',
    '  assay open BUILD',
    '',
    'The browser is the one that BROWSER names, or the default one of the desktop.',
    '',
    '  --print               prints the address only',
  ],
  async run(session, invocation) {
    const { flags, environment } = invocation;
    const url = await findPage(session, invocation);
    if (!flags.has('--print') && hasDesktop(environment)) openBrowser(url, environment);
    return print(invocation, { url }, [url]);
  },
});

async function findPage(session: ProjectSession, invocation: Invocation): Promise<string> {
  const { flags, positionals } = invocation;
  const suite = flags.get('--suite');
  if (positionals.length === 0 && suite === undefined && !flags.has('--local')) {
    const [request] = await listRequests(session, { branch: await chooseBranch(invocation), limit: 1 });
    return request ? pageOf(session, { request, build: undefined, builds: [] }) : session.pageUrl;
  }
  const target = await findTarget(session, invocation);
  const build = target.build ?? (suite === undefined ? undefined : ofSuite(target.builds, suite)[0]);
  return pageOf(session, { ...target, build });
}

/** Without a desktop, as over SSH, a browser would take over the terminal. */
const hasDesktop = (environment: NodeJS.ProcessEnv) =>
  platform() === 'darwin' ||
  platform() === 'win32' ||
  Boolean(environment.BROWSER || environment.DISPLAY || environment.WAYLAND_DISPLAY);
