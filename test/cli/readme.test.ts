// The README and CONTRIBUTING: their commands exist, their links lead to files, and they stay short.
import assert from 'node:assert/strict';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
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

test('no command has a comment: zsh takes one that is typed for arguments', () => {
  assert.ok(commands.length > 10);
  for (const line of commands) assert.doesNotMatch(line, /(^|\s)#/, line);
});

test('every script, program of the project and file that a command names is there', () => {
  for (const line of commands)
    for (const [word = ''] of line.matchAll(/(?<![\w./-])(scripts|test|src)(\/[\w.-]+)+/g)) {
      assert.ok(existsSync(join(root, word)), line);
      if (word.startsWith('scripts/')) accessSync(join(root, word), constants.X_OK);
    }
});

test('the commands that install are those of the manual, which says what covers them', () => {
  const manual = readFileSync(join(root, 'src/web/manual/install.md'), 'utf8');
  const [, block = ''] = /^## Install\n.*?^```sh\n(.*?)^```$/ms.exec(documents[0]?.text ?? '') ?? [];
  const lines = block.trimEnd().split('\n');
  assert.equal(lines.length, 4);
  for (const line of lines.filter(one => !one.startsWith('xdg-open ')))
    assert.ok(manual.includes(line), line);
});

test('every link leads to a file of the repository', () => {
  for (const { name, text } of documents)
    for (const [, target = ''] of text.matchAll(/\]\(([^)]+)\)/g))
      assert.ok(existsSync(join(root, target)), `${name}: ${target}`);
});

test('the README fits on two screens', () => {
  const lines = documents[0]?.text.split('\n') ?? [];
  const shown = lines.reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / 110)), 0);
  assert.ok(shown < 100, `${shown} lines`);
});
