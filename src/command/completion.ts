// `assay completion bash`, generated from the table of commands.

import { type Command, type FlagKind, UsageError } from './command.ts';

/** The commands come from a function, because the list contains this command. */
export function completionCommand(commands: () => readonly Command[]): Command {
  return {
    name: 'completion',
    summary: 'Prints the shell completion for bash.',
    positionals: ['SHELL'],
    flags: {},
    words: () => ['bash'],
    help: ['  assay completion bash > /etc/bash_completion.d/assay'],
    async run({ positionals }) {
      if (positionals[0] !== 'bash')
        throw new UsageError(`only bash is supported, not ${JSON.stringify(positionals[0])}`);
      process.stdout.write(bashCompletion(commands()));
      return 0;
    },
  };
}

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
  const flagsOf = (kind: FlagKind) => [
    ...new Set(
      commands.flatMap(({ flags }) =>
        Object.keys(flags)
          .filter(flag => flags[flag] === kind)
          .map(flag => `--${flag}`),
      ),
    ),
  ];
  const worded = commands.flatMap(({ name, words }) => (words ? [{ name, words: words() }] : []));
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
${worded
  .map(
    ({ name, words }) =>
      `    ${name}) COMPREPLY=($(compgen -W '${words.join(' ')} --help' -- "$current")); return ;;`,
  )
  .join('\n')}
  esac
  case $previous in
    ${flagsOf('path').join('|')}) COMPREPLY=($(compgen -f -- "$current")); return ;;
    ${flagsOf('value').sort().join('|')}) return ;;
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
