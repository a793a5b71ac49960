// Counts in English text.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countOf, formatCount } from '../../../src/domain/text/count.ts';

test('counts are shown in groups of three digits', () => {
  const shown = { 0: '0', 999: '999', 1000: '1,000', 12345: '12,345', 1234567: '1,234,567' };
  for (const [count, text] of Object.entries(shown)) assert.equal(formatCount(Number(count)), text);
});

test('the noun of a count is in the plural unless it is one', () => {
  const shown = { 0: '0 tests', 1: '1 test', 1234: '1,234 tests' };
  for (const [count, text] of Object.entries(shown)) assert.equal(countOf(Number(count), 'test'), text);
});
