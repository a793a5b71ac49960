// The environment that a dependency gives to its users.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkEnvironment, parseEnvironment } from '../../src/domain/dependency.ts';

test('an environment has one variable in each line, and blank lines are ignored', () => {
  assert.deepEqual(parseEnvironment('A=1\r\n\n  B = x=y \nC=\n'), [
    { name: 'A', value: '1' },
    { name: 'B', value: ' x=y' },
    { name: 'C', value: '' },
  ]);
  assert.deepEqual(parseEnvironment(''), []);
});

for (const [text, error] of [
  ['PGHOST=/tmp\nPGDATA=$PREFIX/data', undefined],
  ['', undefined],
  ['PGHOST', 'invalid_format'],
  ['=x', 'invalid_format'],
  ['A-B=x', 'invalid_format'],
  ['A=1\nA=2', 'invalid_format'],
  ['PATH=/opt', 'is_reserved'],
  ['ASSAY_X=1', 'is_reserved'],
  ['PATH=/opt\n1=2', 'invalid_format'],
] as const)
  test(`the environment ${JSON.stringify(text)} is ${error ?? 'valid'}`, () =>
    assert.equal(checkEnvironment(text), error));
