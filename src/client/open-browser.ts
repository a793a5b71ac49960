// Opens an address in the user's browser.

import { spawn } from 'node:child_process';
import { platform } from 'node:os';

/** Returns at once. Nothing happens if there is no browser: print the address too. */
export function openBrowser(url: string, environment: NodeJS.ProcessEnv): void {
  const [program = '', ...args] = environment.BROWSER?.trim().split(/\s+/) ?? browserOf(platform());
  const child = spawn(program, [...args, url], { stdio: 'ignore', detached: true, env: environment });
  child.on('error', () => {});
  child.unref();
}

/** On Windows not `start`, which is of the shell: it would interpret the address. */
function browserOf(system: NodeJS.Platform): readonly string[] {
  if (system === 'darwin') return ['open'];
  return system === 'win32' ? ['rundll32', 'url.dll,FileProtocolHandler'] : ['xdg-open'];
}
