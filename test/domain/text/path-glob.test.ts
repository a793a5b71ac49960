import assert from 'node:assert/strict';
import { test } from 'node:test';
import { basesOf, checkPathGlobs, parsePathGlobs } from '../../../src/domain/text/path-glob.ts';

const matches = (glob: string, path: string) => parsePathGlobs(glob).some(one => one.matches(path));

const cases: [glob: string, matching: string[], others: string[]][] = [
  ['junit.xml', ['junit.xml', 'junit.xml/inside'], ['a/junit.xml', 'junit.xml2']],
  ['coverage', ['coverage/index.html', 'coverage/a/b.js'], ['coverage2/x', 'a/coverage/x']],
  ['coverage/', ['coverage/index.html', 'coverage/a/b.js'], ['coverages']],
  ['coverage/**', ['coverage/index.html', 'coverage/a/b.js'], ['other/coverage/x']],
  ['*.xml', ['a.xml', '.xml'], ['a/b.xml', 'a.xml/b']],
  ['**/*.xml', ['a.xml', 'a/b.xml', 'a/b/c.xml'], ['a.xmls', 'a/b.xml/c']],
  ['a/**/b/*.log', ['a/b/x.log', 'a/1/2/b/x.log', 'a/b/b/x.log'], ['a/b/c/x.log', 'b/x.log']],
  ['target/*/TEST-?.xml', ['target/x/TEST-1.xml'], ['target/TEST-1.xml', 'target/x/y/TEST-1.xml']],
  ['**', ['a', 'a/b', '.git/config'], []],
  ['lib[0-9]/*', ['lib1/a'], ['libx/a']],
  ['a/*/', ['a/b/c', 'a/b/c/d'], ['a']],
];

test('globs match paths as in other programs', () => {
  for (const [glob, matching, others] of cases) {
    for (const path of matching) assert.ok(matches(glob, path), `${glob} matches ${path}`);
    for (const path of others) assert.ok(!matches(glob, path), `${glob} does not match ${path}`);
  }
});

test('a glob names the directory that everything it matches is in', () => {
  const baseOf = (glob: string) => parsePathGlobs(glob)[0]?.base;
  assert.equal(baseOf('coverage/**'), 'coverage');
  assert.equal(baseOf('build/reports/*.xml'), 'build/reports');
  assert.equal(baseOf('junit.xml'), 'junit.xml');
  assert.equal(baseOf('**/*.xml'), '');
  assert.equal(baseOf('dist/'), 'dist');
});

test('directories inside others are not read twice', () => {
  const globs = parsePathGlobs('a/b/*.xml\na/**\nab/*\na/b/c\n');
  assert.deepEqual(basesOf(globs), ['a', 'ab']);
  assert.deepEqual(basesOf(parsePathGlobs('a/*\n**/x')), ['']);
});

test('only relative paths without .. are accepted, and at most 50', () => {
  for (const text of ['', '\n\n', 'a', ' a/b/** \n\r\n*.xml', 'a/b/', 'ü/*', 'a..b/c', '.config/x'])
    assert.equal(checkPathGlobs(text), undefined, JSON.stringify(text));
  for (const text of [
    '/etc/passwd',
    '../x',
    'a/../b',
    'a/..',
    './a',
    'a//b',
    'a\tb',
    'a\\b',
    'x'.repeat(1025),
  ])
    assert.equal(checkPathGlobs(text), 'invalid_format', JSON.stringify(text));
  assert.equal(checkPathGlobs('a\n'.repeat(50)), undefined);
  assert.equal(checkPathGlobs('a\n'.repeat(51)), 'invalid_format');
});

test('many wildcards take no exponential time', () => {
  const glob = `${'**/a/'.repeat(60)}b`;
  assert.ok(!matches(glob, `${'a/'.repeat(500)}c`));
  assert.ok(matches(glob, `${'a/'.repeat(500)}b`));
});
