// Log files: order, ranges, checkpoints after a crash, limits, times.
import assert from 'node:assert/strict';
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createMask } from '../../../src/domain/text/mask.ts';
import {
  cutAtCharacter,
  linkLog,
  logSize,
  openLog,
  readLogTimes,
  removeLog,
  timeOf,
} from '../../../src/store/data/log-file.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-log-'));
after(() => rmSync(directory, { recursive: true }));
let made = 0;
const newPath = () => join(directory, `${++made}.log`);
const text = async (path: string) => readFileSync(path, 'utf8');
const limitBytes = 1 << 20;

test('output and lines of the service are stored in order, each line on its own', async () => {
  const path = newPath();
  const log = await openLog({ path, limitBytes });
  await log.line('started');
  await log.append(Buffer.from('one\ntwo'), 7);
  await log.line('ended by\na signal');
  await log.append(Buffer.from('three\n'), 13);
  await log.line('done');
  assert.equal(await log.finish(), statSync(path).size);
  assert.equal(
    await text(path),
    '[assay] started\none\ntwo\n[assay] ended by a signal\nthree\n[assay] done\n',
  );
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('concurrent writes keep their order', async () => {
  const path = newPath();
  const log = await openLog({ path, limitBytes });
  const numbers = Array.from({ length: 500 }, (_, index) => `${index}\n`);
  let rawOffset = 0;
  const writes = numbers.map(number => {
    rawOffset += number.length;
    return log.append(Buffer.from(number), rawOffset);
  });
  const sizes = await Promise.all(writes);
  assert.deepEqual(
    sizes,
    sizes.toSorted((a, b) => a - b),
  );
  await log.finish();
  assert.equal(await text(path), numbers.join(''));
});

test('the size of a log is that of its file, and 0 while there is none', async () => {
  const path = newPath();
  assert.equal(await logSize(path), 0);
  const log = await openLog({ path, limitBytes });
  await log.append(Buffer.from('0123456789'), 10);
  assert.equal(await logSize(path), 10);
  await log.close();
});

test('after a crash the log is truncated to its last checkpoint, and says where to continue', async () => {
  const path = newPath();
  const log = await openLog({ path, limitBytes });
  await log.append(Buffer.from('first '), 100);
  await log.append(Buffer.from('second '), 200);
  await log.close();
  appendFileSync(path, 'half a wri');
  appendFileSync(`${path}.times`, Buffer.alloc(17, 1));
  const again = await openLog({ path, limitBytes });
  assert.equal(again.rawOffset, 200);
  assert.equal(again.sizeBytes, 13);
  await again.append(Buffer.from('third'), 300);
  await again.line('end');
  await again.finish();
  assert.equal(await text(path), 'first second third\n[assay] end\n');
});

test('a checkpoint that is damaged, or whose bytes never reached the disk, is ignored', async () => {
  const path = newPath();
  const log = await openLog({ path, limitBytes });
  await log.append(Buffer.from('aaaa'), 4);
  await log.append(Buffer.from('bbbb'), 8);
  await log.append(Buffer.from('cccc'), 12);
  await log.close();
  truncateSync(path, 10);
  const shorter = await openLog({ path, limitBytes });
  assert.deepEqual([shorter.rawOffset, shorter.sizeBytes], [8, 8]);
  await shorter.close();
  const times = readFileSync(`${path}.times`);
  times[45]! ^= 0xff;
  writeFileSync(`${path}.times`, times);
  const damaged = await openLog({ path, limitBytes });
  assert.deepEqual([damaged.rawOffset, damaged.sizeBytes], [4, 4]);
  await damaged.close();
  rmSync(`${path}.times`);
  const bare = await openLog({ path, limitBytes });
  assert.deepEqual([bare.rawOffset, bare.sizeBytes], [0, 0]);
  await bare.close();
});

test('masked output that is killed at any byte and resumed has no gap and no repetition', async () => {
  const secrets = ['geheimnis', 'geheimniskrämer', 'sssssssss'];
  const raw = Buffer.from(
    `start geheim geheimnis|geheimniskräm|geheimniskrämer ${'s'.repeat(25)}! ende geheimn`.repeat(4),
  );
  const whole = createMask(secrets);
  const expected = Buffer.concat([whole.push(raw), whole.end()]).toString();
  for (let killedAt = 0; killedAt <= raw.length; killedAt += 7) {
    const path = newPath();
    let log = await openLog({ path, limitBytes });
    for (const stopAt of [killedAt, raw.length]) {
      const mask = createMask(secrets);
      let at = log.rawOffset;
      while (at < stopAt) {
        const next = Math.min(at + 11, stopAt);
        const shown = mask.push(raw.subarray(at, next));
        at = next;
        await log.append(shown, at - mask.heldBytes);
      }
      if (stopAt === raw.length && at === raw.length) await log.append(mask.end(), raw.length);
      await log.close();
      if (stopAt === killedAt) appendFileSync(path, 'torn');
      log = await openLog({ path, limitBytes });
    }
    await log.close();
    assert.equal(await text(path), expected, `killed at ${killedAt}`);
  }
});

test('output beyond the limit is counted but not stored, and the log says so once', async () => {
  const path = newPath();
  let log = await openLog({ path, limitBytes: 10 });
  await log.append(Buffer.from('12345678'), 8);
  await log.append(Buffer.from('9äöü'), 15);
  assert.equal(await text(path), '123456789');
  const timesBytes = statSync(`${path}.times`).size;
  for (let count = 1; count <= 100; count++) await log.append(Buffer.alloc(1_000), 15 + count * 1_000);
  assert.equal(statSync(`${path}.times`).size, timesBytes);
  await log.close();
  log = await openLog({ path, limitBytes: 10 });
  assert.deepEqual([log.rawOffset, log.omittedBytes], [100_015, 100_006]);
  await log.append(Buffer.from('x'), 100_016);
  await log.line('timed out');
  await log.finish();
  const expected =
    '123456789\n[assay] timed out\n[assay] output past the limit of 10 bytes was not kept: 100007 bytes omitted\n';
  assert.equal(await text(path), expected);
  log = await openLog({ path, limitBytes: 10 });
  await log.finish();
  assert.equal(await text(path), expected);
});

test('a log of exactly the limit is complete', async () => {
  const path = newPath();
  const log = await openLog({ path, limitBytes: 10 });
  await log.append(Buffer.from('0123456789'), 10);
  await log.finish();
  assert.equal(await text(path), '0123456789');
});

test('a full disk is reported, and nothing of the write counts', async () => {
  const path = newPath();
  symlinkSync('/dev/full', path);
  const log = await openLog({ path, limitBytes });
  await assert.rejects(log.append(Buffer.from('lost'), 4), { code: 'ENOSPC' });
  await assert.rejects(log.line('lost too'), { code: 'ENOSPC' });
  assert.deepEqual([log.sizeBytes, log.rawOffset, statSync(`${path}.times`).size], [0, 0, 0]);
  await log.close();
  await assert.rejects(openLog({ path: join(directory, 'missing', 'x.log'), limitBytes }), {
    code: 'ENOENT',
  });
});

test('each byte has the time of its write', async t => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const path = newPath();
  const log = await openLog({ path, limitBytes });
  for (let count = 0; count < 3_000; count++) {
    await log.append(Buffer.from('line\n'), (count + 1) * 5);
    t.mock.timers.setTime(1_001 + count);
  }
  await log.append(Buffer.alloc(0), 20_000);
  const all = await readLogTimes(path);
  assert.equal(all.length, 3_000);
  for (const line of [0, 1, 1_499, 2_999]) assert.equal(timeOf(all, line * 5 + 4), 1_000 + line);
  const some = await readLogTimes(path, { start: 5 * 2_000, end: 5 * 2_010 });
  assert.equal(some.length, 10);
  assert.equal(timeOf(some, 5 * 2_000), 3_000);
  assert.equal(timeOf(some, 5 * 2_009), 3_009);
  assert.equal(timeOf(all, 15_000), undefined);
  await log.close();
});

test('only an incomplete character that can still be completed is held back', () => {
  const table: [bytes: number[], whole: number][] = [
    [[], 0],
    [[0x61], 1],
    [[0x61, 0xc3], 1],
    [[0xc3, 0xa4], 2],
    [[0xe2], 0],
    [[0xe2, 0x82], 0],
    [[0xe2, 0x82, 0xac], 3],
    [[0xf0, 0x9f, 0x98], 0],
    [[0x61, 0xf0, 0x9f], 1],
    [[0xf0, 0x9f, 0x98, 0x80], 4],
    [[0x80], 1],
    [[0x80, 0x80, 0x80, 0x80], 4],
    [[0xff], 1],
    [[0xc0], 1],
    [[0xc1], 1],
    [[0xf5], 1],
    [[0xf8, 0x80], 2],
    [[0xe0, 0x80], 2],
    [[0xed, 0xa0], 2],
    [[0xf0, 0x80], 2],
    [[0xf4, 0x90], 2],
    [[0xf4, 0x8f], 0],
    [[0xc3, 0xa4, 0xa4], 3],
  ];
  for (const [bytes, whole] of table)
    assert.equal(cutAtCharacter(Buffer.from(bytes)), whole, JSON.stringify(bytes));
});

test('text that is split anywhere and held until complete reads the same as unsplit', () => {
  const bytes = Buffer.concat([
    Buffer.from('aä€😀'),
    Buffer.from([0xff, 0xe2, 0x82, 0x41, 0xf0, 0x9f]),
    Buffer.from('ö'),
  ]);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const whole = cutAtCharacter(bytes.subarray(0, cut));
    assert.ok(cut - whole <= 3);
    assert.equal(
      bytes.subarray(0, whole).toString() + bytes.subarray(whole).toString(),
      bytes.toString(),
      `${cut}`,
    );
  }
});

test('another log is copied with its times, whatever the limit, and neither changes with the other', async () => {
  const [from, linked, path] = [newPath(), newPath(), newPath()];
  const source = await openLog({ path: from, limitBytes });
  await source.append(Buffer.from('one\n'), 4);
  await source.line('two');
  await source.append(Buffer.from('three'), 9);
  await source.finish();
  linkLog(from, linked);
  const before = await readLogTimes(from);

  const log = await openLog({ path, limitBytes: 10 });
  await log.append(Buffer.from('first'), 5);
  assert.equal(await log.copy(newPath()), false);
  assert.equal(await log.copy(linked), true);
  assert.equal(log.sizeBytes, 6 + statSync(from).size);
  await log.line('reused');
  await log.finish(['end']);
  const whole = 'first\none\n[assay] two\nthree\n[assay] reused\n[assay] end\n';
  assert.equal(await text(path), whole);
  const times = await readLogTimes(path);
  for (const { endOffset, atMs } of before) assert.equal(timeOf(times, 6 + endOffset - 1), atMs);

  // Reading on after a crash: every checkpoint is valid.
  const again = await openLog({ path, limitBytes: 10 });
  assert.equal(again.sizeBytes, whole.length);
  await again.close();
  removeLog(from);
  assert.equal(await text(linked), 'one\n[assay] two\nthree');
});
