// Archive formats are recognized by their first bytes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { detectFormat } from '../../../src/domain/text/archive-format.ts';

const directory = mkdtempSync(join(tmpdir(), 'assay-format-'));
after(() => rmSync(directory, { recursive: true }));
writeFileSync(join(directory, 'größe.txt'), 'content\n');

const tar = (...options: string[]): Buffer =>
  execFileSync('tar', ['-C', directory, ...options, '-cf', '-', 'größe.txt'], { timeout: 10_000 });
const first = (bytes: Buffer) => detectFormat(bytes.subarray(0, 512));

test('every dialect of tar is recognized', () => {
  for (const dialect of ['v7', 'oldgnu', 'gnu', 'ustar', 'posix']) {
    assert.deepEqual(
      first(tar(`--format=${dialect}`)),
      { format: 'tar', contentType: 'application/x-tar' },
      dialect,
    );
  }
});

test('compressed tars are recognized by their compression', () => {
  const table: [option: string, format: string, contentType: string][] = [
    ['--gzip', 'gzip', 'application/gzip'],
    ['--bzip2', 'bzip2', 'application/x-bzip2'],
    ['--xz', 'xz', 'application/x-xz'],
  ];
  for (const [option, format, contentType] of table)
    assert.deepEqual(first(tar(option)), { format, contentType });
  assert.deepEqual(first(zstdCompressSync(tar())), { format: 'zstd', contentType: 'application/zstd' });
});

test('a zip is recognized', () => {
  const script = 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").writestr("a.txt", "content")';
  const path = join(directory, 'a.zip');
  execFileSync('python3', ['-c', script, path], { timeout: 10_000 });
  assert.deepEqual(first(readFileSync(path)), { format: 'zip', contentType: 'application/zip' });
});

test('anything else is not an archive', () => {
  const header = tar('--format=v7').subarray(0, 512);
  const changed = Buffer.from(header);
  changed[0]! ^= 1;
  const table: [string, Buffer][] = [
    ['nothing', Buffer.alloc(0)],
    ['zeros', Buffer.alloc(512)],
    ['text', Buffer.from('#!/bin/sh\n'.repeat(100))],
    ['digits', Buffer.alloc(512, '7')],
    ['a text that begins like bzip2', Buffer.from('BZh9 is not much'.repeat(40))],
    ['a text that begins like zip', Buffer.from('PK is not much'.repeat(40))],
    ['the beginning of a gzip', Buffer.from([0x1f, 0x8b])],
    ['a tar whose sum is wrong', changed],
    ['a tar cut inside its header', header.subarray(0, 511)],
    [
      'ustar and nothing else',
      Buffer.concat([Buffer.alloc(257, 'x'), Buffer.from('ustar\0'), Buffer.alloc(249)]),
    ],
    ['an empty zip', Buffer.concat([Buffer.from('PK\x05\x06', 'latin1'), Buffer.alloc(18)])],
    ['7z', Buffer.from('377abcaf271c0004', 'hex')],
    ['ELF', readFileSync(process.execPath).subarray(0, 512)],
  ];
  for (const [name, bytes] of table) assert.equal(detectFormat(bytes), undefined, name);
});
