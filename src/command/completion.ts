// `assay completion SHELL`: the completion for bash, zsh and fish, generated from the table of commands.

import { type Command, type ExplainedFlag, explainedFlags, UsageError } from './command.ts';
import { type CommandLine, commandsOf, describeWord, familyOf, firstWordsOf } from './run-command.ts';

export const completions = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion };

/** The command line comes from a function, because it contains this command. */
export function completionCommand(line: () => CommandLine): Command {
  return {
    name: 'completion',
    summary: 'Prints the shell completion for bash, zsh or fish.',
    positionals: ['SHELL'],
    flags: {},
    words: () => Object.keys(completions),
    help: [
      'To install it for yourself, run the lines of your shell once and open another terminal. The installation of',
      'the server does it for everybody.',
      '',
      'bash:',
      '  mkdir -p ~/.local/share/bash-completion/completions',
      '  assay completion bash > ~/.local/share/bash-completion/completions/assay',
      '',
      'zsh, in whose ~/.zshrc the line must come after compinit:',
      "  echo 'source <(assay completion zsh)' >> ~/.zshrc",
      '',
      'fish:',
      '  mkdir -p ~/.config/fish/completions',
      '  assay completion fish > ~/.config/fish/completions/assay.fish',
    ],
    async run({ positionals }) {
      const [shell = ''] = positionals;
      if (!Object.hasOwn(completions, shell))
        throw new UsageError(`there is no completion for ${JSON.stringify(shell)}: bash, zsh or fish`);
      process.stdout.write(completions[shell as keyof typeof completions](line()));
      return 0;
    },
  };
}

const HELP = 'explains the command';
const PATH_NAMES = ['FILE', 'ARCHIVE', 'DIRECTORY'];

/** Whether file names are completed as arguments. */
const takesPaths = ({ positionals }: Command) =>
  positionals.some(name => PATH_NAMES.includes(name.replace(/^\[|(\.\.\.)?\]$/g, '')));

/** The commands of two words, by the first one. */
const familiesOf = (commands: readonly Command[]) =>
  firstWordsOf(commands)
    .map(word => ({ word, members: familyOf(commands, word).filter(({ name }) => name !== word) }))
    .filter(({ members }) => members.length > 0);

const lastWord = ({ name }: Command) => name.split(' ').at(-1) as string;

/** A word of the shell's language. */
const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

function bashCompletion(line: CommandLine): string {
  const commands = commandsOf(line);
  const offer = (words: readonly string[]) => `COMPREPLY=($(compgen -W '${words.join(' ')}' -- "$current"))`;
  const patterns = (name: string, flags: readonly ExplainedFlag[]) =>
    flags.map(flag => `'${name}':--${flag.name}`).join(' | ');
  const families = familiesOf(commands).map(
    ({ word, members }) => `    ${word})
      if ((COMP_CWORD == 2)); then ${offer([...members.map(lastWord), '--help'])}; return; fi
      command="$command \${COMP_WORDS[2]}" ;;`,
  );
  const values = commands.flatMap(command => {
    const flags = explainedFlags(command);
    const ofKind = (kind: string) => flags.filter(flag => flag.kind === kind);
    return [
      ...(ofKind('path').length > 0
        ? [
            `    ${patterns(command.name, ofKind('path'))}) COMPREPLY=($(compgen -f -- "$current")); return ;;`,
          ]
        : []),
      ...(ofKind('value').length > 0 ? [`    ${patterns(command.name, ofKind('value'))}) return ;;`] : []),
    ];
  });
  const cases = commands.map(command => {
    const flags = [...explainedFlags(command).map(({ name }) => `--${name}`), '--help'];
    const others = takesPaths(command)
      ? 'COMPREPLY=($(compgen -f -- "$current"))'
      : offer(command.words?.() ?? []);
    return `    '${command.name}')
      if [[ $current == -* ]]; then ${offer(flags)}; else ${others}; fi ;;`;
  });
  return `# bash completion for assay
_assay() {
  local IFS=$' \\t\\n' current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} command=\${COMP_WORDS[1]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    ${offer([...firstWordsOf(commands), '--help', '--version'])}
    return
  fi
  case $command in
${families.join('\n')}
  esac
  IFS=$'\\n'
  case $command:$previous in
${values.join('\n')}
  esac
  IFS=$' \\t\\n'
  case $command in
${cases.join('\n')}
  esac
}
complete -o filenames -F _assay assay
`;
}

function zshCompletion(line: CommandLine): string {
  const commands = commandsOf(line);
  /** In a description, brackets and colons have a meaning. */
  const escaped = (text: string) => text.replaceAll(/[\\[\]:]/g, '\\$&');
  const described = (rows: readonly (readonly [word: string, text: string])[]) =>
    rows.map(([word, text]) => quote(`${word}:${text.replaceAll('\\', '\\\\')}`)).join(' ');
  const flagSpec = ({ name, letter, kind, text }: ExplainedFlag) => {
    const value = kind === 'flag' ? '' : `:${name}:${kind === 'path' ? '_files' : ' '}`;
    const spec = `[${escaped(text)}]${value}`;
    return letter === undefined
      ? quote(`--${name}${spec}`)
      : `'(-${letter} --${name})'{-${letter},--${name}}${quote(spec)}`;
  };
  const argumentSpec = (command: Command) => {
    const words = command.words?.() ?? [];
    if (takesPaths(command)) return ["'*:file:_files'"];
    if (words.length > 0) return [quote(`*:word:(${words.join(' ')})`)];
    return command.positionals.length > 0 ? [quote(`*:${escaped(command.positionals.join(' '))}: `)] : [];
  };
  const families = familiesOf(commands).map(
    ({ word, members }) => `    ${word})
      if (( CURRENT == 3 )); then
        rows=(${described(members.map(one => [lastWord(one), one.summary]))})
        _describe -t commands command rows
        return
      fi
      command="$command $words[3]"
      shift words
      (( CURRENT-- )) ;;`,
  );
  const cases = commands.map(
    command =>
      `    ${quote(command.name)}) _arguments -s ${[
        ...explainedFlags(command).map(flagSpec),
        quote(`--help[${HELP}]`),
        ...argumentSpec(command),
      ].join(' ')} ;;`,
  );
  const first = firstWordsOf(commands).map(word => [word, describeWord(line, word)] as const);
  return `#compdef assay
# zsh completion for assay
_assay() {
  local command=$words[2]
  local -a rows
  if (( CURRENT == 2 )); then
    rows=(${described(first)})
    _describe -t commands command rows
    _arguments ${quote('--help[lists the commands]')} ${quote('--version[prints the version]')}
    return
  fi
  case $command in
${families.join('\n')}
  esac
  shift words
  (( CURRENT-- ))
  case $command in
${cases.join('\n')}
  esac
}
# It is a file of $fpath, or was sourced.
if [[ $funcstack[1] == _assay ]]; then _assay "$@"; else compdef _assay assay; fi
`;
}

function fishCompletion(line: CommandLine): string {
  const commands = commandsOf(line);
  const quoted = (text: string) => `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
  const at = (words: string) => `complete -c assay -n ${quoted(`__assay_at ${words}`.trim())}`;
  const inside = (name: string) => `complete -c assay -n ${quoted(`__assay_in ${name}`)}`;
  const flagLine = (name: string, flag: ExplainedFlag) =>
    [
      inside(name),
      ...(flag.letter === undefined ? [] : [`-s ${flag.letter}`]),
      `-l ${flag.name}`,
      ...(flag.kind === 'value' ? ['-x'] : flag.kind === 'path' ? ['-r -F'] : []),
      `-d ${quoted(flag.text)}`,
    ].join(' ');
  return `# fish completion for assay
function __assay_at --description 'Whether the words before the cursor are these'
    set -l words (commandline -opc)
    test "$words[2..]" = "$argv"
end
function __assay_in --description 'Whether the command is this one'
    set -l words (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end
complete -c assay -f
${at('')} -l help -d 'lists the commands'
${at('')} -l version -d 'prints the version'
${[
  ...firstWordsOf(commands).map(word => `${at('')} -a ${word} -d ${quoted(describeWord(line, word))}`),
  ...familiesOf(commands).flatMap(({ word, members }) =>
    members.map(one => `${at(word)} -a ${lastWord(one)} -d ${quoted(one.summary)}`),
  ),
  ...commands.flatMap(command => [
    ...explainedFlags(command).map(flag => flagLine(command.name, flag)),
    `${inside(command.name)} -l help -d ${quoted(HELP)}`,
    ...(takesPaths(command) ? [`${inside(command.name)} -F`] : []),
    ...(command.words ? [`${inside(command.name)} -a ${quoted(command.words().join(' '))}`] : []),
  ]),
].join('\n')}
`;
}
