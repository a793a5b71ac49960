// The recipes of the cookbook: each is complete and valid, and archives select the right one.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import {
  cookbook,
  findRecipe,
  guessDirectory,
  matchRecipe,
  parseArchiveName,
} from '../../src/domain/cookbook.ts';
import { checkEnvironment } from '../../src/domain/dependency.ts';
import { checkCommand, checkLine, checkPrefix, checkSource } from '../../src/domain/names.ts';

test('there are at least twelve recipes, and no two have the same id, title or prefix', () => {
  assert.ok(cookbook.length >= 12);
  for (const key of ['id', 'title', 'prefix'] as const)
    assert.equal(new Set(cookbook.map(recipe => recipe[key].toLowerCase())).size, cookbook.length, key);
});

for (const recipe of cookbook)
  test(`the recipe ${recipe.title} is valid`, () => {
    assert.match(recipe.id, /^[a-z0-9-]+$/);
    // The anchor of its section in the manual is made from the title.
    assert.equal(recipe.title.toLowerCase(), recipe.id);
    assert.equal(checkLine(recipe.title), undefined);
    assert.equal(checkPrefix(recipe.prefix), undefined);
    assert.equal(checkCommand(recipe.command, recipe.prefix), undefined);
    assert.equal(checkEnvironment(recipe.environment), undefined);
    for (const [, directory] of recipe.archives) assert.equal(checkSource(directory), undefined);
    for (const library of recipe.libraries) assert.ok(findRecipe(library.recipe), library.recipe);
    for (const script of [recipe.command, recipe.launchCommand, recipe.tryCommand])
      execFileSync('sh', ['-nc', script]);
  });

test('the name of an archive selects its recipe and the directory inside it', () => {
  for (const recipe of cookbook) {
    assert.ok(
      recipe.archives.some(([file]) => parseArchiveName(file)?.isDebian),
      recipe.id,
    );
    for (const [file, directory] of recipe.archives) {
      const matching = cookbook.filter(({ archiveName }) =>
        archiveName.test(parseArchiveName(file)?.name ?? ''),
      );
      assert.deepEqual(
        matching.map(({ id }) => id),
        [recipe.id],
        file,
      );
      assert.equal(guessDirectory(file, recipe), directory);
    }
  }
});

test('a second download of an archive has the same recipe', () => {
  assert.equal(matchRecipe('redis-7.2.5 (1).tar.gz')?.id, 'redis');
  assert.equal(matchRecipe('redis-7.2.5(2).tar.gz')?.id, 'redis');
  assert.equal(guessDirectory('redis-7.2.5 (1).tar.gz'), 'redis-7.2.5');
});

test('other programs with similar names have no recipe', () => {
  for (const file of [
    'redis-py-5.0.tar.gz',
    'postgresql-common-1.0.tar.gz',
    'luajit-2.1.tar.gz',
    'python-ldap-3.4.tar.gz',
    'pcre-8.45.tar.gz',
    'zlib-ng-2.2.tar.gz',
    'sqlite3_3.40.1.orig-www.tar.xz',
    'redis.tar.gz',
    'redis-7.2.5.tar.gz.asc',
    'redis-7.2.5',
    '7.2.5.tar.gz',
    '',
  ])
    assert.equal(matchRecipe(file), undefined, file);
});

for (const [file, expected] of [
  ['hello-2.12.1.tar.gz', { name: 'hello', version: '2.12.1', isDebian: false }],
  ['tree-sitter-0.22.6.zip', { name: 'tree-sitter', version: '0.22.6', isDebian: false }],
  ['libx11_1.8.4.orig.tar.gz', { name: 'libx11', version: '1.8.4', isDebian: true }],
  ['tool-v2.0-rc1.tar.zst', { name: 'tool', version: 'v2.0-rc1', isDebian: false }],
  ['notes.txt', undefined],
  ['hello.tar.gz', undefined],
] as const)
  test(`${file} is read as ${expected ? `${expected.name} ${expected.version}` : 'no archive of a version'}`, () =>
    assert.deepEqual(parseArchiveName(file), expected));
