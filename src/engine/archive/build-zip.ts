// Writes the ZIP file with the artifacts of a build, DATA/files/<build>.zip (buildFilesPath), as a stream. zip-content.ts reads
// its entries.
//
//   await using zip = await createZip(file);
//   await zip.add({ path, sizeBytes, isExecutable, modifiedAt }, chunks);   // for each file
//   const entries = await zip.finish();                                     // synced; rows for build_artifacts

import { createHash, hash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { constants, crc32, deflateRaw, deflateRawSync } from 'node:zlib';
import { freeBuffer } from './free-buffer.ts';
import {
  DEFLATED,
  directoryEnd,
  directoryHeader,
  localHeader,
  MAX_STORED_BLOCK_BYTES,
  type NewEntry,
  STORED,
  type StoredEntry,
  storedBlockHeader,
  storedBlocks,
} from './zip-format.ts';

export type ZipWriter = AsyncDisposable & {
  /**
   * Appends a file. It is deflated if its beginning gets smaller that way. Throws if the content is not as long as
   * announced or its stream fails; then the ZIP is as it was before, and more files can be added. Copies each chunk before it
   * reads the next.
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
/** So much of large files is deflated in any case. After that, a block is stored as it is unless a processor is idle. */
const DEFLATE_FIRST_BYTES = 16 << 20;
/** Docker needs one to read the files, and this process another one to write them. */
const IDLE_PROCESSORS = Math.max(0, availableParallelism() - 2);
/** From this size on, SHA-256 is computed later, by another thread: on some processors it takes longer than writing the file. */
export const HASHED_LATER_BYTES = 4 << 20;
const WRITE_BYTES = 1 << 20;
/** Syncing early avoids one long sync at the end. */
const SYNC_EVERY_WRITES = 32;
const LEVEL = 1;
/** Deflated content must be smaller than this part of the original. */
const WORTHWHILE = 0.9;

/** Creates or replaces the file. */
export async function createZip(
  file: string,
  { deflateFirstBytes = DEFLATE_FIRST_BYTES, idleProcessors = IDLE_PROCESSORS } = {},
): Promise<ZipWriter> {
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
  let deflates = 0;
  /** How much of large files was deflated. */
  let deflatedBytes = 0;

  /** Blocks of one file can be inflated as one because all but the last end with a flush. */
  async function deflate(block: Buffer, isLast: boolean): Promise<Buffer> {
    const options = { level: LEVEL, finishFlush: isLast ? constants.Z_FINISH : constants.Z_SYNC_FLUSH };
    if (block.length <= SYNC_BYTES) return deflateRawSync(block, options);
    deflates += 1;
    const deflated = promisify(deflateRaw)(block, options).finally(() => {
      deflates -= 1;
    });
    // Awaited later, after other files have been read.
    deflated.catch(() => {});
    return deflated;
  }

  async function appendWaiting(leave = 0): Promise<void> {
    while (waiting.length > leave) {
      const { entry, block, deflated, sha256 } = waiting.shift() as (typeof waiting)[0];
      const packed = await deflated;
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
    const block = Buffer.allocUnsafe(entry.sizeBytes);
    let readBytes = 0;
    for await (const chunk of content) {
      if (readBytes + chunk.length <= block.length) block.set(chunk, readBytes);
      readBytes += chunk.length;
      if (readBytes > block.length) break;
    }
    if (readBytes !== block.length) throw new Error(WRONG_LENGTH);
    const deflated = block.length < MIN_DEFLATE_BYTES ? Promise.resolve(block) : deflate(block, true);
    waiting.push({ entry, block, deflated, sha256: hash('sha256', block) });
    await appendWaiting(BLOCKS_AT_ONCE);
  }

  /** A file of several blocks. Its header is written again when its checksum is known. */
  async function addLarge(entry: NewEntry, content: AsyncIterable<Buffer>): Promise<void> {
    const headerAt = batchAt + filled;
    const sha256 = entry.sizeBytes < HASHED_LATER_BYTES ? createHash('sha256') : undefined;
    let sum = 0;
    let readBytes = 0;
    let method: typeof STORED | typeof DEFLATED | undefined;
    let block = Buffer.allocUnsafe(BLOCK_BYTES);
    let blockBytes = 0;
    /** Blocks that are deflated or stored, in order. */
    const queued: { block: Buffer; pieces: Promise<Buffer[]> }[] = [];
    /** No more blocks are deflated: the rest is written as it comes. */
    let isRestStored = false;
    /** How much of the stored block that was begun is missing. */
    let storedLeftBytes = 0;
    const header = (storedBytes: number) =>
      localHeader({ ...entry, method: method ?? STORED, crc32: sum, storedBytes });

    const appendNext = async () => {
      const next = queued.shift() as (typeof queued)[0];
      for (const piece of await next.pieces) {
        await append(piece);
        freeBuffer(piece);
      }
      freeBuffer(next.block);
    };

    const endBlock = async () => {
      const full = block.length === blockBytes ? block : block.subarray(0, blockBytes);
      const isLast = readBytes === entry.sizeBytes;
      block = Buffer.allocUnsafe(BLOCK_BYTES);
      blockBytes = 0;
      if (method === undefined) {
        const first = await deflate(full, isLast);
        method = first.length < full.length * WORTHWHILE ? DEFLATED : STORED;
        await append(header(0));
        await append(method === DEFLATED ? first : full);
        return;
      }
      const isFirst = deflatedBytes < deflateFirstBytes;
      while (isFirst && deflates >= BLOCKS_AT_ONCE) await appendNext();
      const atOnce = isFirst ? BLOCKS_AT_ONCE : Math.min(BLOCKS_AT_ONCE, idleProcessors);
      const mayDeflate = deflates < atOnce;
      if (mayDeflate) deflatedBytes += full.length;
      const pieces = mayDeflate
        ? deflate(full, isLast).then(deflated => [deflated])
        : Promise.resolve(storedBlocks(full, isLast));
      // Awaited later, after other blocks have been read.
      pieces.catch(() => {});
      queued.push({ block: full, pieces });
      if (queued.length > MAX_QUEUED || deflates === 0) await appendNext();
      if (atOnce > 0) return;
      while (queued.length > 0) await appendNext();
      isRestStored = true;
    };

    /** Returns what does not belong to the stored block that was begun. */
    const appendStored = async (rest: Buffer) => {
      if (storedLeftBytes === 0) {
        storedLeftBytes = Math.min(MAX_STORED_BLOCK_BYTES, entry.sizeBytes - readBytes);
        await append(storedBlockHeader(storedLeftBytes, readBytes + storedLeftBytes === entry.sizeBytes));
      }
      const piece = rest.subarray(0, storedLeftBytes);
      await append(piece);
      storedLeftBytes -= piece.length;
      readBytes += piece.length;
      return rest.subarray(piece.length);
    };

    for await (const chunk of content) {
      if (readBytes + chunk.length > entry.sizeBytes) throw new Error(WRONG_LENGTH);
      sha256?.update(chunk);
      sum = crc32(chunk, sum);
      for (let rest = chunk; rest.length > 0; ) {
        if (method === STORED) {
          await append(rest);
          readBytes += rest.length;
          break;
        }
        if (isRestStored) {
          rest = await appendStored(rest);
          continue;
        }
        const taken = Math.min(rest.length, BLOCK_BYTES - blockBytes);
        block.set(rest.subarray(0, taken), blockBytes);
        blockBytes += taken;
        readBytes += taken;
        rest = rest.subarray(taken);
        if (blockBytes === BLOCK_BYTES || readBytes === entry.sizeBytes) await endBlock();
      }
    }
    if (readBytes !== entry.sizeBytes) throw new Error(WRONG_LENGTH);
    while (queued.length > 0) await appendNext();

    const offset = headerAt + header(0).length;
    const storedBytes = batchAt + filled - offset;
    await flush();
    await writing;
    await writeAt(header(storedBytes), headerAt);
    entries.push({
      ...entry,
      headerAt,
      offset,
      storedBytes,
      method: method ?? STORED,
      crc32: sum,
      sha256: sha256?.digest('hex') ?? '',
    });
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
      await Promise.allSettled([writing, syncing]);
      await handle.close();
    },
  };
}

const WRONG_LENGTH = 'the content is not as long as announced';
