// `assay demo`: the appliance with a sample project in it, on the spot, leaving nothing behind.

import { flagOf, settings } from '../config.ts';
import { type Command, helpOf } from './command.ts';

/** The demo has a directory, an address and a certificate of its own. */
const notTaken = new Set([
  'DATA',
  'BASE_URL',
  'TLS_CERT',
  'TLS_KEY',
  'RETENTION_DAYS',
  'RETENTION_EVENTS_DAYS',
  'RETENTION_DELIVERIES_DAYS',
  'RETENTION_DECISIONS_DAYS',
]);
const taken = settings.filter(({ name }) => !notTaken.has(name));

export const demo: Command = {
  name: 'demo',
  summary: 'Shows the appliance at work: a sample project, compiled, tested, deployed.',
  positionals: [],
  flags: {
    once: 'flag',
    ...Object.fromEntries(taken.map(({ name }) => [flagOf(name).slice(2), 'value'] as const)),
  },
  help() {
    return helpOf(this, [
      'It makes a temporary data directory, a Git host reached over SSH, a project with suites and rules, a',
      'dependency, a deploy and a webhook receiver, runs it all through the public API, and goes on serving',
      'until it is stopped. It needs Docker, git, ssh, cc and make; it leaves nothing behind.',
      '',
      `  ${'--once'.padEnd(28)} ends after the summary; exit status 0 when all went as intended`,
      '',
      'Settings, as "assay serve" has them:',
      '',
      ...taken.map(({ name, form, meaning }) => `  ${`${flagOf(name)} ${form}`.padEnd(28)} ${meaning}`),
    ]);
  },
  async run({ flags, environment }) {
    // Loaded only now: no other command needs an SSH server.
    const { runDemo } = await import('../demo/run.ts');
    const rest = new Map(flags);
    const once = rest.delete('--once');
    return runDemo({ flags: rest, environment, once });
  },
};
