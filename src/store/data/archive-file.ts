// Receives an uploaded file, such as a source archive: streams it to a private file, hashes it and syncs it to disk. Unpacks
// nothing.

import { hash, randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { chmod, type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type ContentHash, startContentHash } from '../../content-hash.ts';
import { isDiskFull } from '../../domain/disk-full.ts';
import {
  type ArchiveFormat,
  type DetectedFormat,
  detectFormat,
  detectionBytes,
} from '../../domain/text/archive-format.ts';
import { syncDirectory } from '../../fsync.ts';

type ReceivedFile = { path: string; sizeBytes: number; sha256: string };
export type ReceivedArchive = ReceivedFile & { format: ArchiveFormat; contentType: string };

type ArchiveFailureReason = 'empty' | 'unknown_format' | 'too_large' | 'broken_off' | 'stalled' | 'disk_full';

export class ArchiveFailure extends Error {
  readonly reason: ArchiveFailureReason;
  constructor(reason: ArchiveFailureReason, message: string, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
  }
}

type ReceiveOptions = {
  directory: string;
  /** Checked every few MiB. False ends the upload before the disk is full. */
  hasFreeSpace?: () => boolean | Promise<boolean>;
  /** How long the upload may pause. Its total time is not limited. */
  stallMs: number;
};

type FileLimits = {
  /** Throws if these are not the first bytes of such a file. Called once. */
  check(firstBytes: Buffer): void;
  maxBytes?: number;
};

const batchBytes = 1 << 20;
const spaceCheckBatches = 8;
// Syncing early avoids one long sync at the end.
const syncBatches = 32;
const temporaryPrefix = '.upload-';

export async function receiveArchive(
  stream: AsyncIterable<Uint8Array>,
  options: ReceiveOptions,
): Promise<ReceivedArchive> {
  let detected: DetectedFormat | undefined;
  const received = await receiveFile(stream, {
    ...options,
    check: firstBytes => {
      detected = detect(firstBytes);
    },
  });
  return { ...received, ...(detected as unknown as DetectedFormat) };
}

/** Ends the iteration on failure. Whether that closes the stream depends on its iterator. */
export async function receiveFile(
  stream: AsyncIterable<Uint8Array>,
  options: ReceiveOptions & FileLimits,
): Promise<ReceivedFile> {
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

async function store(
  stream: AsyncIterable<Uint8Array>,
  file: FileHandle,
  options: ReceiveOptions & FileLimits,
): Promise<Omit<ReceivedFile, 'path'>> {
  /** For an archive of more than one batch. */
  let thread: ContentHash | undefined;
  let sha256 = '';
  const disk = createDisk(file);
  const iterator = stream[Symbol.asyncIterator]();
  const next = createReader(iterator, options.stallMs);
  let batch = Buffer.allocUnsafe(batchBytes);
  let spare = Buffer.allocUnsafe(batchBytes);
  let filled = 0;
  let batches = 0;
  let sizeBytes = 0;
  let isChecked = false;
  const check = (firstBytes: Buffer) => {
    if (!isChecked) options.check(firstBytes);
    isChecked = true;
  };

  async function flush(): Promise<void> {
    const full = batch.subarray(0, filled);
    if (thread === undefined && filled < batchBytes) sha256 = hash('sha256', full);
    else {
      thread ??= startThread();
      await thread.update(full);
    }
    if (batches++ % spaceCheckBatches === 0 && options.hasFreeSpace && !(await options.hasFreeSpace())) {
      throw new ArchiveFailure('disk_full', 'the disk is nearly full');
    }
    // When this returns, the previous write is complete and its buffer is free.
    await disk.write(full);
    [batch, spare] = [spare, batch];
    filled = 0;
  }

  try {
    for (let chunk = await next(); chunk !== undefined; chunk = await next()) {
      sizeBytes += chunk.length;
      if (sizeBytes > (options.maxBytes ?? Number.POSITIVE_INFINITY))
        throw new ArchiveFailure('too_large', 'the upload is too large');
      for (let taken = 0; taken < chunk.length; ) {
        const piece = chunk.subarray(taken, taken + batchBytes - filled);
        batch.set(piece, filled);
        taken += piece.length;
        filled += piece.length;
        // Reject a wrong file type at the start, not after gigabytes.
        if (filled >= detectionBytes) check(batch.subarray(0, filled));
        if (filled === batchBytes) await flush();
      }
    }
    if (sizeBytes === 0) throw new ArchiveFailure('empty', 'the archive is empty');
    check(batch.subarray(0, filled));
    await flush();
    if (thread) ({ sha256 } = await thread.end());
  } finally {
    // Not awaited: a stalled iterator ends later.
    iterator.return?.();
    thread?.[Symbol.dispose]();
    await disk.settle();
  }
  disk.throwIfFailed();
  return { sizeBytes, sha256 };
}

function startThread(): ContentHash {
  const thread = startContentHash();
  thread.begin();
  return thread;
}

function detect(firstBytes: Buffer): DetectedFormat {
  const detected = detectFormat(firstBytes);
  if (!detected) throw new ArchiveFailure('unknown_format', 'neither a tar, plain or compressed, nor a zip');
  return detected;
}

/** Writes one batch while the next is filled, and syncs in parallel. */
function createDisk(file: FileHandle) {
  let writing: Promise<void> = Promise.resolve();
  let syncing: Promise<void> = Promise.resolve();
  let batches = 0;
  let failure: unknown;
  const recordFailure = (error: unknown) => {
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
      writing = file.writeFile(bytes).catch(recordFailure);
      if (++batches % syncBatches === 0) syncing = syncing.then(() => file.datasync()).catch(recordFailure);
    },
    async settle(): Promise<void> {
      await Promise.all([writing, syncing]);
    },
  };
}

/** Returns the next chunk, or undefined at the end. Waits at most `stallMs` for it. */
function createReader(
  iterator: AsyncIterator<Uint8Array>,
  stallMs: number,
): () => Promise<Uint8Array | undefined> {
  return async () => {
    const stalled = Promise.withResolvers<never>();
    const seconds = Math.round(stallMs / 1_000);
    const stop = () => stalled.reject(new ArchiveFailure('stalled', `no bytes arrived for ${seconds} s`));
    const timer = setTimeout(stop, stallMs);
    const chunk = iterator.next().catch(error => {
      throw new ArchiveFailure('broken_off', 'the upload broke off', error);
    });
    try {
      const { done, value } = await Promise.race([chunk, stalled.promise]);
      return done ? undefined : value;
    } finally {
      clearTimeout(timer);
    }
  };
}

/** Moves a received archive to its final path and syncs both directories. */
export async function keepArchive(temporaryPath: string, finalPath: string): Promise<void> {
  await rename(temporaryPath, finalPath);
  for (const directory of new Set([dirname(finalPath), dirname(temporaryPath)]))
    await syncDirectory(directory);
}

/**
 * The same for a source archive, which compiles read as another user. On the host, its directory is private. It may replace
 * the same archive while a compile starts with that, so its mode is set before.
 */
export async function keepSourceArchive(temporaryPath: string, finalPath: string): Promise<void> {
  await chmod(temporaryPath, 0o644);
  await keepArchive(temporaryPath, finalPath);
}

/** Removes the files of uploads that a crash interrupted. Call it only while no upload is running. */
export async function sweepUploads(directory: string): Promise<void> {
  for (const name of readdirSync(directory)) {
    if (name.startsWith(temporaryPrefix)) await rm(join(directory, name), { force: true });
  }
}
