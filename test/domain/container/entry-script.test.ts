// Variables of any name and content, as a shell reads them.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { renderEnvironment } from '../../../src/domain/container/entry-script.ts';
import { maskText } from '../../../src/domain/text/mask.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-environment-'));
after(() => rmSync(directory, { recursive: true, force: true }));

function environmentAfter(shell: string, variables: { name: string; content: string }[]) {
  const file = join(directory, 'environment');
  writeFileSync(file, renderEnvironment(variables));
  const printed = execFileSync(shell, ['-c', 'set -- env -0; . "$0" 2>/dev/null; exec "$@"', file], {
    env: { PATH: process.env.PATH },
    timeout: 10_000,
  });
  return new Map(
    printed
      .toString()
      .split('\0')
      .map(pair => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]),
  );
}

for (const shell of ['sh', 'bash'])
  test(`every character except for NUL arrives in ${shell} unchanged, including quotes and line ends`, () => {
    const every = Array.from({ length: 0x8ff }, (_, at) => String.fromCodePoint(at + 1)).join('');
    const variables = [
      { name: 'EVERY', content: `${every}\u2028\u{1f600}` },
      { name: 'LINES', content: "one\ntwo\r\n'three'\n\n" },
      { name: 'COMMANDS', content: '$(id) `id` $HOME \\ "x" \'; id #' },
      { name: 'LARGE', content: 'x'.repeat(131_072 - 'LARGE=\0'.length) },
      { name: 'EMPTY', content: '' },
      { name: 'IFS', content: 'nev0-' },
    ];
    const found = environmentAfter(shell, variables);
    for (const { name, content } of variables) assert.equal(found.get(name), content, name);
  });

test('a value that is too long for Linux becomes a shell variable, and programs still start', () => {
  const content = "'".repeat(131_072 - 'LONG=\0'.length + 1);
  for (const shell of ['sh', 'bash']) {
    const file = join(directory, 'environment');
    writeFileSync(
      file,
      renderEnvironment([
        { name: 'LONG', content },
        { name: 'SHORT', content: 'x' },
      ]),
    );
    const script = '. "$0"; printf "%s\\n" "$ASSAY_LONG" "$LONG"; env';
    const printed = execFileSync(shell, ['-c', script, file], {
      env: { PATH: process.env.PATH, LONG: 'of the image' },
      timeout: 10_000,
    });
    const [mark, value, ...environment] = printed.toString().split('\n');
    assert.deepEqual([mark, value], ['1', content], shell);
    assert.ok(environment.includes('SHORT=x'));
    assert.ok(!environment.some(line => line.startsWith('LONG=')));
  }
});

test('a variable that the shell reserves does not affect the others', () => {
  const own = ['UID', 'EUID', 'PPID', 'SHELLOPTS', 'BASHOPTS', 'LINENO', 'RANDOM', '_', 'LC_ALL'];
  const variables = [...own, 'LAST'].map(name => ({ name, content: 'not a number' }));
  for (const shell of ['sh', 'bash'])
    assert.equal(environmentAfter(shell, variables).get('LAST'), 'not a number', shell);
});

test('lines of the service are masked with the same values as the output', () => {
  assert.equal(maskText(['supersecret'], 'suite x: curl -u supersecret'), 'suite x: curl -u ***');
  assert.equal(maskText([], 'nothing to hide'), 'nothing to hide');
});
