// The search in log files, with and without their filters.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { compileQuery } from '../../../src/domain/result/log-query.ts';
import { removeLog } from '../../../src/store/data/log-file.ts';
import { createSearchBuffer, makeLogFilter, searchLog } from '../../../src/store/result/log-filter.ts';

const MIB = 1024 * 1024;
const directory = mkdtempSync(join(tmpdir(), 'assay-log-filter-'));
after(() => rmSync(directory, { recursive: true }));
let made = 0;
function writeLog(content: string): string {
  const path = join(directory, `${++made}.log`);
  writeFileSync(path, content);
  return path;
}
const buffer = createSearchBuffer();
const search = (path: string, query: string, limit = 5) =>
  searchLog(path, compileQuery(query), { limit, buffer });

/** Lines that fill some megabytes, with these at their numbers. */
function longLog(mebibytes: number, marked: Record<number, string>): string {
  const count = Math.floor((mebibytes * MIB) / 32);
  return Array.from({ length: count }, (_, at) => marked[at + 1] ?? `line ${at + 1}`.padEnd(31, '.'))
    .concat('')
    .join('\n');
}

test('the search finds the same lines with and without a filter', async () => {
  const marked = {
    7: 'needle one',
    40000: 'Needle two',
    40001: '\x1b[31mneedle\x1b[0m three',
    95000: 'a needle',
  };
  const content = longLog(3, marked);
  const path = writeLog(content);
  const expected = Object.keys(marked).map(Number);
  const check = async () => {
    const found = await search(path, 'needle');
    assert.deepEqual(
      found.map(({ line }) => line),
      expected,
    );
    for (const { line, offset } of found)
      assert.equal(content.slice(0, offset).split('\n').length, line, 'the offset is where the line begins');
    assert.equal((await search(path, 'needle', 2)).length, 2);
    assert.deepEqual(await search(path, 'no such text'), []);
  };
  await check();
  await makeLogFilter(path);
  assert.ok(statSync(`${path}.grams`).size <= 5 * (8 * 1024 + 64), 'about 8 KiB for each MiB');
  await check();
});

test('with a filter, only parts that may contain the text are read', async () => {
  const path = writeLog(longLog(3, { 50000: 'needle' }));
  await makeLogFilter(path);
  // Hidden from the filter, so a search that reads these parts would find them.
  const content = readFileSync(path);
  content.write('haystack', 0);
  content.write('haystack', content.length - 32);
  writeFileSync(path, content);
  assert.deepEqual(await search(path, 'haystack'), []);
  assert.equal((await search(path, 'needle'))[0]?.line, 50_000);
});

test('a match in a line longer than a part is found once, wherever it is', async () => {
  for (const isFiltered of [false, true])
    for (const at of [0, 128 * 1024 - 3, MIB - 3, MIB - 2 * 1024, 2 * MIB + 5]) {
      const content = `first\n${'é'.repeat(at / 2)}needle${'x'.repeat(3 * MIB - at)}\nlast needle\n`;
      const path = writeLog(content);
      if (isFiltered) await makeLogFilter(path);
      const found = await search(path, 'needle');
      assert.deepEqual(
        found.map(({ line, offset }) => [line, offset]),
        [
          [2, 6],
          [3, Buffer.byteLength(content) - 12],
        ],
        `at ${at}`,
      );
    }
});

test('a short log has no filter, and a missing log has no matches', async () => {
  const path = writeLog('one\ntwo needles\n');
  await makeLogFilter(path);
  assert.throws(() => statSync(`${path}.grams`), { code: 'ENOENT' });
  assert.deepEqual(await search(path, 'needle'), [{ line: 2, offset: 4, text: 'two needles' }]);
  assert.deepEqual(await search(join(directory, 'missing.log'), 'needle'), []);
});

test('a filter that is incomplete or damaged is not used', async () => {
  const path = writeLog(longLog(3, { 90000: 'needle' }));
  const filter = `${path}.grams`;
  await makeLogFilter(path);
  const whole = readFileSync(filter);
  for (const size of [0, 100, 8_232, 2 * 8_232, whole.length - 1]) {
    writeFileSync(filter, whole);
    truncateSync(filter, size);
    assert.equal((await search(path, 'needle')).length, 1, `cut to ${size} bytes`);
  }
  writeFileSync(filter, Buffer.alloc(whole.length));
  assert.equal((await search(path, 'needle')).length, 1, 'all zero');
});

test('deleting a log deletes its filter', async () => {
  const path = writeLog(longLog(1, {}));
  await makeLogFilter(path);
  statSync(`${path}.grams`);
  removeLog(path);
  assert.throws(() => statSync(`${path}.grams`), { code: 'ENOENT' });
});

test('other work continues while the filter of a long log is made', async () => {
  const path = writeLog(longLog(16, {}));
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 1);
  await makeLogFilter(path);
  clearInterval(timer);
  assert.ok(turns > 16, `${turns} turns for others`);
});
