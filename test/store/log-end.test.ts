// The end of a log, if a crash comes after it was written and before readers were notified.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { openLog } from '../../src/store/data/log-file.ts';

function fixture(t: TestContext, limitBytes = 1_000) {
  const directory = mkdtempSync(join(tmpdir(), 'assay-log-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'build.log');
  return { open: () => openLog({ path, limitBytes }), text: () => readFileSync(path, 'utf8') };
}

test('a log that is finished again after a crash has its last lines once', async t => {
  const { open, text } = fixture(t);
  const first = await open();
  await first.append(Buffer.from('no end of line'), 14);
  await first.finish(['out of memory', 'the command exited with 137']);
  const again = await open();
  assert.equal(again.rawOffset, 14);
  await again.append(Buffer.alloc(0), 14);
  await again.finish(['out of memory', 'the command exited with 137']);
  assert.equal(text(), 'no end of line\n[assay] out of memory\n[assay] the command exited with 137\n');
});

test('omitted output is reported once, after the last lines', async t => {
  const { open, text } = fixture(t, 4);
  const first = await open();
  await first.append(Buffer.from('12345678'), 8);
  await first.finish(['canceled']);
  await (await open()).finish(['canceled']);
  assert.equal(
    text(),
    '1234\n[assay] canceled\n[assay] output past the limit of 4 bytes was not kept: 4 bytes omitted\n',
  );
});

test('another attempt after the end has its own end', async t => {
  const { open, text } = fixture(t);
  const first = await open();
  await first.finish(['It is run again.']);
  const second = await open();
  await second.append(Buffer.from('again\n'), 6);
  await second.finish(['It is run again.']);
  assert.equal(text(), '[assay] It is run again.\nagain\n[assay] It is run again.\n');
});

test('a line and the raw bytes that it stands for are stored together', async t => {
  const { open, text } = fixture(t);
  const first = await open();
  await first.line('checkout', 40);
  await first.close();
  const again = await open();
  assert.equal(again.rawOffset, 40);
  await again.close();
  assert.equal(text(), '[assay] checkout\n');
});

test('an attempt that follows one without output keeps its last lines', async t => {
  const { open, text } = fixture(t);
  const first = await open();
  await first.beginAttempt();
  await first.finish(['It is run again.']);
  const second = await open();
  await second.beginAttempt();
  await second.finish(['It was tried 2 times.']);
  const afterCrash = await open();
  await afterCrash.finish(['It was tried 2 times.']);
  assert.equal(text(), '[assay] It is run again.\n[assay] It was tried 2 times.\n');
});
