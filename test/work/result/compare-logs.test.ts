// Which lines of a log another one has nothing like, and what long logs cost.
import assert from 'node:assert/strict';
import { openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { after, test } from 'node:test';
import { compareLogs } from '../../../src/work/result/compare-logs.ts';
import { temporaryDirectory } from '../../cli/program.ts';

const directory = temporaryDirectory();
after(() => directory[Symbol.dispose]());
let made = 0;
const write = (content: string | Buffer) => {
  const path = join(directory.path, `log-${++made}`);
  writeFileSync(path, content);
  return path;
};
const compare = async (good: string, bad: string) =>
  (await compareLogs(write(good), write(bad)))?.lines ?? [];

const HEAD = '[assay] checkout of 3f786850\nHEAD is now at 3f78685\n[assay] suite unit: make check\n';
const END = '[assay] the command exited with 1\n';

test('the lines that the other log has nothing like are listed once, with their numbers', async () => {
  const good = `${HEAD}12:30 compile a.c\n12:31 compile b.c\nall 12 tests passed\n`;
  const bad = `${HEAD}9:05 compile a.c\n\n9:06 compile b.c\n\x1b[31merror:\x1b[0m\tnope\x00 1\r\nerror:\tnope 2\nall 7 tests passed\nlast${END.replace('[', '\n[')}`;
  assert.deepEqual(await compare(good, bad), [
    { line: 7, text: 'error:  nope 1' },
    { line: 10, text: 'last' },
  ]);
  assert.deepEqual(await compare(good, good), []);
  assert.deepEqual(await compare('', 'only line without an end'), [
    { line: 1, text: 'only line without an end' },
  ]);
});

test('only the last step counts', async () => {
  const good = '[assay] suite unit: make\nfine\n';
  const bad =
    '[assay] checkout of 1\nsomething else\n[assay] launch db: start\nready\n[assay] suite unit: make\nfine\nbroken\n';
  assert.deepEqual(await compare(good, bad), [{ line: 7, text: 'broken' }]);
  const launching = '[assay] checkout of 1\nsomething else\n[assay] launch db: start\nrefused\n';
  assert.deepEqual(await compare(good, launching), [{ line: 4, text: 'refused' }]);
  // Where one of the pieces that are read ends.
  for (let shift = -2; shift < 24; shift += 1) {
    const end = 'x'.repeat(256 * 1024 - shift - 8);
    const across = `before\n[assay] suite unit: make\n${end}\nbroken\n`;
    assert.deepEqual((await compare(`fine\n${end}\n`, across))[0], { line: 4, text: 'broken' }, `${shift}`);
  }
  // Far from the end of a long log.
  const long = `something else\n[assay] suite unit: make\n${'fine\n'.repeat(200_000)}broken\n`;
  assert.deepEqual(await compare(good, long), [{ line: 200_003, text: 'broken' }]);
});

test('at most 200 lines are listed, and the result says that there are more', async () => {
  const letters = (at: number) =>
    [...String(at)].map(digit => String.fromCharCode(103 + Number(digit))).join('');
  const bad = Array.from({ length: 300 }, (_, at) => `line ${letters(at)}`).join('\n');
  const diff = await compareLogs(write('other\n'), write(bad));
  assert.equal(diff?.lines.length, 200);
  assert.equal(diff?.lines[199]?.text, `line ${letters(199)}`);
  assert.equal(diff?.cutBecause, 'lines');
  const complete = await compareLogs(write('other\n'), write(bad.split('\n').slice(0, 200).join('\n')));
  assert.deepEqual([complete?.lines.length, complete?.cutBecause], [200, null]);
});

test('lines of any length are compared by their beginning, and shown up to 500 characters', async () => {
  const long = `${'x'.repeat(3_000)}\n${'y'.repeat(1_000_000)}\n`;
  assert.deepEqual(await compare(long, `${long}z\n`), [{ line: 3, text: 'z' }]);
  const [shown] = await compare('a\n', `${'€'.repeat(1_000_000)}\nb\n`);
  assert.equal(shown?.text, `${'€'.repeat(499)}…`);
  const [, after] = await compare('a\n', `${'€'.repeat(1_000_000)}\nb\n`);
  assert.deepEqual(after, { line: 2, text: 'b' });
});

test('a log that is gone cannot be compared', async () => {
  const path = write('a\n');
  assert.equal(await compareLogs(path, `${path}-gone`), undefined);
  assert.equal(await compareLogs(`${path}-gone`, path), undefined);
});

test('a comparison that takes too long, or has too many lines, says so', async () => {
  const [good, bad] = [write('a\nb\nc\n'), write('a\nd\n')];
  assert.equal((await compareLogs(good, bad, { deadlineMs: -1 }))?.cutBecause, 'time');
  assert.equal((await compareLogs(good, bad, { maxKnownLines: 2 }))?.cutBecause, 'size');
});

test('logs of 64 MiB are compared while other work goes on, in little memory', async t => {
  const piece = Buffer.from(
    Array.from(
      { length: 5_000 },
      (_, at) =>
        `2026-11-16T02:34:${at % 60}.123Z [worker ${at}] compile /srv/project/src/module${at}/file.c -o /tmp/x${at}.o took ${at}ms\n    at processTicksAndRejections (node:internal/process/task_queues:105:5)\n`,
    ).join(''),
  );
  const make = (end: string) => {
    const path = join(directory.path, `log-${++made}`);
    const file = openSync(path, 'w');
    for (let size = 0; size < 64 * 1024 ** 2; size += piece.length) writeSync(file, piece);
    writeSync(file, end);
    return path;
  };
  const [good, bad] = [make('all is well\n'), make('it broke\n')];
  globalThis.gc?.();
  const memoryBefore = process.memoryUsage().rss;
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const before = process.cpuUsage();
  delay.enable();
  const diff = await compareLogs(good, bad, { deadlineMs: 60_000 });
  delay.disable();
  const { user, system } = process.cpuUsage(before);
  const grownMiB = (process.memoryUsage().rss - memoryBefore) / 1024 ** 2;
  assert.deepEqual(
    diff?.lines.map(({ text }) => text),
    ['it broke'],
  );
  const processorMs = (user + system) / 1000;
  t.diagnostic(
    `${Math.round(processorMs)} ms of processor time, ${Math.round(grownMiB)} MiB, stall of ${Math.round(delay.max / 1e6)} ms`,
  );
  // A machine with other work takes longer: a comparison that reads everything at once would take much more.
  assert.ok(processorMs < 5_000, `${processorMs} ms`);
  assert.ok(grownMiB < 60, `${grownMiB} MiB`);
});
