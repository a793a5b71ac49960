// `assay demo`: a temporary server with a sample project. Removes everything at the end.

import type { Command } from '../command/command.ts';
import { flagOf, settings } from '../config.ts';

/** Settings that the demo chooses itself. */
const excluded = new Set([
  'DATA',
  'BASE_URL',
  'TLS_CERT',
  'TLS_KEY',
  'CA_CERTS',
  'RETENTION_DAYS',
  'RETENTION_EVENTS_DAYS',
  'RETENTION_FIRINGS_DAYS',
  'RETENTION_DELIVERIES_DAYS',
  'RETENTION_DECISIONS_DAYS',
]);
const accepted = settings.filter(({ name }) => !excluded.has(name));

export const demo: Command = {
  name: 'demo',
  summary: 'Runs a temporary server with a sample project: compiled, tested, deployed.',
  positionals: [],
  flags: {
    once: 'flag',
    swarm: 'flag',
    ...Object.fromEntries(accepted.map(({ name }) => [flagOf(name).slice(2), 'value'] as const)),
  },
  help: [
    'Creates a temporary data directory, a Git host that is reached over SSH, a project with suites and rules,',
    'a dependency, a push hook, a deploy and a webhook receiver. Uses the public API for everything, and keeps serving',
    'until it is stopped. Needs Docker, git, ssh, curl, cc and make. Leaves nothing behind.',
    '',
    `  ${'--once'.padEnd(28)} exits after the summary; exit status 0 when everything went as expected`,
    `  ${'--swarm'.padEnd(28)} builds on a swarm of three machines, in namespaces of this host, and turns`,
    `  ${''.padEnd(28)} one of them off; needs root`,
    '',
    'Settings, as in "assay serve":',
    '',
    ...accepted.map(({ name, form, meaning }) => `  ${`${flagOf(name)} ${form}`.padEnd(28)} ${meaning}`),
  ],
  async run({ flags, environment }) {
    // Loaded here, because no other command needs an SSH server.
    const { runDemo } = await import('../demo/run.ts');
    const rest = new Map(flags);
    const once = rest.delete('--once');
    const swarm = rest.delete('--swarm');
    return runDemo({ flags: rest, environment, once, swarm });
  },
};
