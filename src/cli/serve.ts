// `assay serve`: runs the server in the foreground until a signal stops it.

import { startApp } from '../app.ts';
import type { Command } from '../command/command.ts';
import { runCommandLine } from '../command/run-command.ts';
import { flagOf, readSettings, type Settings, settings } from '../config.ts';
import { loadCertificate, trustAuthorities } from '../engine/certificate.ts';
import { createLog } from '../log.ts';
import { hasAccounts, hasAdministrator } from '../store/accounts.ts';
import { DataError } from '../store/data/data.ts';
import { getSetUpCode } from '../store/setup.ts';
import { settingFlags, statusOf } from './command.ts';

export const serve: Command = {
  name: 'serve',
  summary: 'Runs the server in the foreground: HTTPS API, web pages, scheduler, runner.',
  positionals: [],
  flags: settingFlags,
  help: [
    'Each flag is also an environment variable: ASSAY_DATA is --data. DOCKER_HOST says where Docker is.',
    '',
    ...settings.map(({ name, form, meaning, defaultValue }) => {
      const flag = `  ${`${flagOf(name)} ${form}`.padEnd(33)}`;
      return `${flag} ${meaning}${defaultValue === '' ? '' : ` [${defaultValue}]`}`;
    }),
  ],
  async run({ flags, environment }) {
    const log = createLog();
    const { settings: chosen, warnings } = readSettings(flags, environment);
    for (const warning of warnings) log.warn(warning);
    // Checked before anything is opened, so that a person can fix the files first.
    const refuse = (error: Error): never => {
      throw new DataError(error.message);
    };
    if (chosen.tlsCert !== undefined && chosen.tlsKey !== undefined)
      await loadCertificate(chosen.tlsCert, chosen.tlsKey).catch(refuse);
    if (chosen.caCerts !== undefined) await trustAuthorities(chosen.caCerts).catch(refuse);
    const app = await startApp(chosen, log).catch(error => {
      throw listenProblem(error, chosen) ?? error;
    });

    return new Promise(resolve => {
      const stop = () => {
        process.off('SIGTERM', stop);
        process.off('SIGINT', stop);
        app.close().then(
          () => resolve(0),
          error => {
            log.error('stop failed', { cause: error });
            resolve(1);
          },
        );
      };
      process.on('SIGTERM', stop);
      process.on('SIGINT', stop);
      process.on('SIGHUP', () => {
        app.reloadCertificate().then(
          () => log.info('certificate reloaded'),
          error => log.error('certificate could not be reloaded', { cause: error }),
        );
      });
      // Printed last: a reader may send a signal at once.
      process.stdout.write(`assay is serving ${app.url}\n`);
      if (!hasAccounts(app.db)) process.stdout.write(`set-up code: ${getSetUpCode(app.db)}\n`);
      else if (!hasAdministrator(app.db))
        process.stdout.write(
          `there is no active administrator; promote an account with "assay user set EMAIL --admin --standing active --data ${chosen.data}"\n`,
        );
    });
  },
};

/** A message for an address that cannot be used; undefined for any other error. */
function listenProblem(error: NodeJS.ErrnoException, { listen }: Settings): DataError | undefined {
  if (!['bind', 'listen', 'getaddrinfo'].includes(error.syscall ?? '')) return undefined;
  const reasons: Record<string, string> = {
    EADDRINUSE: 'another program is using it',
    EACCES: 'this user may not use that port',
    EADDRNOTAVAIL: 'this machine has no such address',
    ENOTFOUND: 'there is no such host',
  };
  const reason = reasons[error.code ?? ''] ?? error.message;
  return new DataError(
    `cannot listen on ${listen.host}:${listen.port}: ${reason}; choose another with --listen`,
  );
}

/** Runs this command alone. The server starts sooner without the code of the others. */
export const runCommand = (argv: readonly string[]): Promise<number> =>
  runCommandLine(
    {
      introduction: serve.summary,
      groups: [{ title: 'Server', commands: [serve] }],
      families: {},
      conclusion: '',
      statusOf,
    },
    argv,
  );
