// How pages show numbers and durations.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatCount, formatDuration, formatSize } from '../../../src/web/frame/components.ts';

test('counts are shown in groups of three digits', () => {
  const shown = { 0: '0', 999: '999', 1000: '1,000', 12345: '12,345', 1234567: '1,234,567' };
  for (const [count, text] of Object.entries(shown)) assert.equal(formatCount(Number(count)), text);
});

test('durations are shown in the two largest units', () => {
  const shown = { 840: '840 ms', 1500: '1.5 s', 12000: '12 s', 200000: '3 min 20 s', 7500000: '2 h 5 min' };
  for (const [ms, text] of Object.entries(shown)) assert.equal(formatDuration(Number(ms)), text);
});

test('sizes are shown in binary units', () => {
  const shown = { 0: '0 B', 1023: '1023 B', 1536: '1.5 KiB', 104857600: '100 MiB' };
  for (const [bytes, text] of Object.entries(shown)) assert.equal(formatSize(Number(bytes)), text);
});
