// The ZIP file with the artifacts of a build: DATA/files/<build>.zip (buildFilesPath). Writes it as a stream, and reads one
// entry of it by its row of build_artifacts, without the directory of the ZIP.
//
//   await using zip = await createZip(file);
//   await zip.add({ path, sizeBytes, isExecutable, modifiedAt }, chunks);   // for each file
//   const entries = await zip.finish();                                     // synced; rows for build_artifacts
//
//   openContent(file, entry)           the file itself; a range of it with { start, end }
//   openStored(file, entry)            the bytes as they are in the ZIP: raw deflate if `method` is DEFLATED

import { createHash, hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { constants, crc32, createInflateRaw, deflateRaw, deflateRawSync } from 'node:zlib';
import { type ContentHash, startContentHash } from '../../content-hash.ts';
import { BadArchive } from './zip-reader.ts';

export const STORED = 0;
export const DEFLATED = 8;

/** What is needed to read an entry. */
export type ZipSlice = { offset: number; sizeBytes: number; storedBytes: number; method: number };

/** An entry of a finished ZIP. `offset` is where its content begins. */
export type StoredEntry = ZipSlice & { path: string; crc32: number; sha256: string };

export type NewEntry = {
  /** In UTF-8, without a leading slash. The caller checks it and adds each path once. */
  path: string;
  sizeBytes: number;
  isExecutable: boolean;
  modifiedAt: Date;
};

export type ZipWriter = AsyncDisposable & {
  /**
   * Appends a file. It is deflated if its beginning gets smaller that way. Throws if the content is not as long as
   * announced or its stream fails; then the ZIP is as it was before, and more files can be added.
   */
  add(entry: NewEntry, content: AsyncIterable<Buffer>): Promise<void>;
  /** Writes the directory and syncs the file. Returns the entries in order of path. */
  finish(): Promise<StoredEntry[]>;
};

/** Content is deflated in blocks of this size, several at a time. */
const BLOCK_BYTES = 256 << 10;
const BLOCKS_AT_ONCE = 4;
const MAX_QUEUED = 16;
/** Deflating less does not pay. */
const MIN_DEFLATE_BYTES = 128;
/** Deflating so little takes less time on this thread than on another. */
const SYNC_BYTES = 16 << 10;
/** How long the writer waits for deflate, in all. After that, a block is stored as it is while too many others wait. */
const MAX_WAIT_MS = 1_000;
/** From this size on, checksums are computed on another thread. */
const THREAD_BYTES = 16 << 20;
const WRITE_BYTES = 1 << 20;
/** Syncing early avoids one long sync at the end. */
const SYNC_EVERY_WRITES = 32;
const LEVEL = 1;
/** Deflated content must be smaller than this part of the original. */
const WORTHWHILE = 0.9;

const LOCAL_HEADER_BYTES = 30;
const VERSION = 45;
const MADE_BY_UNIX = 3 << 8;
const UTF8_NAMES = 1 << 11;
const MAX_UINT16 = 0xffff;
const MAX_UINT32 = 0xffffffff;

const deflateAsync = promisify(deflateRaw);

/** Creates or replaces the file. */
export async function createZip(file: string): Promise<ZipWriter> {
  const handle = await open(file, 'w', 0o600);
  const entries: (StoredEntry & NewEntry & { headerAt: number })[] = [];
  let batch = Buffer.allocUnsafe(WRITE_BYTES);
  let spare = Buffer.allocUnsafe(WRITE_BYTES);
  let filled = 0;
  /** Where the batch begins in the file. */
  let batchAt = 0;
  let writes = 0;
  let writing: Promise<void> = Promise.resolve();
  let syncing: Promise<void> = Promise.resolve();

  async function writeAt(bytes: Buffer, at: number): Promise<void> {
    for (let written = 0; written < bytes.length; )
      written += (await handle.write(bytes, written, bytes.length - written, at + written)).bytesWritten;
  }

  /** Starts to write the batch when the previous one is written. */
  async function flush(): Promise<void> {
    await writing;
    writing = writeAt(batch.subarray(0, filled), batchAt);
    writing.catch(() => {});
    if (++writes % SYNC_EVERY_WRITES === 0) {
      syncing = Promise.all([syncing, writing]).then(() => handle.datasync());
      syncing.catch(() => {});
    }
    batchAt += filled;
    filled = 0;
    [batch, spare] = [spare, batch];
  }

  async function append(bytes: Buffer): Promise<void> {
    for (let taken = 0; taken < bytes.length; ) {
      const piece = bytes.subarray(taken, taken + WRITE_BYTES - filled);
      batch.set(piece, filled);
      taken += piece.length;
      filled += piece.length;
      if (filled === WRITE_BYTES) await flush();
    }
  }

  /** Files of one block that are being deflated, in order. */
  const waiting: { entry: NewEntry; block: Buffer; deflated: Promise<Buffer>; sha256: string }[] = [];
  let thread: ContentHash | undefined;
  let waitedMs = 0;
  let deflates = 0;

  /** Blocks of one file can be inflated as one because all but the last end with a flush. */
  async function deflate(block: Buffer, isLast: boolean): Promise<Buffer> {
    const options = { level: LEVEL, finishFlush: isLast ? constants.Z_FINISH : constants.Z_SYNC_FLUSH };
    if (block.length <= SYNC_BYTES) return deflateRawSync(block, options);
    deflates += 1;
    const deflated = deflateAsync(block, options).finally(() => {
      deflates -= 1;
    });
    // Awaited later, after other files have been read.
    deflated.catch(() => {});
    return deflated;
  }

  async function settle(deflated: Promise<Buffer>): Promise<Buffer> {
    const startedAt = performance.now();
    const block = await deflated;
    waitedMs += performance.now() - startedAt;
    return block;
  }

  async function appendWaiting(leave = 0): Promise<void> {
    while (waiting.length > leave) {
      const { entry, block, deflated, sha256 } = waiting.shift() as (typeof waiting)[0];
      const packed = await settle(deflated);
      const method = packed.length < block.length * WORTHWHILE ? DEFLATED : STORED;
      const content = method === DEFLATED ? packed : block;
      const sum = crc32(block);
      const header = localHeader({ ...entry, method, crc32: sum, storedBytes: content.length });
      const headerAt = batchAt + filled;
      await append(header);
      await append(content);
      const offset = headerAt + header.length;
      entries.push({ ...entry, headerAt, offset, storedBytes: content.length, method, crc32: sum, sha256 });
    }
  }

  /** A file of one block. It is deflated while the next files are read. */
  async function addSmall(entry: NewEntry, content: AsyncIterable<Buffer>): Promise<void> {
    const chunks: Buffer[] = [];
    let readBytes = 0;
    for await (const chunk of content) {
      readBytes += chunk.length;
      if (readBytes > entry.sizeBytes) break;
      chunks.push(chunk);
    }
    if (readBytes !== entry.sizeBytes) throw new Error(WRONG_LENGTH);
    const block = Buffer.concat(chunks);
    const deflated = block.length < MIN_DEFLATE_BYTES ? Promise.resolve(block) : deflate(block, true);
    waiting.push({ entry, block, deflated, sha256: hash('sha256', block) });
    await appendWaiting(BLOCKS_AT_ONCE);
  }

  /** A file of several blocks. Its header is written again when its checksum is known. */
  async function addLarge(entry: NewEntry, content: AsyncIterable<Buffer>): Promise<void> {
    const headerAt = batchAt + filled;
    const sums = checksums(entry.sizeBytes);
    let readBytes = 0;
    let method: typeof STORED | typeof DEFLATED | undefined;
    let chunks: Buffer[] = [];
    let blockBytes = 0;
    const queued: Promise<Buffer>[] = [];
    const header = (storedBytes: number, sum: number) =>
      localHeader({ ...entry, method: method ?? STORED, crc32: sum, storedBytes });

    const endBlock = async () => {
      const block = Buffer.concat(chunks);
      const isLast = readBytes === entry.sizeBytes;
      chunks = [];
      blockBytes = 0;
      if (method === undefined) {
        const first = await deflate(block, isLast);
        method = first.length < block.length * WORTHWHILE ? DEFLATED : STORED;
        await append(header(0, 0));
        await append(method === DEFLATED ? first : block);
        return;
      }
      while (deflates >= BLOCKS_AT_ONCE && waitedMs < MAX_WAIT_MS)
        await append(await settle(queued.shift() as Promise<Buffer>));
      queued.push(
        deflates < BLOCKS_AT_ONCE ? deflate(block, isLast) : Promise.resolve(storedBlocks(block, isLast)),
      );
      if (queued.length > MAX_QUEUED) await append(await (queued.shift() as Promise<Buffer>));
    };

    for await (const chunk of content) {
      readBytes += chunk.length;
      if (readBytes > entry.sizeBytes) break;
      await sums.update(chunk);
      if (method === STORED) {
        await append(chunk);
        continue;
      }
      chunks.push(chunk);
      blockBytes += chunk.length;
      if (blockBytes >= BLOCK_BYTES || readBytes === entry.sizeBytes) await endBlock();
    }
    if (readBytes !== entry.sizeBytes) throw new Error(WRONG_LENGTH);
    for (const block of queued) await append(await block);

    const offset = headerAt + header(0, 0).length;
    const storedBytes = batchAt + filled - offset;
    const { crc32: sum, sha256 } = await sums.end();
    await flush();
    await writing;
    await writeAt(header(storedBytes, sum), headerAt);
    entries.push({ ...entry, headerAt, offset, storedBytes, method: method ?? STORED, crc32: sum, sha256 });
  }

  /** Starting a thread pays only for large files. */
  function checksums(sizeBytes: number): Pick<ContentHash, 'end'> & { update(bytes: Buffer): unknown } {
    if (sizeBytes >= THREAD_BYTES) {
      thread ??= startContentHash();
      thread.begin();
      return thread;
    }
    const sha256 = createHash('sha256');
    let sum = 0;
    return {
      update(bytes) {
        sha256.update(bytes);
        sum = crc32(bytes, sum);
      },
      end: async () => ({ crc32: sum, sha256: sha256.digest('hex') }),
    };
  }

  return {
    async add(entry, content) {
      if (entry.sizeBytes <= BLOCK_BYTES) return addSmall(entry, content);
      await appendWaiting();
      const startsAt = batchAt + filled;
      try {
        await addLarge(entry, content);
      } catch (error) {
        // The next entry overwrites what was written of this one.
        await writing;
        filled = Math.max(0, startsAt - batchAt);
        batchAt = Math.min(batchAt, startsAt);
        throw error;
      }
    },
    async finish() {
      await appendWaiting();
      entries.sort((a, b) => (a.path < b.path ? -1 : 1));
      const directoryAt = batchAt + filled;
      for (const entry of entries) await append(directoryHeader(entry));
      const directoryBytes = batchAt + filled - directoryAt;
      await append(directoryEnd(entries.length, directoryAt, directoryBytes));
      await flush();
      await Promise.all([writing, syncing]);
      await handle.truncate(batchAt);
      await handle.sync();
      return entries.map(({ isExecutable: _, modifiedAt: __, headerAt: ___, ...stored }) => stored);
    },
    async [Symbol.asyncDispose]() {
      thread?.[Symbol.dispose]();
      await Promise.allSettled([writing, syncing]);
      await handle.close();
    },
  };
}

const WRONG_LENGTH = 'the content is not as long as announced';

/** A block as a part of a deflated file that is not compressed. It begins and ends at a whole byte. */
function storedBlocks(block: Buffer, isLast: boolean): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; at < block.length; at += MAX_UINT16) {
    const piece = block.subarray(at, at + MAX_UINT16);
    const header = Buffer.alloc(5);
    header.writeUInt8(isLast && at + piece.length === block.length ? 1 : 0, 0);
    header.writeUInt16LE(piece.length, 1);
    header.writeUInt16LE(~piece.length & MAX_UINT16, 3);
    pieces.push(header, piece);
  }
  return Buffer.concat(pieces);
}

function localHeader(entry: NewEntry & Pick<StoredEntry, 'method' | 'crc32' | 'storedBytes'>): Buffer {
  const name = Buffer.from(entry.path);
  const isLarge = isLargeEntry(entry);
  const extra = isLarge ? extraField64([entry.sizeBytes, entry.storedBytes]) : Buffer.alloc(0);
  const header = Buffer.alloc(LOCAL_HEADER_BYTES);
  header.writeUInt32LE(0x04034b50, 0);
  header.writeUInt16LE(VERSION, 4);
  writeCommonFields(header, 6, entry, name.length, extra.length);
  return Buffer.concat([header, name, extra]);
}

function directoryHeader(entry: StoredEntry & NewEntry & { headerAt: number }): Buffer {
  const name = Buffer.from(entry.path);
  const isFar = entry.headerAt >= MAX_UINT32;
  const values = [
    ...(isLargeEntry(entry) ? [entry.sizeBytes, entry.storedBytes] : []),
    ...(isFar ? [entry.headerAt] : []),
  ];
  const extra = values.length > 0 ? extraField64(values) : Buffer.alloc(0);
  const header = Buffer.alloc(46);
  header.writeUInt32LE(0x02014b50, 0);
  header.writeUInt16LE(MADE_BY_UNIX | VERSION, 4);
  header.writeUInt16LE(VERSION, 6);
  writeCommonFields(header, 8, entry, name.length, extra.length);
  header.writeUInt32LE(((entry.isExecutable ? 0o100755 : 0o100644) << 16) >>> 0, 38);
  header.writeUInt32LE(isFar ? MAX_UINT32 : entry.headerAt, 42);
  return Buffer.concat([header, name, extra]);
}

/** The fields from the flags to the length of the extra field, which both headers have in the same order. */
function writeCommonFields(
  header: Buffer,
  at: number,
  entry: NewEntry & Pick<StoredEntry, 'method' | 'crc32' | 'storedBytes'>,
  nameBytes: number,
  extraBytes: number,
): void {
  const isLarge = isLargeEntry(entry);
  const { time, date } = dosTime(entry.modifiedAt);
  header.writeUInt16LE(UTF8_NAMES, at);
  header.writeUInt16LE(entry.method, at + 2);
  header.writeUInt16LE(time, at + 4);
  header.writeUInt16LE(date, at + 6);
  header.writeUInt32LE(entry.crc32, at + 8);
  header.writeUInt32LE(isLarge ? MAX_UINT32 : entry.storedBytes, at + 12);
  header.writeUInt32LE(isLarge ? MAX_UINT32 : entry.sizeBytes, at + 16);
  header.writeUInt16LE(nameBytes, at + 20);
  header.writeUInt16LE(extraBytes, at + 22);
}

/** Depends on nothing that is unknown when the header is first written. Deflating may add a little. */
const isLargeEntry = ({ sizeBytes }: { sizeBytes: number }) => sizeBytes >= MAX_UINT32 - (1 << 24);

/** The extra field for sizes and offsets of 4 GiB and more. */
function extraField64(values: readonly number[]): Buffer {
  const extra = Buffer.alloc(4 + 8 * values.length);
  extra.writeUInt16LE(1, 0);
  extra.writeUInt16LE(8 * values.length, 2);
  for (const [at, value] of values.entries()) extra.writeBigUInt64LE(BigInt(value), 4 + 8 * at);
  return extra;
}

function directoryEnd(count: number, at: number, bytes: number): Buffer {
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  for (const position of [8, 10]) end.writeUInt16LE(Math.min(count, MAX_UINT16), position);
  end.writeUInt32LE(Math.min(bytes, MAX_UINT32), 12);
  end.writeUInt32LE(Math.min(at, MAX_UINT32), 16);
  if (count < MAX_UINT16 && at < MAX_UINT32 && bytes < MAX_UINT32) return end;
  const end64 = Buffer.alloc(56);
  end64.writeUInt32LE(0x06064b50, 0);
  end64.writeBigUInt64LE(44n, 4);
  end64.writeUInt16LE(MADE_BY_UNIX | VERSION, 12);
  end64.writeUInt16LE(VERSION, 14);
  for (const position of [24, 32]) end64.writeBigUInt64LE(BigInt(count), position);
  end64.writeBigUInt64LE(BigInt(bytes), 40);
  end64.writeBigUInt64LE(BigInt(at), 48);
  const locator = Buffer.alloc(20);
  locator.writeUInt32LE(0x07064b50, 0);
  locator.writeBigUInt64LE(BigInt(at + bytes), 8);
  locator.writeUInt32LE(1, 16);
  return Buffer.concat([end64, locator, end]);
}

/** In UTC. The format covers the years 1980 to 2107. */
function dosTime(at: Date): { time: number; date: number } {
  const year = Math.min(Math.max(at.getUTCFullYear(), 1980), 2107);
  return {
    time: (at.getUTCHours() << 11) | (at.getUTCMinutes() << 5) | (at.getUTCSeconds() >> 1),
    date: ((year - 1980) << 9) | ((at.getUTCMonth() + 1) << 5) | at.getUTCDate(),
  };
}

/** Both ends are included, as in HTTP. */
export type ByteRange = { start: number; end: number };

/** The bytes of the entry as they are in the ZIP. */
export const openStored = (file: string, entry: ZipSlice): Readable =>
  readableOf(readSlice(file, entry.offset, entry.storedBytes));

/** The content of the entry, or a range of it. */
export function openContent(file: string, entry: ZipSlice, range?: ByteRange): Readable {
  const { start, end } = range ?? { start: 0, end: entry.sizeBytes - 1 };
  return readableOf(
    entry.method === STORED
      ? readSlice(file, entry.offset + start, end - start + 1)
      : readInflated(file, entry, start, end + 1),
  );
}

const readableOf = (chunks: AsyncIterable<Buffer>) =>
  Readable.from(chunks, { objectMode: false, highWaterMark: BLOCK_BYTES });

async function* readSlice(file: string, start: number, bytes: number): AsyncGenerator<Buffer> {
  if (bytes === 0) return;
  let left = bytes;
  const slice = createReadStream(file, { start, end: start + bytes - 1, highWaterMark: BLOCK_BYTES });
  for await (const chunk of slice as AsyncIterable<Buffer>) {
    left -= chunk.length;
    yield chunk;
  }
  if (left > 0) throw new BadArchive('the ZIP is cut off');
}

async function* readInflated(
  file: string,
  entry: ZipSlice,
  start: number,
  end: number,
): AsyncGenerator<Buffer> {
  let at = 0;
  const stored = openStored(file, entry);
  const inflate = createInflateRaw({ chunkSize: BLOCK_BYTES });
  stored.on('error', error => inflate.destroy(error));
  try {
    for await (const chunk of stored.pipe(inflate) as AsyncIterable<Buffer>) {
      const piece = chunk.subarray(Math.max(0, start - at), Math.max(0, end - at));
      at += chunk.length;
      if (piece.length > 0) yield piece;
      if (at >= end) return;
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw code?.startsWith('Z') ? new BadArchive('the ZIP is damaged', { cause: error }) : error;
  } finally {
    stored.destroy();
  }
  throw new BadArchive('the ZIP is cut off');
}
