// `assay completion bash` and the man page, both generated from the table of commands.

import { flagOf, settings, UsageError } from '../config.ts';
import { topicNames } from '../web/manual/manual.ts';
import { type Command, helpLines } from './command.ts';

/** The commands come from a function, because the list contains this command. */
export function completionCommand(commands: () => readonly Command[]): Command {
  return {
    name: 'completion',
    summary: 'Prints the shell completion for bash.',
    positionals: ['SHELL'],
    flags: {},
    help: ['  assay completion bash > /etc/bash_completion.d/assay'],
    async run({ positionals }) {
      if (positionals[0] !== 'bash')
        throw new UsageError(`only bash is supported, not ${JSON.stringify(positionals[0])}`);
      process.stdout.write(bashCompletion(commands()));
      return 0;
    },
  };
}

/** Flags whose value is a path. Other values are not completed. */
const PATH_FLAGS = ['--data', '--tls-cert', '--tls-key'];

export function bashCompletion(commands: readonly Command[]): string {
  const firstWords = [...new Set(commands.map(({ name }) => name.split(' ')[0]))];
  const groups = Map.groupBy(
    commands.filter(({ name }) => name.includes(' ')),
    ({ name }) => name.split(' ')[0] as string,
  );
  const cases = commands.map(({ name, flags }) => {
    const words = Object.keys(flags).map(flag => `--${flag}`);
    return `    '${name}') flags='${[...words, '--help'].join(' ')}' ;;`;
  });
  const valued = new Set(
    commands.flatMap(({ flags }) =>
      Object.keys(flags)
        .filter(flag => flags[flag] === 'value')
        .map(flag => `--${flag}`),
    ),
  );
  const plain = [...valued].filter(flag => !PATH_FLAGS.includes(flag)).sort();
  return `# bash completion for assay
_assay() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} command=\${COMP_WORDS[1]} flags=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${firstWords.join(' ')} --help --version' -- "$current"))
    return
  fi
  case $command in
${[...groups]
  .map(
    ([group, members]) => `    ${group})
      if ((COMP_CWORD == 2)); then
        COMPREPLY=($(compgen -W '${members.map(({ name }) => name.split(' ')[1]).join(' ')}' -- "$current"))
        return
      fi
      command="$command \${COMP_WORDS[2]}" ;;`,
  )
  .join('\n')}
    completion) COMPREPLY=($(compgen -W 'bash --help' -- "$current")); return ;;
    help) COMPREPLY=($(compgen -W '${topicNames.join(' ')} --help' -- "$current")); return ;;
  esac
  case $previous in
    ${PATH_FLAGS.join('|')}) COMPREPLY=($(compgen -f -- "$current")); return ;;
    ${plain.join('|')}) return ;;
  esac
  case $command in
${cases.join('\n')}
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _assay assay
`;
}

/** In the language of man(7). */
export function manualPage(commands: readonly Command[], version: string): string {
  const bold = (text: string) => `\\fB${roff(text)}\\fR`;
  const commandSections = commands.map(command => {
    const usage = [command.name, ...command.positionals].join(' ');
    const details = command.name === 'serve' ? [] : helpLines(command).flatMap(line => line.split('\n'));
    return [`.SS assay ${roff(usage)}`, roff(command.summary), ...verbatim(details)].join('\n');
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
