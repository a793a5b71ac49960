// Writes a backup file, entry by entry: tar, then zstd, then disk, with a sum of each entry and of the whole.
// What goes into it, and when it gets its name, is backup.ts's. Memory stays flat for entries of any size and number.

import { createHash, type Hash } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, constants as fileConstants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress } from 'node:zlib';
import { pack } from 'tar-stream';
import { type EntryRecord, LIST_NAME, lineOf, trailerOf } from './format.ts';

export type BackupWriter = {
  /** The file as long as it is now: one that grows is cut there. Throws ENOENT where it is gone, and nothing is written. */
  addFile(name: string, path: string): Promise<void>;
  addOpen(name: string, file: FileHandle): Promise<void>;
  addBytes(name: string, bytes: Buffer): Promise<void>;
  /** The list of sums and the trailer; resolves when all of it is safe on disk. */
  finish(): Promise<{ entries: number; sizeBytes: number }>;
  /** Gives up; what was written is left to the caller. */
  destroy(): Promise<void>;
};

const CHUNK_BYTES = 256 * 1024;
// Fixed: neither the moment of the backup nor of the files says anything that is needed again.
const header = { type: 'file', uid: 0, gid: 0, mtime: new Date(0) } as const;

export async function createBackupWriter(
  path: string,
  listPath: string,
  onBytes: (bytes: number) => void,
): Promise<BackupWriter> {
  const tar = pack();
  const whole = createHash('sha256');
  const broken = new AbortController();
  const list = await open(listPath, 'wx+', 0o600);
  let entries = 0;
  let sizeBytes = 0;

  const writing = pipeline(
    async function* () {
      yield* tar as AsyncIterable<Buffer>;
    },
    // Archives and artifacts are compressed already; for the rest the first level is nearly as small, and much faster.
    createZstdCompress({ params: { [constants.ZSTD_c_compressionLevel]: 1 } }),
    async function* (source: AsyncIterable<Buffer>) {
      for await (const chunk of source) {
        whole.update(chunk);
        sizeBytes += chunk.length;
        yield chunk;
      }
      const trailer = trailerOf(whole.digest());
      sizeBytes += trailer.length;
      yield trailer;
    },
    createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true }),
  );
  // A full disk is noticed here; whoever waits for room in the tar would wait for ever.
  writing.catch(cause => broken.abort(cause));

  async function put(
    entry: { name: string; mode: number; size: number },
    chunks: AsyncIterable<Buffer> | Iterable<Buffer>,
  ): Promise<void> {
    broken.signal.throwIfAborted();
    const packed = Promise.withResolvers<void>();
    const sink = tar.entry({ ...header, ...entry }, cause =>
      cause ? packed.reject(cause) : packed.resolve(),
    );
    packed.promise.catch(() => {});
    sink.on('error', () => {});
    for await (const chunk of chunks) {
      onBytes(chunk.length);
      if (!sink.write(chunk)) await drained(sink);
    }
    sink.end(null);
    // The tar only knows that it was given up; the disk knows why.
    await packed.promise.catch(() => writing);
  }

  async function drained(sink: NodeJS.EventEmitter): Promise<void> {
    try {
      await once(sink, 'drain', { signal: broken.signal });
    } catch (cause) {
      throw broken.signal.aborted ? broken.signal.reason : cause;
    }
  }

  async function addOpen(name: string, file: FileHandle): Promise<void> {
    const { size, mode: fullMode } = await file.stat();
    const mode = fullMode & 0o777;
    const sum = createHash('sha256');
    await put({ name, mode, size }, summed(exactly(file, size, name), sum));
    await note({ name, mode, sizeBytes: size, sha256: sum.digest('hex') });
  }

  async function note(record: EntryRecord): Promise<void> {
    entries++;
    await list.write(lineOf(record));
  }

  return {
    async addFile(name, path) {
      const file = await open(path, fileConstants.O_RDONLY | fileConstants.O_NOFOLLOW);
      await addOpen(name, file).finally(() => file.close());
    },
    addOpen,
    async addBytes(name, bytes) {
      await put({ name, mode: 0o600, size: bytes.length }, [bytes]);
      await note({ name, mode: 0o600, sizeBytes: bytes.length, sha256: sha256(bytes) });
    },
    async finish() {
      const { size } = await list.stat();
      await put({ name: LIST_NAME, mode: 0o600, size }, exactly(list, size, LIST_NAME));
      tar.finalize();
      await writing;
      await list.close();
      return { entries, sizeBytes };
    },
    async destroy() {
      tar.destroy();
      await Promise.allSettled([writing, list.close()]);
    },
  };
}

const sha256 = (content: Buffer) => createHash('sha256').update(content).digest('hex');

async function* summed(chunks: AsyncIterable<Buffer>, sum: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    sum.update(chunk);
    yield chunk;
  }
}

async function* exactly(file: FileHandle, sizeBytes: number, name: string): AsyncGenerator<Buffer> {
  for (let position = 0; position < sizeBytes; ) {
    const wanted = Math.min(CHUNK_BYTES, sizeBytes - position);
    // A new one each time: the tar keeps it until it is compressed.
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(wanted), 0, wanted, position);
    if (bytesRead === 0) throw new Error(`${name} was cut while it was read: make the backup again`);
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}
