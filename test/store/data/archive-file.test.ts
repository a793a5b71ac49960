// Storing uploaded archives: formats, aborted uploads, full disks.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, beforeEach, test } from 'node:test';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import {
  ArchiveFailure,
  keepArchive,
  keepSourceArchive,
  receiveArchive,
  sweepUploads,
} from '../../../src/store/data/archive-file.ts';

const run = promisify(execFile);
const root = mkdtempSync(join(tmpdir(), 'assay-archive-'));
after(() => rmSync(root, { recursive: true }));
const directory = join(root, 'archives');
beforeEach(() => {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
});

const options = { directory, stallMs: 5_000 };
const gzip = gzipSync('a small source');
/** Begins like a gzip; the rest does not matter here. */
const large = (sizeBytes: number) => Buffer.concat([gzip, Buffer.alloc(sizeBytes - gzip.length, 'x')]);
const inChunks = async function* (bytes: Buffer, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
};
const failsWith = (reason: string) => (error: unknown) =>
  error instanceof ArchiveFailure && error.reason === reason;
const leftovers = () => readdirSync(directory);

test('an archive is stored byte for byte, whatever the size of its chunks', async () => {
  for (const [sizeBytes, chunkBytes] of [
    [gzip.length, 1],
    [511, 7],
    [3_000_000, 65_536],
    [1 << 20, 1 << 20],
    [2 << 20, 1 << 20],
    [5_000_001, 5_000_001],
    [100_000, 3],
  ] as const) {
    const bytes = large(sizeBytes);
    const received = await receiveArchive(inChunks(bytes, chunkBytes), options);
    const { path, ...rest } = received;
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    assert.deepEqual(rest, { sizeBytes, sha256, format: 'gzip', contentType: 'application/gzip' });
    assert.ok(readFileSync(path).equals(bytes));
    assert.equal(statSync(path).mode & 0o777, 0o600);
  }
});

test('a stored archive has only its final name', async () => {
  const { path } = await receiveArchive(Readable.from([gzip]), options);
  await keepArchive(path, join(directory, 'final'));
  assert.deepEqual(leftovers(), ['final']);
  assert.ok(readFileSync(join(directory, 'final')).equals(gzip));
});

test('a compile can read a source archive from the moment that it replaces the same one', async () => {
  const modeOf = (path: string) => statSync(path).mode & 0o777;
  const { path } = await receiveArchive(Readable.from([gzip]), options);
  await assert.rejects(keepSourceArchive(path, join(directory, 'missing', 'final')), { code: 'ENOENT' });
  assert.equal(modeOf(path), 0o644, 'before it has its final name');
  await keepSourceArchive(path, join(directory, 'final'));
  assert.equal(modeOf(join(directory, 'final')), 0o644);
});

test('an empty body and an unknown format are refused, and leave nothing behind', async () => {
  await assert.rejects(receiveArchive(Readable.from([]), options), failsWith('empty'));
  await assert.rejects(receiveArchive(Readable.from([Buffer.alloc(0)]), options), failsWith('empty'));
  await assert.rejects(
    receiveArchive(Readable.from([Buffer.from('text')]), options),
    failsWith('unknown_format'),
  );
  assert.deepEqual(leftovers(), []);
});

test('an unknown format is refused at its beginning, and the caller can read on', async () => {
  const endless = new Readable({
    read() {
      this.push(Buffer.alloc(65_536, 'text'));
    },
  });
  const stream = endless.iterator({ destroyOnReturn: false });
  await assert.rejects(receiveArchive(stream, options), failsWith('unknown_format'));
  assert.equal(endless.destroyed, false);
  endless.on('data', () => endless.destroy());
  await once(endless, 'close');
  assert.deepEqual(leftovers(), []);
});

test('an aborted upload is reported, and leaves nothing behind', async t => {
  const server = createServer();
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const upload = request({
    port: (server.address() as AddressInfo).port,
    method: 'POST',
    headers: { 'content-length': 1e6 },
  });
  upload.on('error', () => {});
  upload.write(large(200_000));
  const [incoming] = await once(server, 'request');
  const abortedAtFirstChunk = async function* () {
    for await (const chunk of incoming) {
      upload.destroy();
      yield chunk;
    }
  };
  await assert.rejects(receiveArchive(abortedAtFirstChunk(), options), failsWith('broken_off'));
  assert.deepEqual(leftovers(), []);
});

test('a stalled upload is aborted', async () => {
  const stream = new Readable({ read() {} });
  stream.push(gzip);
  await assert.rejects(receiveArchive(stream, { directory, stallMs: 50 }), failsWith('stalled'));
  assert.deepEqual(leftovers(), []);
});

test('an upload that keeps moving may take longer than the stall limit', async () => {
  const slow = async function* () {
    for (let count = 0; count < 5; count++) {
      await new Promise(resolve => setTimeout(resolve, 60));
      yield gzip;
    }
  };
  assert.equal((await receiveArchive(slow(), { directory, stallMs: 200 })).sizeBytes, 5 * gzip.length);
});

test('an upload stops when the disk space runs out', async () => {
  let asked = 0;
  const hasFreeSpace = () => ++asked < 3;
  const bytes = large(64 << 20);
  await assert.rejects(
    receiveArchive(inChunks(bytes, 1 << 16), { ...options, hasFreeSpace }),
    failsWith('disk_full'),
  );
  assert.equal(asked, 3);
  await assert.rejects(
    receiveArchive(inChunks(gzip, 8), { ...options, hasFreeSpace: async () => false }),
    failsWith('disk_full'),
  );
  assert.deepEqual(leftovers(), []);
});

test('a file that reaches its size limit counts as a full disk, and leaves nothing behind', async () => {
  const script = `
    import { receiveArchive } from ${JSON.stringify(import.meta.resolve('../../../src/store/data/archive-file.ts'))};
    const source = async function* () {
      yield Buffer.from('1f8b08', 'hex');
      for (;;) yield Buffer.alloc(1 << 20);
    };
    await receiveArchive(source(), { directory: process.argv[1], stallMs: 5000 }).catch(error => console.log(error.reason));`;
  // With the signal ignored, the limit is an error like that of a full disk.
  const shell = 'trap "" XFSZ; ulimit -f 8192; exec "$@"';
  const command = [process.execPath, '--input-type=module', '-e', script, directory];
  const { stdout } = await run('sh', ['-c', shell, 'sh', ...command], { timeout: 20_000 });
  assert.equal(stdout, 'disk_full\n');
  assert.deepEqual(leftovers(), []);
});

test('the source is not read faster than the disk can write', async () => {
  let made = 0;
  let mostAhead = 0;
  const source = async function* () {
    const chunk = large(1 << 20);
    for (; made < 48; made++) {
      const [name] = leftovers();
      mostAhead = Math.max(
        mostAhead,
        made * chunk.length - (name ? statSync(join(directory, name)).size : 0),
      );
      yield chunk;
    }
  };
  await receiveArchive(source(), options);
  assert.ok(mostAhead <= 3 << 20, `${mostAhead} bytes ahead`);
});

test('left-overs of uploads are removed after a crash, and stored archives stay', async () => {
  const { path } = await receiveArchive(Readable.from([gzip]), options);
  writeFileSync(join(directory, 'kept'), gzip);
  assert.equal(leftovers().length, 2);
  await sweepUploads(directory);
  assert.deepEqual(leftovers(), ['kept']);
  assert.throws(() => statSync(path), { code: 'ENOENT' });
});
