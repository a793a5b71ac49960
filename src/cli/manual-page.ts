// The man page, generated from the table of commands.

import { type Command, helpLines, usageOf } from '../command/command.ts';
import { flagOf, settings } from '../config.ts';

/** In the language of man(7). */
export function manualPage(commands: readonly Command[], version: string): string {
  const bold = (text: string) => `\\fB${roff(text)}\\fR`;
  const commandSections = commands.map(command => {
    const details = command.name === 'serve' ? [] : helpLines(command).flatMap(line => line.split('\n'));
    return [`.SS ${roff(usageOf(command))}`, roff(command.summary), ...verbatim(details)].join('\n');
  });
  const settingEntries = settings.map(({ name, form, meaning, defaultValue }) =>
    [
      '.TP',
      `${bold(`ASSAY_${name}`)}, ${bold(flagOf(name))} \\fI${roff(form)}\\fR`,
      roff(`${meaning}${defaultValue === '' ? '' : ` [${defaultValue}]`}`),
    ].join('\n'),
  );
  return `${[
    `.TH ASSAY 1 "" "Assay ${version}" "Assay"`,
    '.SH NAME',
    'assay \\- a self\\-hosted continuous\\-integration appliance',
    '.SH SYNOPSIS',
    `${bold('assay')} \\fICOMMAND\\fR [\\fIFLAGS\\fR]`,
    '.SH DESCRIPTION',
    roff(
      'One executable serves an HTTPS API and web pages, fetches from Git over SSH, and runs suites and compiles in ' +
        'containers of a Docker Engine. All data is in one directory. The host needs a Docker Engine ' +
        '(API 1.41 or newer), git and an OpenSSH client.',
    ),
    '.SH COMMANDS',
    ...commandSections,
    '.SH SETTINGS',
    roff(
      'Each is an environment variable and a flag; the flag overrides the variable. DOCKER_HOST says where Docker is.',
    ),
    ...settingEntries,
    '.SH FILES',
    '.TP',
    roff('/etc/assay/assay.env'),
    'Settings of the service.',
    '.TP',
    roff('/var/lib/assay'),
    roff('The data directory. Its master.key decrypts all secrets: keep a copy elsewhere.'),
    '.SH EXIT STATUS',
    roff('0 on success, 1 on failure, 2 when the command line or a setting is invalid.'),
  ].join('\n')}\n`;
}

const verbatim = (lines: readonly string[]): string[] =>
  lines.every(line => line.trim() === '') ? [] : ['.PP', '.nf', ...lines.map(roff), '.fi'];

/** Escapes for roff, which would read a line that begins with a dot or an apostrophe as a request. */
function roff(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/, '\\&$1');
}
