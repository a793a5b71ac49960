// The README and CONTRIBUTING: their commands and links are valid, and the README stays short.
import assert from 'node:assert/strict';
import { accessSync, constants, existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { root } from '../../build/bundle.ts';

const documents = ['README.md', 'CONTRIBUTING.md'].map(name => ({
  name,
  text: readFileSync(join(root, name), 'utf8'),
}));
const commands = documents.flatMap(({ text }) =>
  [...text.matchAll(/^```sh\n(.*?)^```$/gms)].flatMap(([, block = '']) => block.trimEnd().split('\n')),
);

test('no command has a comment: an interactive zsh would take it as arguments', () => {
  assert.ok(commands.length > 10);
  for (const line of commands) assert.doesNotMatch(line, /(^|\s)#/, line);
});

test('every script and file that a command names exists', () => {
  for (const line of commands)
    for (const [word = ''] of line.matchAll(/(?<![\w./-])(scripts|test|src)(\/[\w.-]+)+/g)) {
      assert.ok(existsSync(join(root, word)), line);
      if (word.startsWith('scripts/')) accessSync(join(root, word), constants.X_OK);
    }
});

test('every file and identifier that CONTRIBUTING names exists, and its layout lists every folder of src', () => {
  const text = documents[1]?.text ?? '';
  for (const [, path = ''] of text.matchAll(/`((?:src|test|systemd|scripts)\/[\w./-]+)`/g))
    assert.ok(existsSync(join(root, path)), path);
  const identifiers = [...text.matchAll(/`(\w+)` in `([^`]+\.ts)`/g)];
  assert.ok(identifiers.length > 3);
  for (const [found, identifier = '', path = ''] of identifiers)
    assert.ok(readFileSync(join(root, path), 'utf8').includes(identifier), found);
  const [, layout = ''] = /^```text\n(.*?)^```$/ms.exec(text) ?? [];
  const named: string[] = [];
  const parents: string[] = [];
  for (const line of layout
    .split(/^test\//m)[0]
    ?.trimEnd()
    .split('\n') ?? []) {
    const [, indent = '', names = ''] = /^( *)((?:[a-z]+\/ ?)*)/.exec(line) ?? [];
    for (const name of names.split(/\/ ?/).filter(Boolean)) {
      parents.splice(indent.length / 2, parents.length, name);
      named.push(parents.join('/'));
    }
  }
  const folders = globSync('src/{*,*/*}', { cwd: root }).filter(
    path => statSync(join(root, path)).isDirectory() && !path.startsWith('src/demo/'),
  );
  assert.deepEqual(named.toSorted(), ['src', ...folders].toSorted());
});

test('the installation commands are those of the manual, which another test covers', () => {
  const manual = readFileSync(join(root, 'src/web/manual/install.md'), 'utf8');
  const [, block = ''] = /^## Install\n.*?^```sh\n(.*?)^```$/ms.exec(documents[0]?.text ?? '') ?? [];
  const lines = block.trimEnd().split('\n');
  assert.equal(lines.length, 4);
  for (const line of lines.filter(one => !one.startsWith('xdg-open ')))
    assert.ok(manual.includes(line), line);
});

test('every link points to a file of the repository', () => {
  for (const { name, text } of documents)
    for (const [, target = ''] of text.matchAll(/\]\(([^)]+)\)/g))
      assert.ok(existsSync(join(root, target)), `${name}: ${target}`);
});

test('the README fits on two screens', () => {
  const lines = documents[0]?.text.split('\n') ?? [];
  const shown = lines.reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / 110)), 0);
  assert.ok(shown < 100, `${shown} lines`);
});
