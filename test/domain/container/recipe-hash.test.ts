// The recipe of a compile: everything that can change its artifact is part of it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hashRecipe } from '../../../src/domain/container/compile-plan.ts';

type Recipe = Parameters<typeof hashRecipe>[0];

const library = { prefix: '/opt/library', hash: 'b'.repeat(64), environment: '', libraryPath: true };
const recipe: Recipe = {
  archiveHash: 'a'.repeat(64),
  dependency: { command: 'make install', prefix: '/opt/tool', source: 'tool-1.0' },
  imageIdentity: 'sha256:1',
  runAs: { uid: 1000, gid: 1000 },
  related: [library, { ...library, prefix: '/opt/other' }],
};

const changes: [string, Partial<Recipe>][] = [
  ['the archive', { archiveHash: 'c'.repeat(64) }],
  ['the command', { dependency: { ...recipe.dependency, command: 'make' } }],
  ['the prefix', { dependency: { ...recipe.dependency, prefix: '/opt/tool2' } }],
  ['the source directory', { dependency: { ...recipe.dependency, source: '' } }],
  ['the content of the image', { imageIdentity: 'sha256:2' }],
  ['the user', { runAs: { uid: 1000, gid: 0 } }],
  ['the order of related dependencies', { related: recipe.related.toReversed() }],
  ['a related artifact', { related: [{ ...library, hash: 'd'.repeat(64) }] }],
  ['variables of a related dependency', { related: [{ ...library, environment: 'A=1' }] }],
  ['the library path of a related dependency', { related: [{ ...library, libraryPath: false }] }],
];

test('a recipe changes with everything that a compile gets', () => {
  const hashes = [{}, ...changes.map(([, change]) => change)].map(change =>
    hashRecipe({ ...recipe, ...change }),
  );
  assert.equal(new Set(hashes).size, hashes.length);
  assert.equal(hashRecipe({ ...recipe, dependency: { ...recipe.dependency } }), hashes[0]);
});
