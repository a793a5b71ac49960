// The help texts, the completion in real shells, and the man pages.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { manualPages } from '../../src/cli/manual-page.ts';
import { commands, line } from '../../src/cli.ts';
import { clientLine } from '../../src/client/command-line.ts';
import { EXIT } from '../../src/client/exit-status.ts';
import { type Command, explainedFlags, helpText } from '../../src/command/command.ts';
import { completions } from '../../src/command/completion.ts';
import { firstWordsOf, overview } from '../../src/command/run-command.ts';
import { environmentWith, runAssay, temporaryDirectory } from './program.ts';

const SCREEN = { lines: 44, columns: 120 };
const DEADLINE_MS = 30_000;

/** Each is the words of a command line, of which the last is being typed. Resolves with what the shell offers for each. */
type Complete = (lines: readonly string[][]) => Promise<string[][]>;

const inBash: Complete = async lines =>
  lines.map(words => {
    const typed = words.map(word => `'${word}'`).join(' ');
    const ask = `${completions.bash(line)}\nCOMP_WORDS=(${typed}); COMP_CWORD=${words.length - 1}; _assay; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return execFileSync('bash', ['-c', ask], { encoding: 'utf8', timeout: DEADLINE_MS, cwd: '/' })
      .split('\n')
      .filter(word => word !== '');
  });

/** Types each line in an interactive zsh, and reads the list that it shows. */
const inZsh: Complete = async lines => {
  using place = temporaryDirectory();
  writeFileSync(join(place.path, '_assay'), completions.zsh(line));
  writeFileSync(
    join(place.path, '.zshrc'),
    [
      'PS1= LISTMAX=1000 fpath=($ZDOTDIR $fpath)',
      'unsetopt prompt_cr prompt_sp list_types',
      'autoload -Uz compinit; compinit -D -u',
      'mark() { print -r -- "<end>"; BUFFER= }; zle -N mark',
      "bindkey '^Xl' list-choices '^Xm' mark",
      'print -r -- "<end>"',
    ].join('\n'),
  );
  const child = spawn('script', ['-qfec', 'stty cols 200 rows 100; exec zsh -d -i', '/dev/null'], {
    env: environmentWith({ ZDOTDIR: place.path, TERM: 'dumb' }),
    cwd: '/',
    stdio: ['pipe', 'pipe', 'inherit'],
    timeout: DEADLINE_MS,
  });
  let screen = '';
  child.stdout.setEncoding('utf8').on('data', text => {
    const isFirst = screen === '';
    screen += text;
    if (isFirst) {
      for (const words of lines) child.stdin.write(`${words.join(' ')}\x18l\x18m`);
      child.stdin.write('exit\r');
    }
  });
  await once(child, 'close');
  return screen
    .split('<end>')
    .slice(1, -1)
    .map(text =>
      text
        .split('\n')
        .slice(2, -1)
        .flatMap(row => (row.split(' -- ')[0] as string).trim().split(/\s+/)),
    );
};

const inFish: Complete = async lines => {
  const asked = lines.map(words => `complete -C '${words.join(' ')}'; echo '<end>'`);
  const output = execFileSync('fish', ['-N', '-c', `${completions.fish(line)}\n${asked.join('\n')}`], {
    encoding: 'utf8',
    timeout: DEADLINE_MS,
    cwd: '/',
  });
  return output
    .split('<end>\n')
    .slice(0, -1)
    .map(text =>
      text
        .split('\n')
        .filter(row => row !== '')
        .map(row => row.split('\t')[0] as string),
    );
};

for (const [shell, complete] of Object.entries({ bash: inBash, zsh: inZsh, fish: inFish }))
  test(`${shell} completes commands, second words, flags, files and fixed words`, async () => {
    const cases: [typed: string[], isOffered: string[], isNotOffered?: string[]][] = [
      [['assay', ''], [...firstWordsOf(commands)]],
      [['assay', 'ba'], ['backup'], ['serve']],
      [
        ['assay', 'image', ''],
        ['list', 'use', 'import'],
      ],
      [
        ['assay', 'user', 'add', '--'],
        ['--admin', '--data', '--help'],
        // It is accepted, but the help of the command does not list it.
        ['--pids'],
      ],
      [['assay', 'restore', '--'], ['--data'], ['--admin']],
      [
        ['assay', 'completion', ''],
        ['bash', 'zsh', 'fish'],
      ],
      [['assay', 'help', 'trig'], ['triggers']],
      [['assay', 'restore', '/etc/hostn'], ['/etc/hostname']],
      [['assay', 'image', 'import', '/etc/hostn'], ['/etc/hostname']],
      [['assay', 'serve', '--data', '/et'], ['/etc']],
      [['assay', 'serve', '--timeout', ''], []],
      [['assay', 'user', 'reset', ''], []],
      [['assay', 'nonsense', ''], []],
    ];
    const offered = await complete(cases.map(([typed]) => typed));
    assert.equal(offered.length, cases.length);
    for (const [at, [typed, isOffered, isNotOffered = []]] of cases.entries()) {
      // zsh shows file names without their directory; others add a slash to a directory.
      const name = (word: string) => word.replace(/\/$/, '').split('/').at(-1) as string;
      const found = offered[at]?.map(name) ?? [];
      const message = `${typed.join(' ')}: ${JSON.stringify(offered[at])}`;
      for (const word of isOffered) assert.ok(found.includes(name(word)), message);
      for (const word of isNotOffered) assert.ok(!found.includes(word), message);
      if (isOffered.length === 0) assert.deepEqual(found, [], message);
    }
  });

test('zsh and fish describe commands and flags', () => {
  for (const text of [completions.zsh(line), completions.fish(line)]) {
    assert.ok(text.includes('Backs up everything into one file'));
    assert.ok(text.includes('makes the account an administrator'));
  }
});

test('the description of a flag is the text beside it, or below it if it is long', () => {
  const flags = { long: 'value', wide: 'flag', yes: 'flag', no: 'flag', size: 'value' } as const;
  const help = [
    '  --size BYTES          how large',
    '  -y, --yes, --no       answers',
    '  --wide Really wide',
    '  --long VALUE-OF-A-FLAG',
    '                        how long',
    '  --other               not a flag of this command',
  ];
  const command = { ...(commands[0] as Command), flags, help, letters: { y: 'yes' } };
  assert.deepEqual(
    explainedFlags(command).map(({ name, letter, text }) => [name, letter, text]),
    [
      ['size', undefined, 'how large'],
      ['yes', 'y', 'answers'],
      ['no', undefined, 'answers'],
      ['wide', undefined, 'Really wide'],
      ['long', undefined, 'how long'],
    ],
  );
});

test('zsh accepts the completion as a sourced file, and every script is accepted without a warning', () => {
  using place = temporaryDirectory();
  for (const [shell, args] of [
    ['bash', ['-n']],
    ['zsh', ['-f', '-n']],
    ['fish', ['-N', '-n']],
  ] as const) {
    const path = join(place.path, shell);
    writeFileSync(path, completions[shell](line));
    const printed = execFileSync('sh', ['-c', '"$@" 2>&1', 'sh', shell, ...args, path], {
      encoding: 'utf8',
    });
    assert.equal(printed, '', shell);
  }
  const sourced = 'autoload -Uz compinit; compinit -D -u; source $1; print $_comps[assay]';
  const registered = execFileSync('zsh', ['-f', '-c', sourced, 'zsh', join(place.path, 'zsh')], {
    encoding: 'utf8',
  });
  assert.equal(registered.trim(), '_assay');
});

test('the program prints the completion, and refuses another shell', async () => {
  for (const [shell, make] of Object.entries(completions))
    assert.equal((await runAssay(['completion', shell])).stdout, make(line));
  const other = await runAssay(['completion', 'tcsh']);
  assert.equal(other.status, 2);
  assert.match(other.stderr, /no completion for "tcsh": bash, zsh or fish/);
});

for (const command of commands)
  test(`the help of ${command.name} fits a screen, begins with its usage and explains its flags`, () => {
    const lines = helpText(command).split('\n');
    assert.match(lines[0] ?? '', new RegExp(`^usage: assay ${command.name}`));
    assert.ok(lines.length <= SCREEN.lines, `${lines.length} lines`);
    for (const one of lines) assert.ok(one.length <= SCREEN.columns, one);
    const explained = explainedFlags(command).map(({ name }) => name);
    // Commands that open the data directory accept all settings, so that they can share a file of them.
    const isSetting = (name: string) => commands.find(({ name: of }) => of === 'serve')?.flags[name];
    for (const name of Object.keys(command.flags))
      if (!isSetting(name)) assert.ok(explained.includes(name), `--${name} is not explained`);
    for (const [letter, name] of Object.entries(command.letters ?? {}))
      assert.ok(lines.join('\n').includes(`-${letter}, --${name}`), `-${letter} is not explained`);
  });

describe('the overview', () => {
  test('--help lists every command once, on one screen, the same as no arguments', async () => {
    const { stdout, status } = await runAssay(['--help']);
    assert.equal(status, 0);
    assert.equal((await runAssay([])).stdout, stdout);
    const lines = stdout.trimEnd().split('\n');
    assert.ok(lines.length <= SCREEN.lines, `${lines.length} lines`);
    for (const one of lines) assert.ok(one.length <= SCREEN.columns, one);
    for (const word of firstWordsOf(commands))
      assert.equal(lines.filter(one => one.startsWith(`  ${word} `)).length, 1, word);
  });

  test('commands with the same first word are one line, and their own help lists them', async () => {
    const { stdout } = await runAssay(['--help']);
    assert.match(stdout, /^ {2}image +Images that containers run in: list, use, import\.$/m);
    for (const words of [
      ['image', '--help'],
      ['help', 'image'],
    ])
      assert.match(
        (await runAssay(words)).stdout,
        /^usage: assay image list \| image use \| image import\n\n.*\n\n.*image list .*\n.*image use .*\n.*image import /,
      );
    for (const word of firstWordsOf(commands))
      if (commands.filter(({ name }) => name.startsWith(`${word} `)).length > 1)
        assert.ok(Object.hasOwn(line.families, word), `there is no description of ${word}`);
  });

  test('the client alone has the same help', async () => {
    const text = overview(clientLine);
    for (const word of firstWordsOf(clientLine.groups.flatMap(group => group.commands)))
      assert.match(text, new RegExp(`^  ${word} `, 'm'));
    assert.doesNotMatch(text, /^ {2}serve /m);
  });

  test('"help COMMAND" is the help of the command', async () => {
    for (const words of [['doctor'], ['user', 'reset']])
      assert.equal(
        (await runAssay(['help', ...words])).stdout,
        (await runAssay([...words, '--help'])).stdout,
        words.join(' '),
      );
    const both = (await runAssay(['help', 'tests'])).stdout;
    assert.match(both, /^Test results\n/, 'a topic of the same name comes first');
    assert.match(both, /"assay tests --help" explains the command\.\n$/);
  });

  test('an unknown command exits with 2, and the message names those with a similar name', async () => {
    for (const [typed, expected] of [
      ['imgae', /did you mean image\?/],
      ['serv', /did you mean serve\?/],
      ['bakcup', /did you mean backup\?/],
      ['frobnicate', /^assay: there is no command "frobnicate"; "assay --help" lists them\n$/],
      ['', /no command ""/],
    ] as const) {
      const { status, stderr, stdout } = await runAssay([typed]);
      assert.deepEqual([status, stdout], [2, ''], typed);
      assert.match(stderr, expected);
    }
    const second = await runAssay(['image', 'lst']);
    assert.equal(second.status, 2);
    assert.match(second.stderr, /assay image needs one of: list, use, import/);
  });
});

describe('the man pages', () => {
  const pages = manualPages(line, '1.2.3');

  test('assay(1) lists every command, setting, variable and exit status, and each first word has a page', () => {
    const main = pages['assay.1'] ?? '';
    for (const word of firstWordsOf(commands)) assert.ok(main.includes(`\\fBassay\\-${word}\\fR(1)`), word);
    for (const name of [
      ...['ASSAY_DATA', 'ASSAY_MIN_FREE_DISK', 'ASSAY_WEBHOOK_ALLOW'],
      ...['ASSAY_URL', 'ASSAY_TOKEN', 'ASSAY_CA_FILE', 'NO_COLOR'],
    ])
      assert.ok(main.includes(name), name);
    for (const status of Object.values(EXIT)) assert.match(main, new RegExp(`^\\\\fB${status}\\\\fR$`, 'm'));
    assert.match(pages['assay-image.1'] ?? '', /^\.SS assay image import FILE$/m);
    assert.match(pages['assay-restore.1'] ?? '', /^\\fBassay restore FILE\\fR/m);
  });

  test('groff accepts them without warnings', () => {
    for (const [name, page] of Object.entries(pages)) {
      const warnings = execFileSync('sh', ['-c', 'groff -man -ww -Tutf8 -z 2>&1'], {
        input: page,
        encoding: 'utf8',
      });
      assert.equal(warnings, '', name);
    }
  });
});
