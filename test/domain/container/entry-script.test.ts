// Variables of any name and content, and search paths, as a shell reads them; records of the entry script.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  parseRecord,
  renderEnvironment,
  type SearchPath,
} from '../../../src/domain/container/entry-script.ts';
import { maskText } from '../../../src/domain/text/mask.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-environment-'));
after(() => rmSync(directory, { recursive: true, force: true }));

function environmentAfter(
  shell: string,
  variables: { name: string; content: string }[],
  searchPaths: SearchPath[] = [],
  image: Record<string, string> = {},
) {
  const file = join(directory, 'environment');
  writeFileSync(file, renderEnvironment(variables, searchPaths));
  const printed = execFileSync(shell, ['-c', 'set -- env -0; . "$0" 2>/dev/null; exec "$@"', file], {
    env: { PATH: process.env.PATH, ...image },
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
    const script = '. "$0"; echo "$LONG"; . "$0"; printf "%s\\n" "$ASSAY_LONG" "$LONG"; env';
    const printed = execFileSync(shell, ['-c', script, file], {
      env: { PATH: process.env.PATH, LONG: 'of the image' },
      timeout: 10_000,
    });
    const [first, mark, value, ...environment] = printed.toString().split('\n');
    assert.deepEqual([first, mark, value], ['of the image', '1', content], `${shell}: only the second time`);
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

test('search paths come before those of a variable, or of the image', () => {
  const paths: SearchPath[] = [
    { name: 'PATH', directories: ['/opt/a/bin', '/opt/a/sbin'] },
    { name: 'CPATH', directories: ["/opt/it's/include", '/opt/b/include'] },
    { name: 'LIBRARY_PATH', directories: ['/opt/a/lib'] },
    { name: 'ACLOCAL_PATH', directories: ['/opt/a/share/aclocal'] },
    { name: 'MANPATH', directories: ['/opt/a/man'], endsEmpty: true },
    { name: 'OTHER_MANPATH', directories: ['/opt/a/man'], endsEmpty: true },
  ];
  const variables = [
    { name: 'CPATH', content: 'of a dependency' },
    { name: 'CPATH', content: '$(id):of the suite' },
    { name: 'LIBRARY_PATH', content: '' },
    { name: 'OTHER_MANPATH', content: 'own' },
  ];
  for (const shell of ['sh', 'bash']) {
    const found = environmentAfter(shell, variables, paths, { ACLOCAL_PATH: '/image $HOME' });
    assert.match(found.get('PATH') ?? '', /^\/opt\/a\/bin:\/opt\/a\/sbin:./);
    assert.equal(found.get('CPATH'), "/opt/it's/include:/opt/b/include:$(id):of the suite");
    assert.equal(found.get('LIBRARY_PATH'), '/opt/a/lib', 'an empty element would be the current directory');
    assert.equal(found.get('ACLOCAL_PATH'), '/opt/a/share/aclocal:/image $HOME');
    assert.equal(found.get('MANPATH'), '/opt/a/man:');
    assert.equal(found.get('OTHER_MANPATH'), '/opt/a/man:own');
  }
});

test('a record of this or the previous version is read, and nothing else', () => {
  const exit = {
    kind: 'exit',
    name: 'launch-1',
    status: 137,
    outOfMemory: false,
    overran: false,
    hasNoArtifacts: false,
  };
  const end = { kind: 'step', name: 'launch-1', phase: 'end', status: 0, durationMs: undefined };
  for (const [payload, record] of [
    ['begin launch-1', { kind: 'step', name: 'launch-1', phase: 'begin' }],
    ['end launch-1 0 1234.56 1235.81', { ...end, durationMs: 1_250 }],
    ['end launch-1 0 within', end],
    ['end launch-1 0 0 0', { ...end, durationMs: 0 }],
    ['exit launch-1 137 within overran', { ...exit, overran: true }],
    ['exit launch-1 137 oom within', { ...exit, outOfMemory: true }],
    ['exit launch-1 137 oom within empty', { ...exit, outOfMemory: true, hasNoArtifacts: true }],
    ['exit launch-1 137 within within filled', exit],
    ['exit launch-1 137 oom', { ...exit, outOfMemory: true }],
    ['exit launch-1 137', exit],
    ['begin launch-1 0', undefined],
    ['exit launch-1 256', undefined],
    ['exit launch-1', undefined],
    ['exit Launch 0', undefined],
    ['end launch-1 0 1 2 3', undefined],
    ['exit launch-1 137 oom within empty empty', undefined],
    ['note launch-1 0', undefined],
  ] as const)
    assert.deepEqual(parseRecord(payload), record, payload);
});

test('lines of the service are masked with the same values as the output', () => {
  assert.equal(maskText(['supersecret'], 'suite x: curl -u supersecret'), 'suite x: curl -u ***');
  assert.equal(maskText([], 'nothing to hide'), 'nothing to hide');
});
