// How pages show durations and sizes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatDuration, formatSize } from '../../../src/web/frame/components.ts';

test('durations are shown in the two largest units', () => {
  const shown = { 840: '840 ms', 1500: '1.5 s', 12000: '12 s', 200000: '3 min 20 s', 7500000: '2 h 5 min' };
  for (const [ms, text] of Object.entries(shown)) assert.equal(formatDuration(Number(ms)), text);
});

test('sizes are shown in binary units', () => {
  const shown = { 0: '0 B', 1023: '1023 B', 1536: '1.5 KiB', 104857600: '100 MiB' };
  for (const [bytes, text] of Object.entries(shown)) assert.equal(formatSize(Number(bytes)), text);
});
