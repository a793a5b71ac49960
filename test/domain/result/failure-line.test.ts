// What remains of a log line when the parts that change from run to run are removed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_LINE_BYTES, normaliseBytes, normaliseLine } from '../../../src/domain/result/failure-line.ts';

test('the parts of a line that change from run to run are removed', () => {
  const table: [text: string, normalised: string][] = [
    ['', ''],
    ['   ', ''],
    ['plain words stay', 'plain words stay'],
    ['  white\t space \r', 'white space'],
    // Colours and other escape sequences.
    ['\x1b[31;1merror\x1b[0m: no', 'error: no'],
    ['\x1b]8;;http://x/\x07link\x1b]8;;\x1b\\ end', 'link end'],
    ['cut in an escape \x1b[3', 'cut in an escape'],
    ['cut at an escape \x1b', 'cut at an escape'],
    // Times and durations.
    ['2026-11-16T02:34:32.123Z started', '# started'],
    ['2026-11-16 02:34:32,5 started', '# started'],
    ['[02:34:32] started', '[#] started'],
    ['Mon Nov 16 02:34:32 UTC', '# UTC'],
    ['Mon, 16 Nov 2026', '#, #'],
    ['Nov  6 02:34:32 host', '# host'],
    ['Mon and May are words', 'Mon and May are words'],
    ['done in 999ms', 'done in #'],
    ['done in 1.2s', 'done in #'],
    ['done in 1m 3s', 'done in #'],
    ['used 100MiB of 2 GiB', 'used # of # GiB'],
    // Numbers.
    ['worker3 of 12 took test_4', 'worker# of # took test_#'],
    ['line 12: 3 errors', 'line #: # errors'],
    ['main.c:12:3: error', 'main.c:#: error'],
    ['1.2.3-rc4', '#-rc#'],
    ['-17 and +4', '-# and +#'],
    ['12files', '#files'],
    // Hex values and UUIDs.
    ['at 0x7ffdDEAD', 'at #'],
    ['commit 3f2a9c1 is', 'commit # is'],
    ['commit 652e85dd309ab89f7b838080bd444d0d7d0cee5d', 'commit #'],
    ['id deadbeef-abcd-4abc-face-deadbeefcafe.', 'id #.'],
    ['id 9b2d7f10-4c3e-4a1b-9abc-0123456789ab.', 'id #.'],
    ['added a facade in a decade', 'added a facade in a decade'],
    // Directories of absolute paths.
    ['open /tmp/build.x/deep/out.txt: no', 'open out.txt: no'],
    ["open '/home/me/out.txt'", "open 'out.txt'"],
    ['cd /tmp/build/', 'cd build/'],
    ['in /srv/project/src/a/index.ts:3:4', 'in src/a/index.ts:#'],
    ['in src/a/index.ts:3:4', 'in src/a/index.ts:#'],
    ['-I/opt/x/include --prefix=/opt/x', '-I/opt/x/include --prefix=x'],
    ['get https://example.com/a/b', 'get https://example.com/a/b'],
    ['./run and ../run and a / b', './run and ../run and a / b'],
    ['/', '/'],
    // Other scripts.
    ['größe 12 naïve 日本 7', 'größe # naïve 日本 #'],
  ];
  for (const [text, normalised] of table) assert.equal(normaliseLine(text), normalised, JSON.stringify(text));
});

test('a normalised line does not change when it is normalised again', () => {
  for (const text of [
    '2026-11-16T02:34:32.123Z at 0x12 in /tmp/a/b.c:3',
    'Nov 16 worker3 1.2.3-rc4 9b2d7f10',
  ])
    assert.equal(normaliseLine(normaliseLine(text)), normaliseLine(text));
});

test('no line grows, reads past its end or exceeds the limit', () => {
  const alphabet = Buffer.from(' \x1b[]/#0x9afgzT:-.,~\\"()MonNov_\x07\r\xff\xc3', 'latin1');
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed % below;
  };
  const out = Buffer.alloc(MAX_LINE_BYTES);
  for (let round = 0; round < 20_000; round += 1) {
    const line = Buffer.from(Array.from({ length: random(60) }, () => alphabet[random(alphabet.length)]!));
    const length = normaliseBytes(line, 0, line.length, out);
    assert.ok(length <= line.length);
    // The bytes after the line are not part of it.
    const alone = out.toString('latin1', 0, length);
    const longer = Buffer.concat([line, Buffer.from('0af/Nov 16')]);
    assert.equal(out.toString('latin1', 0, normaliseBytes(longer, 0, line.length, out)), alone);
  }
  assert.equal(normaliseLine('x'.repeat(1_000_000)).length, MAX_LINE_BYTES);
  assert.equal(normaliseLine('€'.repeat(1_000_000)).length <= MAX_LINE_BYTES, true);
});
