// The man pages, generated from the table of commands: assay(1), and a page for each first word, such as assay-run(1).

import { exitMeanings } from '../client/exit-status.ts';
import { type Command, helpLines, usageOf } from '../command/command.ts';
import {
  type CommandGroup,
  type CommandLine,
  commandsOf,
  describeWord,
  familyOf,
  firstWordsOf,
} from '../command/run-command.ts';
import { flagOf, settings } from '../config.ts';

/** The pages by the names of their files, in the language of man(7). */
export function manualPages(line: CommandLine, version: string): Record<string, string> {
  const words = firstWordsOf(commandsOf(line));
  return Object.fromEntries([
    ['assay.1', mainPage(line, version)],
    ...words.map(word => [`assay-${word}.1`, commandPage(line, word, version)]),
  ]);
}

const clientVariables: readonly [name: string, meaning: string][] = [
  ['ASSAY_URL', 'The address of the server, such as https://ci.example.org. The flag --host overrides it.'],
  ['ASSAY_TOKEN', 'An access token, or an email and an API key as EMAIL:API_KEY. It replaces the sign-in.'],
  ['ASSAY_CA_FILE', 'A file with the certificate authority of the server, PEM.'],
  ['NO_COLOR', 'If it is set, nothing is printed in colour.'],
];

function mainPage(line: CommandLine, version: string): string {
  return page('assay', version, [
    ['NAME', ['assay \\- a self\\-hosted continuous\\-integration appliance']],
    ['SYNOPSIS', [`${bold('assay')} \\fICOMMAND\\fR [\\fIFLAGS\\fR]`]],
    [
      'DESCRIPTION',
      [
        roff(
          'One executable serves an HTTPS API and web pages, fetches from Git over SSH, and runs suites and compiles in ' +
            'containers of a Docker Engine. All data is in one directory. The host needs a Docker Engine ' +
            '(API 1.41 or newer), git and an OpenSSH client.',
        ),
        '.PP',
        roff(
          'The same executable is the client: on any machine, it runs and watches builds on such a server. ' +
            '"assay login URL" signs in, and "assay run" in a checkout tests its branch.',
        ),
        '.PP',
        roff('Each command has its own page, such as '),
        `${bold('assay-serve')}(1). ${bold('assay help')} lists the topics of the manual.`,
      ],
    ],
    ...line.groups.map(({ title, commands }): Section => [title.toUpperCase(), listOf(line, commands)]),
    [
      'SETTINGS OF THE SERVER',
      [
        roff(
          'Each is an environment variable and a flag; the flag overrides the variable. DOCKER_HOST says where Docker is.',
        ),
        ...settings.flatMap(({ name, form, meaning, defaultValue }) => [
          '.TP',
          `${bold(`ASSAY_${name}`)}, ${bold(flagOf(name))} \\fI${roff(form)}\\fR`,
          roff(`${meaning}${defaultValue === '' ? '' : ` [${defaultValue}]`}`),
        ]),
      ],
    ],
    ['ENVIRONMENT OF THE CLIENT', entries(clientVariables)],
    [
      'FILES',
      entries([
        ['/etc/assay/assay.env', 'Settings of the service.'],
        ['/var/lib/assay', 'The data directory. Its master.key decrypts all secrets: keep a copy elsewhere.'],
        [
          '$XDG_CONFIG_HOME/assay/hosts.json',
          'The servers that the client has signed in to, with the credentials. Without XDG_CONFIG_HOME it is in ~/.config.',
        ],
      ]),
    ],
    [
      'EXIT STATUS',
      [
        roff('Of the commands that run and manage the server:'),
        ...entries([
          ['0', 'success'],
          ['1', 'failure'],
          ['2', 'the command line or a setting is invalid'],
        ]),
        '.PP',
        roff('Of the commands that work with builds:'),
        ...entries(exitMeanings.map(([status, meaning]) => [String(status), meaning])),
      ],
    ],
  ]);
}

function commandPage(line: CommandLine, word: string, version: string): string {
  const family = familyOf(commandsOf(line), word);
  const [first, second] = family;
  return page(`assay-${word}`, version, [
    ['NAME', [`assay\\-${roff(word)} \\- ${roff(describeWord(line, word).replace(/\.$/, ''))}`]],
    [
      'SYNOPSIS',
      family.flatMap((command, at) => [
        ...(at === 0 ? [] : ['.br']),
        `${bold(usageOf(command))} [\\fIFLAGS\\fR]`,
      ]),
    ],
    first && !second
      ? ['DESCRIPTION', descriptionOf(first)]
      : ['COMMANDS', family.flatMap(command => [`.SS ${roff(usageOf(command))}`, ...descriptionOf(command)])],
    ['SEE ALSO', [`${bold('assay')}(1)`]],
  ]);
}

const descriptionOf = (command: Command): string[] => [
  roff(command.summary),
  ...verbatim(helpLines(command).flatMap(text => text.split('\n'))),
];

const listOf = (line: CommandLine, commands: CommandGroup['commands']): string[] =>
  firstWordsOf(commands).flatMap(word => [
    '.TP',
    `${bold(`assay-${word}`)}(1)`,
    roff(describeWord(line, word)),
  ]);

type Section = readonly [title: string, lines: readonly string[]];

const page = (name: string, version: string, sections: readonly Section[]): string =>
  `${[
    `.TH ${roff(name.toUpperCase())} 1 "" "Assay ${version}" "Assay"`,
    ...sections.flatMap(([title, lines]) => [`.SH ${roff(title)}`, ...lines]),
  ].join('\n')}\n`;

const entries = (rows: readonly (readonly [name: string, meaning: string])[]): string[] =>
  rows.flatMap(([name, meaning]) => ['.TP', bold(name), roff(meaning)]);

const bold = (text: string) => `\\fB${roff(text)}\\fR`;

const verbatim = (lines: readonly string[]): string[] =>
  lines.every(line => line.trim() === '') ? [] : ['.PP', '.nf', ...lines.map(roff), '.fi'];

/** Escapes for roff, which would read a line that begins with a dot or an apostrophe as a request. */
function roff(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/, '\\&$1');
}
