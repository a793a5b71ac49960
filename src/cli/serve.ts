// `assay serve`: the appliance in the foreground, until it is told to stop.

import { startApp } from '../app.ts';
import { flagOf, readSettings, settings } from '../config.ts';
import { createLog } from '../log.ts';
import { hasAccounts } from '../store/accounts.ts';
import { setUpCode } from '../store/setup.ts';
import { type Command, helpOf, settingFlags } from './command.ts';

export const serve: Command = {
  name: 'serve',
  summary: 'Runs the appliance in the foreground: HTTPS API, web pages, scheduler, runner.',
  positionals: [],
  flags: settingFlags,
  help() {
    const lines = settings.map(({ name, form, meaning, usual }) => {
      const flag = `  ${`${flagOf(name)} ${form}`.padEnd(28)}`;
      return `${flag} ${meaning}${usual === '' ? '' : ` [${usual}]`}`;
    });
    return helpOf(this, [
      'Each flag can be given as a variable: ASSAY_DATA is --data. DOCKER_HOST says where Docker is.',
      '',
      ...lines,
    ]);
  },
  async run({ flags, environment }) {
    const log = createLog();
    const { settings: chosen, warnings } = readSettings(flags, environment);
    for (const warning of warnings) log.warn(warning);
    const app = await startApp(chosen, log);
    process.stdout.write(`assay is serving ${app.url}\n`);
    if (!hasAccounts(app.db)) process.stdout.write(`set-up code: ${setUpCode(app.db)}\n`);

    return new Promise(resolve => {
      const stop = () => {
        process.off('SIGTERM', stop);
        process.off('SIGINT', stop);
        app.close().then(
          () => resolve(0),
          cause => {
            log.error('stop failed', { cause });
            resolve(1);
          },
        );
      };
      process.on('SIGTERM', stop);
      process.on('SIGINT', stop);
      process.on('SIGHUP', () => {
        app.reloadCertificate().then(
          () => log.info('certificate read again'),
          cause => log.error('certificate could not be read again', { cause }),
        );
      });
    });
  },
};
