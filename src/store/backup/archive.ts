// The file of a backup: a tar in zstd, whose last entry lists the checksum of every other entry, and after it the checksum
// of the whole in a frame that zstd skips. `tar --zstd -xf` reads it. Memory stays flat for entries of any size and number.

import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { type FileHandle, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { extract, type Header } from 'tar-stream';
import { databasePath, type directories, masterKeyPath } from '../data/paths.ts';

/** The first entry. */
export type BackupHead = {
  format: 'assay-backup';
  version: number;
  assay: string;
  createdAt: string;
  /** Whether the master key and the keys of the certificate authority are included. */
  keys: boolean;
  logs: boolean;
};

export const FORMAT_VERSION = 1;
export const HEAD_NAME = 'backup.json';
export const LIST_NAME = 'sums.jsonl';
export const databaseName = databasePath('');
export const keyName = masterKeyPath('');
export const kept = [
  'archives',
  'artifacts',
  'files',
  'logs',
  'tls',
] as const satisfies (typeof directories)[number][];
export const sshNames = ['ssh/config', 'ssh/known_hosts'];

const CHUNK_BYTES = 256 * 1024;
export const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
const OCTAL_SIZE_BYTES = 8 ** 11;
const NAMED_AT_MOST = 20;

/** Whether a backup may contain the name: nothing else is restored, and no name leads out of the data directory. */
export function isKeptName(name: string): boolean {
  const [, directory] = /^(\w+)\/[\w-][\w.-]*$/.exec(name) ?? [];
  return (
    name.length <= NAME_BYTES &&
    ([databaseName, keyName, ...sshNames].includes(name) || kept.some(one => one === directory))
  );
}

type Line = [sha256: string, sizeBytes: number, mode: number, name: string];

/** Writes the files, closes each, and resolves when the archive is safe on disk. The list is collected in `work`. */
export async function writeArchive(
  path: string,
  work: string,
  files: AsyncIterable<{ name: string; file: FileHandle }>,
  onBytes: (bytes: number) => void = () => {},
): Promise<{ entries: number; sizeBytes: number }> {
  const list = await open(join(work, LIST_NAME), 'wx+', 0o600);
  const whole = createHash('sha256');
  let entries = 0;
  let sizeBytes = 0;
  async function* pack(name: string, file: FileHandle): AsyncGenerator<Buffer, Line> {
    const { size, mode } = await file.stat();
    const sum = createHash('sha256');
    yield tarHeader(name, mode & 0o777, size);
    for await (const chunk of chunksOf(file, size, name)) {
      sum.update(chunk);
      onBytes(chunk.length);
      yield chunk;
    }
    yield Buffer.alloc(-size & (BLOCK_BYTES - 1));
    return [sum.digest('hex'), size, mode & 0o777, name];
  }
  async function* tar() {
    for await (const { name, file } of files) {
      const line = yield* pack(name, file);
      await file.close();
      await list.write(`${JSON.stringify(line)}\n`);
      entries++;
    }
    yield* pack(LIST_NAME, list);
    yield Buffer.alloc(2 * BLOCK_BYTES);
  }
  async function* withTrailer(chunks: AsyncIterable<Buffer>) {
    for await (const chunk of chunks) {
      whole.update(chunk);
      sizeBytes += chunk.length;
      yield chunk;
    }
    sizeBytes += TRAILER_BYTES;
    yield trailerOf(whole.digest());
  }
  try {
    // Archives and artifacts are compressed already; for the rest the first level is nearly as small, and much faster.
    const zstd = createZstdCompress({ params: { [constants.ZSTD_c_compressionLevel]: 1 } });
    await pipeline(
      tar,
      zstd,
      withTrailer,
      createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true }),
    );
    return { entries, sizeBytes };
  } finally {
    await list.close();
  }
}

export type Unpacked = {
  head: BackupHead | undefined;
  entries: number;
  contentBytes: number;
  /** Empty when everything is as it was written; each line says what is damaged. */
  damage: string[];
};

export type ReadOptions = {
  file: string;
  onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  signal?: AbortSignal | undefined;
};

/** Unpacks into `tree` and compares every checksum. The head and the lists of checksums are put into `work`. */
export async function unpackArchive(
  { file: path, onProgress, signal }: ReadOptions,
  to: { work: string; tree: string; finish?: (file: FileHandle, name: string) => Promise<void> },
): Promise<Unpacked> {
  const unpacked: Unpacked = { head: undefined, entries: 0, contentBytes: 0, damage: [] };
  await using file = await open(path, 'r');
  await using list = await open(join(to.work, 'found.jsonl'), 'wx+', 0o600);
  const { size } = await file.stat();
  const trailer = Buffer.alloc(TRAILER_BYTES);
  if (size > TRAILER_BYTES) await file.read(trailer, 0, TRAILER_BYTES, size - TRAILER_BYTES);
  const digest = trailer.subarray(-DIGEST_BYTES);
  if (!trailer.equals(trailerOf(digest)))
    return { ...unpacked, damage: ['its end is missing: it is cut off, or no backup of Assay'] };

  const whole = createHash('sha256');
  async function* source() {
    let doneBytes = 0;
    for await (const chunk of chunksOf(file, size - TRAILER_BYTES, path)) {
      whole.update(chunk);
      doneBytes += chunk.length;
      onProgress?.(doneBytes, size);
      signal?.throwIfAborted();
      yield chunk;
    }
  }
  const entries = extract();
  entries.on('error', () => {});
  const feeding = pipeline(source, createZstdDecompress(), entries as unknown as NodeJS.WritableStream);
  feeding.catch(error => entries.destroy(error));
  let last = 'its beginning';
  try {
    for await (const entry of entries as AsyncIterable<AsyncIterable<Buffer> & { header: Header }>) {
      const { name, type, mode = 0o600 } = entry.header;
      last = name;
      const isKept = type === 'file' && isKeptName(name);
      if (!isKept && name !== HEAD_NAME && name !== LIST_NAME)
        return { ...unpacked, damage: [`${JSON.stringify(name)} does not belong into a backup`] };
      const target = join(isKept ? to.tree : to.work, name);
      const out = await open(target, 'wx', 0o600).catch(error => {
        if (error.code !== 'EEXIST') throw error;
        unpacked.damage.push(`${name} is in it twice`);
      });
      if (!out) return unpacked;
      const sum = createHash('sha256');
      let sizeBytes = 0;
      try {
        for await (const chunk of entry) {
          sum.update(chunk);
          sizeBytes += chunk.length;
          await out.writeFile(chunk);
        }
        await out.chmod(mode & 0o777);
        if (isKept) await to.finish?.(out, name);
      } finally {
        await out.close();
      }
      if (name === LIST_NAME) continue;
      await list.write(`${JSON.stringify([sum.digest('hex'), sizeBytes, mode, name] satisfies Line)}\n`);
      unpacked.entries++;
      unpacked.contentBytes += sizeBytes;
    }
    await feeding;
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    // A compressed block holds several small entries: which of them is damaged is not known.
    return { ...unpacked, damage: [`it cannot be read any further in ${last}, or soon after it`] };
  } finally {
    entries.destroy();
    await Promise.allSettled([feeding]);
  }
  await check(to, unpacked);
  if (unpacked.damage.length === 0 && !whole.digest().equals(digest))
    unpacked.damage.push('it was changed after it was made (the checksum of the whole file differs)');
  return unpacked;
}

/** Whether a changed file leads to the error, and not a full disk or a stop. */
function isUnreadable(error: unknown): boolean {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return /^(ZSTD|Z)_/.test(code) || /header|end of data/i.test(message);
}

/** Reads the head, and compares the list with the checksums that were found. */
async function check({ work, tree }: { work: string; tree: string }, unpacked: Unpacked): Promise<void> {
  const { damage } = unpacked;
  try {
    const head = JSON.parse(await readFile(join(work, HEAD_NAME), 'utf8')) as BackupHead;
    if (head.format !== 'assay-backup') throw new Error('another format');
    unpacked.head = head;
    if (head.version > FORMAT_VERSION)
      damage.push(`it was made by a newer Assay (${head.assay}): use that version to read it`);
  } catch {
    damage.push(`${HEAD_NAME} cannot be read`);
  }
  try {
    const found = linesOf(join(work, 'found.jsonl'));
    for await (const [sha256, , , name] of linesOf(join(work, LIST_NAME))) {
      const { value: [otherSha256, , , otherName] = [] } = await found.next();
      if (otherName !== name) damage.push(`${name} is missing`);
      else if (otherSha256 !== sha256) damage.push(`${name} is damaged`);
      // The rest of the lists cannot be compared line by line.
      if (otherName !== name || damage.length > NAMED_AT_MOST) return;
    }
    for await (const [, , , name] of found) damage.push(`${name} was not in it when it was made`);
    await open(join(tree, databaseName)).then(
      file => file.close(),
      () => damage.push(`${databaseName} is missing`),
    );
  } catch {
    damage.push(`${LIST_NAME} is damaged`);
  }
}

export async function* linesOf(path: string): AsyncGenerator<Line> {
  await using file = await open(path);
  for await (const line of file.readLines()) yield JSON.parse(line);
}

async function* chunksOf(file: FileHandle, sizeBytes: number, name: string): AsyncGenerator<Buffer> {
  for (let position = 0; position < sizeBytes; ) {
    const wanted = Math.min(CHUNK_BYTES, sizeBytes - position);
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(wanted), 0, wanted, position);
    if (bytesRead === 0) throw new Error(`${name} was cut while it was read: make the backup again`);
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** Owner and time are always the same: nothing needs them again. */
export function tarHeader(name: string, mode: number, sizeBytes: number): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`;
  header.write(name);
  header.write(octal(mode, 7) + octal(0, 7) + octal(0, 7), NAME_BYTES);
  if (sizeBytes < OCTAL_SIZE_BYTES) header.write(octal(sizeBytes, 11), 124);
  else {
    header[124] = 0x80;
    header.writeBigUInt64BE(BigInt(sizeBytes), 128);
  }
  header.write(octal(0, 11), 136);
  header.write('        0', 148);
  header.write('ustar\x0000', 257);
  header.write(
    octal(
      header.reduce((sum, byte) => sum + byte),
      6,
    ),
    148,
  );
  return header;
}

const SKIPPABLE_FRAME = 0x184d2a5a;
const MARK = Buffer.from('assay-backup-1\0\0');
const DIGEST_BYTES = 32;
const TRAILER_BYTES = 8 + MARK.length + DIGEST_BYTES;

function trailerOf(digest: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32LE(SKIPPABLE_FRAME, 0);
  head.writeUInt32LE(MARK.length + DIGEST_BYTES, 4);
  return Buffer.concat([head, MARK, digest]);
}
