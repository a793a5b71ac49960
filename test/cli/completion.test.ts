// The help texts, the completion in a real bash, and the man page.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { manualPage } from '../../src/cli/manual-page.ts';
import { commands } from '../../src/cli.ts';
import { helpText } from '../../src/command/command.ts';
import { bashCompletion } from '../../src/command/completion.ts';
import { runAssay } from './program.ts';

const SCREEN = { lines: 40, columns: 120 };
const script = bashCompletion(commands);

function complete(...words: string[]): string[] {
  const line = words.map(word => `'${word}'`).join(' ');
  const ask = `${script}\nCOMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _assay; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync('bash', ['-c', ask], { encoding: 'utf8', timeout: 10_000, cwd: '/' })
    .split('\n')
    .filter(word => word !== '');
}

test('bash completes commands, their second words, and the flags of each command', () => {
  assert.deepEqual(complete('assay', 'ba'), ['backup']);
  assert.deepEqual(complete('assay', 'image', ''), ['list', 'use', 'import']);
  assert.deepEqual(complete('assay', 'user', 'add', '--ad'), ['--admin']);
  assert.ok(complete('assay', 'restore', '--').includes('--data'));
  assert.ok(!complete('assay', 'restore', '--').includes('--admin'));
  assert.deepEqual(complete('assay', 'completion', ''), ['bash', '--help']);
});

test('bash completes file names where a file is expected, and nothing for other values', () => {
  assert.deepEqual(complete('assay', 'restore', '/etc/hostnam'), ['/etc/hostname']);
  assert.deepEqual(complete('assay', 'serve', '--data', '/et'), ['/etc']);
  assert.deepEqual(complete('assay', 'serve', '--timeout', ''), []);
});

test('the program prints the completion, and refuses another shell', async () => {
  assert.equal((await runAssay(['completion', 'bash'])).stdout, script);
  const other = await runAssay(['completion', 'tcsh']);
  assert.equal(other.status, 2);
  assert.match(other.stderr, /only bash is supported/);
});

for (const command of commands)
  test(`the help of ${command.name} fits a screen and begins with its usage`, () => {
    const lines = helpText(command).split('\n');
    assert.match(lines[0] ?? '', new RegExp(`^usage: assay ${command.name}`));
    assert.ok(lines.length <= SCREEN.lines, `${lines.length} lines`);
    for (const line of lines) assert.ok(line.length <= SCREEN.columns, line);
  });

test('--help lists every command once, on one screen', async () => {
  const { stdout, status } = await runAssay(['--help']);
  assert.equal(status, 0);
  const lines = stdout.trimEnd().split('\n');
  assert.ok(lines.length <= SCREEN.lines);
  for (const { name } of commands)
    assert.equal(lines.filter(line => line.startsWith(`  ${name} `)).length, 1, name);
  assert.match(
    (await runAssay(['image', '--help'])).stdout,
    /^usage: assay image list \| image use \| image import\n\n.*image list .*\n.*image use .*\n.*image import /,
  );
});

test('the man page has every command and every setting, and groff accepts it without warnings', () => {
  const page = manualPage(commands, '1.2.3');
  for (const { name } of commands) assert.match(page, new RegExp(`^\\.SS assay ${name}`, 'm'));
  for (const name of ['ASSAY_DATA', 'ASSAY_MIN_FREE_DISK', 'ASSAY_WEBHOOK_ALLOW'])
    assert.ok(page.includes(name));
  const warnings = execFileSync('sh', ['-c', 'groff -man -ww -Tutf8 -z 2>&1'], {
    input: page,
    encoding: 'utf8',
  });
  assert.equal(warnings, '');
});
