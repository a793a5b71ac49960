// The ZIP file of a build's artifacts: other programs can read it, and each entry can be read by its index alone.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { crc32, inflateRawSync } from 'node:zlib';
import { createZip, HASHED_LATER_BYTES } from '../../../src/engine/archive/build-zip.ts';
import { openContent, openStored } from '../../../src/engine/archive/zip-content.ts';
import { DEFLATED, type NewEntry, STORED, type StoredEntry } from '../../../src/engine/archive/zip-format.ts';
import { readZip } from '../../../src/engine/archive/zip-reader.ts';
import { temporaryDirectory } from '../../cli/program.ts';

const text = (bytes: number) =>
  Buffer.from(Array.from({ length: bytes / 10 }, (_, at) => `line ${at} of a log\n`).join('')).subarray(
    0,
    bytes,
  );

const contents = new Map<string, Buffer>([
  ['z/last.bin', randomBytes(3_000_001)],
  ['empty', Buffer.alloc(0)],
  ['a/report.xml', text(900)],
  ['a/long.log', text(2_500_000)],
  ['Ünï/日本 file.txt', text(300_000)],
  ['tool', randomBytes(10)],
  ['large/random', randomBytes(17_000_000)],
  ['large/text', text(20_000_001)],
]);

async function* chunksOf(content: Buffer, size = 65_536): AsyncGenerator<Buffer> {
  for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
}

const entryOf = (path: string, sizeBytes: number): NewEntry => ({
  path,
  sizeBytes,
  isExecutable: path === 'tool',
  modifiedAt: new Date('2026-03-04T05:06:08Z'),
});

async function writeZip(file: string): Promise<Map<string, StoredEntry>> {
  await using zip = await createZip(file);
  for (const [path, content] of contents) await zip.add(entryOf(path, content.length), chunksOf(content));
  return new Map((await zip.finish()).map(entry => [entry.path, entry]));
}

test('how content is split into chunks makes no difference', async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, 'files.zip');
  for (const expected of [text(300_000), text(900_000), randomBytes(300_000)])
    for (const size of [1_000, 60_000, 100_000, 262_145, 1_000_000]) {
      await using zip = await createZip(file);
      await zip.add(entryOf('a', expected.length), chunksOf(expected, size));
      const [entry] = (await zip.finish()) as [StoredEntry];
      const stored = await buffer(openStored(file, entry));
      const content = entry.method === DEFLATED ? inflateRawSync(stored) : stored;
      assert.ok(content.equals(expected), `${expected.length} bytes in chunks of ${size}`);
    }
});

test('content that cannot be deflated in time is stored, and any program still reads it', async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, 'files.zip');
  const expected = text(2_500_001);
  for (const idleProcessors of [0, 1])
    for (const size of [1_000, 60_000, 65_535, 262_145, 3_000_000]) {
      await using zip = await createZip(file, { deflateFirstBytes: 0, idleProcessors });
      await zip.add(entryOf('a', expected.length), chunksOf(expected, size));
      const [entry] = (await zip.finish()) as [StoredEntry];
      assert.equal(entry.method, DEFLATED);
      if (idleProcessors === 0) assert.ok(entry.storedBytes > expected.length - 300_000);
      const unzipped = execFileSync('unzip', ['-p', file, 'a'], { maxBuffer: 2 * expected.length });
      assert.ok(unzipped.equals(expected), `chunks of ${size}, ${idleProcessors} idle processors`);
      const range = { start: 1_200_000, end: 1_299_999 };
      const part = await buffer(openContent(file, entry, range));
      assert.ok(part.equals(expected.subarray(range.start, range.end + 1)));
    }
});

test('the index finds the content of every entry, whole and in ranges', async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, 'files.zip');
  const index = await writeZip(file);
  assert.deepEqual([...index.keys()], [...contents.keys()].sort());
  for (const [path, content] of contents) {
    const entry = index.get(path) as StoredEntry;
    const isHashed = content.length < HASHED_LATER_BYTES;
    assert.equal(entry.sha256, isHashed ? createHash('sha256').update(content).digest('hex') : '');
    assert.equal(entry.crc32, crc32(content));
    assert.ok((await buffer(openContent(file, entry))).equals(content), path);
    const stored = await buffer(openStored(file, entry));
    assert.equal(stored.length, entry.storedBytes);
    assert.ok((entry.method === DEFLATED ? inflateRawSync(stored) : stored).equals(content), path);
    if (content.length < 100) continue;
    const range = { start: content.length - 50, end: content.length - 11 };
    assert.ok((await buffer(openContent(file, entry, range))).equals(content.subarray(-50, -10)), path);
  }
  const methods = [...index.values()].map(({ path, method }) => [path, method]);
  assert.deepEqual(
    methods.filter(([, method]) => method === STORED).map(([path]) => path),
    ['empty', 'large/random', 'tool', 'z/last.bin'],
  );
});

test('other programs read the ZIP: names in UTF-8, times and the execute bit', async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, 'files.zip');
  await writeZip(file);
  const script = [
    'import json, sys, zipfile',
    'zip = zipfile.ZipFile(sys.argv[1])',
    'assert zip.testzip() is None',
    'print(json.dumps([[i.filename, i.file_size, oct(i.external_attr >> 16), list(i.date_time)] for i in zip.infolist()]))',
  ].join('\n');
  const seen = JSON.parse(execFileSync('python3', ['-c', script, file], { encoding: 'utf8' }));
  assert.deepEqual(
    seen,
    [...contents]
      .map(([path, { length }]) => [
        path,
        length,
        path === 'tool' ? '0o100755' : '0o100644',
        [2026, 3, 4, 5, 6, 8],
      ])
      .sort(),
  );
  const names: string[] = [];
  for await (const entry of readZip(file)) {
    const chunks: Buffer[] = [];
    for await (const chunk of entry.read()) chunks.push(chunk);
    assert.ok(Buffer.concat(chunks).equals(contents.get(entry.name) as Buffer));
    names.push(entry.name);
  }
  assert.equal(names.length, contents.size);
});

test('a file whose stream fails or has the wrong length leaves no trace', async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, 'files.zip');
  await using zip = await createZip(file);
  const big = randomBytes(5 << 20);
  await zip.add(entryOf('first', 1000), chunksOf(text(1000)));
  await assert.rejects(zip.add(entryOf('short', big.length + 1), chunksOf(big)), /as long as announced/);
  await assert.rejects(zip.add(entryOf('long', 2_000_000), chunksOf(text(3_000_000))), /as long as/);
  async function* failing() {
    yield big;
    throw new Error('the stream broke');
  }
  await assert.rejects(zip.add(entryOf('broken', big.length * 2), failing()), /the stream broke/);
  await zip.add(entryOf('second', 2000), chunksOf(text(2000)));
  const index = await zip.finish();
  assert.deepEqual(
    index.map(({ path }) => path),
    ['first', 'second'],
  );
  for (const entry of index)
    assert.ok((await buffer(openContent(file, entry))).equals(text(entry.sizeBytes)));
  assert.ok(statSync(file).size < 5000);
});

test('reading an entry of a ZIP that was cut off fails', async () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, 'files.zip');
  const index = await writeZip(file);
  truncateSync(file, 1_000);
  for (const path of ['z/last.bin', 'a/long.log'])
    await assert.rejects(buffer(openContent(file, index.get(path) as StoredEntry)), /the ZIP is cut off/);
});
