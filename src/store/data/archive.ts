// Receives a source archive as it comes: to a private file, hashed on the way, safe on disk before it is acknowledged.
// Nothing is unpacked here; which dependency it belongs to, and where it is kept, is left to the caller.
import { createHash, randomUUID } from 'node:crypto';
import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isDiskFull } from '../../domain/disk-full.ts';
import {
  type ArchiveFormat,
  type DetectedFormat,
  detectFormat,
  detectionBytes,
} from '../../domain/text/archive-format.ts';
import { syncDirectory } from './fsync.ts';

export type ReceivedArchive = {
  path: string;
  sizeBytes: number;
  sha256: string;
  format: ArchiveFormat;
  contentType: string;
};

export type ArchiveFailureReason = 'empty' | 'unknown_format' | 'broken_off' | 'stalled' | 'disk_full';

export class ArchiveFailure extends Error {
  readonly reason: ArchiveFailureReason;
  constructor(reason: ArchiveFailureReason, message: string, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
  }
}

export type ReceiveOptions = {
  directory: string;
  /** Asked every few MiB: false ends the upload while there is still room for everything else. */
  hasFreeSpace?: () => boolean | Promise<boolean>;
  /** An upload may take as long as it likes, as long as it moves. */
  stallMs: number;
};

const batchBytes = 1 << 20;
const roomCheckBatches = 8;
// The disk is set to work early, or all of it would wait for the one sync at the end.
const syncBatches = 32;
const temporaryPrefix = '.upload-';

/** The stream is left as it is when this fails: whether to read on or hang up is the caller's to decide. */
export async function receiveArchive(
  stream: AsyncIterable<Uint8Array>,
  options: ReceiveOptions,
): Promise<ReceivedArchive> {
  const path = join(options.directory, temporaryPrefix + randomUUID());
  let file: FileHandle | undefined;
  try {
    file = await open(path, 'wx', 0o600);
    const received = await store(stream, file, options);
    await file.sync();
    await file.close();
    return { path, ...received };
  } catch (error) {
    await file?.close().catch(() => {});
    await rm(path, { force: true });
    throw isDiskFull(error) ? new ArchiveFailure('disk_full', 'the disk is full', error) : error;
  }
}

async function store(stream: AsyncIterable<Uint8Array>, file: FileHandle, options: ReceiveOptions) {
  const hash = createHash('sha256');
  const disk = createDisk(file);
  const next = createReader(stream, options.stallMs);
  let batch = Buffer.allocUnsafe(batchBytes);
  let spare = Buffer.allocUnsafe(batchBytes);
  let filled = 0;
  let batches = 0;
  let sizeBytes = 0;
  let detected: DetectedFormat | undefined;

  async function flush(): Promise<void> {
    const full = batch.subarray(0, filled);
    hash.update(full);
    if (batches++ % roomCheckBatches === 0 && options.hasFreeSpace && !(await options.hasFreeSpace())) {
      throw new ArchiveFailure('disk_full', 'the disk is nearly full');
    }
    // Once this returns the write before is done, and its buffer free.
    await disk.write(full);
    [batch, spare] = [spare, batch];
    filled = 0;
  }

  try {
    for (let chunk = await next(); chunk !== undefined; chunk = await next()) {
      sizeBytes += chunk.length;
      for (let taken = 0; taken < chunk.length; ) {
        const part = chunk.subarray(taken, taken + batchBytes - filled);
        batch.set(part, filled);
        taken += part.length;
        filled += part.length;
        // A wrong kind of file is refused at its beginning, not after gigabytes of it.
        if (filled >= detectionBytes) detected ??= detect(batch.subarray(0, filled));
        if (filled === batchBytes) await flush();
      }
    }
    if (sizeBytes === 0) throw new ArchiveFailure('empty', 'the archive is empty');
    detected ??= detect(batch.subarray(0, filled));
    await flush();
  } finally {
    await disk.settle();
  }
  disk.throwIfFailed();
  return { sizeBytes, sha256: hash.digest('hex'), ...detected };
}

function detect(firstBytes: Buffer): DetectedFormat {
  const detected = detectFormat(firstBytes);
  if (!detected) throw new ArchiveFailure('unknown_format', 'neither a tar, plain or compressed, nor a zip');
  return detected;
}

/** One write runs while the next batch is filled, and a sync beside them. */
function createDisk(file: FileHandle) {
  let writing: Promise<void> = Promise.resolve();
  let syncing: Promise<void> = Promise.resolve();
  let batches = 0;
  let failure: unknown;
  const note = (error: unknown) => {
    failure ??= error;
  };
  function throwIfFailed(): void {
    if (failure !== undefined) throw failure;
  }
  return {
    throwIfFailed,
    async write(bytes: Buffer): Promise<void> {
      await writing;
      throwIfFailed();
      writing = file.writeFile(bytes).catch(note);
      if (++batches % syncBatches === 0) syncing = syncing.then(() => file.datasync()).catch(note);
    },
    async settle(): Promise<void> {
      await Promise.all([writing, syncing]);
    },
  };
}

/** The next chunk, undefined at the end; waits no longer than `stallMs` for it. */
function createReader(
  stream: AsyncIterable<Uint8Array>,
  stallMs: number,
): () => Promise<Uint8Array | undefined> {
  // Not `for await`: leaving that early would destroy the request that the refusal is the answer to.
  const iterator = stream[Symbol.asyncIterator]();
  return async () => {
    const stalled = Promise.withResolvers<never>();
    const seconds = Math.round(stallMs / 1_000);
    const stop = () => stalled.reject(new ArchiveFailure('stalled', `nothing came for ${seconds} s`));
    const timer = setTimeout(stop, stallMs);
    const coming = iterator.next().catch(error => {
      throw new ArchiveFailure('broken_off', 'the upload broke off', error);
    });
    try {
      const { done, value } = await Promise.race([coming, stalled.promise]);
      return done ? undefined : value;
    } finally {
      clearTimeout(timer);
    }
  };
}

/** Puts a received archive in its place, for good. */
export async function keepArchive(temporaryPath: string, finalPath: string): Promise<void> {
  await rename(temporaryPath, finalPath);
  for (const directory of new Set([dirname(finalPath), dirname(temporaryPath)]))
    await syncDirectory(directory);
}

/** Takes away what uploads left that a crash interrupted; only while none is under way. */
export async function sweepUploads(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (name.startsWith(temporaryPrefix)) await rm(join(directory, name), { force: true });
  }
}
