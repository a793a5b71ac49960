// Reads a zip entry by entry from its central directory and verifies each checksum. No name in it becomes a path on the host.

import { type FileHandle, open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { crc32, createInflateRaw, createZstdDecompress } from 'node:zlib';

export class BadArchive extends Error {}

export type ZipEntry = {
  name: string;
  /** The type bits of Unix, or 0 if another system made the zip. */
  typeBits: number;
  mode: number;
  mtime: Date;
  sizeBytes: number;
  read(): AsyncGenerator<Buffer>;
};

const END_BYTES = 22;
const END_MARK = 0x06054b50;
const LONGEST_COMMENT = 0xffff;
const ENTRY_BYTES = 46;
const ENTRY_MARK = 0x02014b50;
const LOCAL_BYTES = 30;
const LOCAL_MARK = 0x04034b50;
const ALL_ONES = 0xffffffff;
const CHUNK_BYTES = 256 * 1024;

export async function* readZip(path: string): AsyncGenerator<ZipEntry> {
  const file = await open(path, 'r');
  try {
    const { count, offset } = await findDirectory(file);
    let at = offset;
    for (let index = 0; index < count; index++) {
      const fixed = await readExactly(file, at, ENTRY_BYTES);
      if (fixed.readUInt32LE(0) !== ENTRY_MARK)
        throw new BadArchive('the zip is damaged: its directory is broken');
      const variable = await readExactly(file, at + ENTRY_BYTES, variableBytes(fixed));
      at += ENTRY_BYTES + variable.length;
      yield describe(file, fixed, variable);
    }
  } finally {
    await file.close();
  }
}

const variableBytes = (fixed: Buffer) =>
  fixed.readUInt16LE(28) + fixed.readUInt16LE(30) + fixed.readUInt16LE(32);

async function findDirectory(file: FileHandle): Promise<{ count: number; offset: number }> {
  const { size } = await file.stat();
  const tailBytes = Math.min(size, END_BYTES + LONGEST_COMMENT);
  const tail = await readExactly(file, size - tailBytes, tailBytes);
  for (let at = tail.length - END_BYTES; at >= 0; at--) {
    if (tail.readUInt32LE(at) !== END_MARK) continue;
    const count = tail.readUInt16LE(at + 10);
    const offset = tail.readUInt32LE(at + 16);
    if (count !== 0xffff && offset !== ALL_ONES) return { count, offset };
    return await findBigDirectory(file, size - tailBytes + at);
  }
  throw new BadArchive('the zip is cut off: it has no end');
}

/** Beyond 4 GiB or 65,535 entries a separate record describes the directory. */
async function findBigDirectory(file: FileHandle, endAt: number): Promise<{ count: number; offset: number }> {
  const locator = endAt >= 20 ? await readExactly(file, endAt - 20, 20) : Buffer.alloc(20);
  if (locator.readUInt32LE(0) !== 0x07064b50) throw new BadArchive('the zip is damaged: it has no directory');
  const record = await readExactly(file, Number(locator.readBigUInt64LE(8)), 56);
  if (record.readUInt32LE(0) !== 0x06064b50) throw new BadArchive('the zip is damaged: it has no directory');
  return { count: Number(record.readBigUInt64LE(32)), offset: Number(record.readBigUInt64LE(48)) };
}

function describe(file: FileHandle, fixed: Buffer, variable: Buffer): ZipEntry {
  const nameBytes = fixed.readUInt16LE(28);
  const name = variable.toString('utf8', 0, nameBytes);
  const extra = variable.subarray(nameBytes, nameBytes + fixed.readUInt16LE(30));
  const [sizeBytes, packedBytes, offset] = bigFields(extra, [
    fixed.readUInt32LE(24),
    fixed.readUInt32LE(20),
    fixed.readUInt32LE(42),
  ]) as [number, number, number];
  const unixMode = fixed.readUInt16LE(40);
  const isUnix = fixed[5] === 3 && unixMode !== 0;
  const isDirectory = name.endsWith('/');
  return {
    name,
    typeBits: isUnix ? unixMode & 0o170000 : isDirectory ? 0o040000 : 0,
    mode: isUnix ? unixMode & 0o777 : isDirectory ? 0o755 : 0o644,
    mtime: readTime(fixed.readUInt16LE(14), fixed.readUInt16LE(12)),
    sizeBytes,
    read: () =>
      readEntry(file, {
        name,
        isEncrypted: (fixed.readUInt16LE(8) & 1) !== 0,
        method: fixed.readUInt16LE(10),
        sum: fixed.readUInt32LE(16),
        sizeBytes,
        packedBytes,
        offset,
      }),
  };
}

/** An extra field has the values that do not fit, in this order. */
function bigFields(extra: Buffer, fields: number[]): number[] {
  for (let at = 0; at + 4 <= extra.length; at += 4 + extra.readUInt16LE(at + 2)) {
    if (extra.readUInt16LE(at) !== 1) continue;
    let next = at + 4;
    return fields.map(field => {
      if (field !== ALL_ONES || next + 8 > extra.length) return field;
      next += 8;
      return Number(extra.readBigUInt64LE(next - 8));
    });
  }
  return fields;
}

function readTime(date: number, time: number): Date {
  const [year, month, day] = [1980 + (date >> 9), (date >> 5) & 15, date & 31];
  return new Date(
    Date.UTC(year, Math.max(0, month - 1), day || 1, time >> 11, (time >> 5) & 63, (time & 31) * 2),
  );
}

type Stored = {
  name: string;
  isEncrypted: boolean;
  method: number;
  sum: number;
  sizeBytes: number;
  packedBytes: number;
  offset: number;
};

async function* readEntry(file: FileHandle, entry: Stored): AsyncGenerator<Buffer> {
  const shown = JSON.stringify(entry.name);
  if (entry.isEncrypted) throw new BadArchive(`${shown} is encrypted: make the zip without a password`);
  const local = await readExactly(file, entry.offset, LOCAL_BYTES);
  if (local.readUInt32LE(0) !== LOCAL_MARK) throw new BadArchive(`the zip is damaged at ${shown}`);
  const begin = entry.offset + LOCAL_BYTES + local.readUInt16LE(26) + local.readUInt16LE(28);
  const packed = Readable.from(readRange(file, begin, entry.packedBytes));
  const plain = unpacked(packed, entry.method);
  if (!plain)
    throw new BadArchive(`${shown} is packed by method ${entry.method}, which is not known: use deflate`);
  let sum = 0;
  let count = 0;
  try {
    for await (const chunk of plain as AsyncIterable<Buffer>) {
      count += chunk.length;
      if (count > entry.sizeBytes) break;
      sum = crc32(chunk, sum);
      yield chunk;
    }
  } catch (error) {
    throw error instanceof BadArchive ? error : new BadArchive(`the zip is damaged at ${shown}`);
  }
  if (count !== entry.sizeBytes || sum !== entry.sum) throw new BadArchive(`the zip is damaged at ${shown}`);
}

function unpacked(packed: Readable, method: number): Readable | undefined {
  if (method === 0) return packed;
  const plain = method === 8 ? createInflateRaw() : method === 93 ? createZstdDecompress() : undefined;
  if (!plain) return undefined;
  packed.on('error', error => plain.destroy(error));
  return packed.pipe(plain);
}

async function* readRange(file: FileHandle, begin: number, length: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < length; ) {
    const chunk = await readExactly(file, begin + at, Math.min(CHUNK_BYTES, length - at));
    at += chunk.length;
    yield chunk;
  }
}

async function readExactly(file: FileHandle, position: number, length: number): Promise<Buffer> {
  if (!Number.isSafeInteger(position) || position < 0) throw new BadArchive('the zip is damaged');
  const buffer = Buffer.allocUnsafe(length);
  for (let filled = 0; filled < length; ) {
    const { bytesRead } = await file.read(buffer, filled, length - filled, position + filled);
    if (bytesRead === 0) throw new BadArchive('the zip is cut off');
    filled += bytesRead;
  }
  return buffer;
}
