// Reads a backup file from its beginning to its end, once and with flat memory, compares every sum, and names what is
// damaged. What becomes of the entries is decided by whoever reads: backup-restore.ts, backup-verify.ts.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createZstdDecompress } from 'node:zlib';
import { extract, type Header } from 'tar-stream';
import {
  type BackupHead,
  databaseName,
  FORMAT_VERSION,
  HEAD_NAME,
  isKeptName,
  LIST_NAME,
  lineOf,
  nameInLine,
  readTrailer,
  TRAILER_BYTES,
} from './format.ts';

export type ReadEntry = { name: string; mode: number };
/** `close` comes in any case, `end` before it when the entry is whole. */
export type EntrySink = {
  write(chunk: Buffer): Promise<void>;
  end(): Promise<void>;
  close(): Promise<void>;
};
type Entry = AsyncIterable<Buffer> & { header: Header };

export type BackupRead = {
  head: BackupHead | undefined;
  entries: number;
  contentBytes: number;
  /** Empty when everything is as it was written. Each says what is damaged, in words. */
  damage: string[];
};

export type ReadOptions = {
  file: string;
  /** For the sums as they are found, until the list at the end of the file is reached. */
  work: string;
  /** Where an entry's content is to go; undefined when its sum is enough. */
  visit: (entry: ReadEntry) => Promise<EntrySink | undefined>;
  onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  signal?: AbortSignal | undefined;
};

const CHUNK_BYTES = 256 * 1024;
const NAMED_AT_MOST = 20;
const HEAD_BYTES_AT_MOST = 64 * 1024;

export async function readBackup(options: ReadOptions): Promise<BackupRead> {
  const file = await open(options.file, 'r');
  const seenPath = join(options.work, 'sums-found');
  const seen = await open(seenPath, 'w+', 0o600);
  try {
    return await read(file, seen, options);
  } finally {
    await seen.close();
    await rm(seenPath, { force: true });
    await file.close();
  }
}

async function read(file: FileHandle, seen: FileHandle, options: ReadOptions): Promise<BackupRead> {
  const { size } = await file.stat();
  const promised = await readTrailer(file, size);
  const found: BackupRead = { head: undefined, entries: 0, contentBytes: 0, damage: [] };
  if (!promised) found.damage.push('its end is missing: it is cut off, or no backup of Assay');
  const whole = createHash('sha256');
  const entries = extract();
  const ended = new AbortController();
  const range = { endOffset: promised ? size - TRAILER_BYTES : size, signal: ended.signal };
  const feeding = feed(file, range, entries, (bytes, position) => {
    whole.update(bytes);
    options.onProgress?.(position, size);
    options.signal?.throwIfAborted();
  });
  feeding.catch(() => {});

  let last = 'its beginning';
  let isListed = false;
  let hasDatabase = false;
  try {
    for await (const entry of entries as unknown as AsyncIterable<Entry>) {
      const { name } = entry.header;
      last = name;
      hasDatabase ||= name === databaseName;
      if (name === LIST_NAME) {
        found.damage.push(...(await compare(entry, seen)));
        isListed = true;
      } else await take(entry, seen, found, options);
    }
    await feeding;
  } catch (cause) {
    if (!isUnreadable(cause)) throw cause;
    // Compressed blocks hold several small entries: which of them it was cannot be told any more.
    found.damage.push(`it cannot be read any further in ${last}, or soon after it`);
    return found;
  } finally {
    ended.abort();
    await Promise.allSettled([feeding]);
  }
  if (!isListed) found.damage.push(`its list of sums is missing: it ends after ${last}`);
  if (!hasDatabase && found.damage.length === 0) found.damage.push(`${databaseName} is missing`);
  if (promised && !whole.digest().equals(promised) && found.damage.length === 0)
    found.damage.push('it was changed after it was made (the sum of the whole file differs)');
  return found;
}

/** What a changed or cut file leads to, and not a full disk or a stop. */
function isUnreadable(cause: unknown): boolean {
  const { code = '', message = '' } = cause as { code?: string; message?: string };
  return (
    /^(ZSTD|Z)_/.test(code) ||
    code.startsWith('ERR_ZSTD') ||
    code === 'ERR_BUFFER_TOO_LARGE' ||
    /tar header|Unexpected end|Size mismatch|unexpected end|zlib|checksum|corrupt/i.test(message)
  );
}

async function feed(
  file: FileHandle,
  range: { endOffset: number; signal: AbortSignal },
  entries: ReturnType<typeof extract>,
  onChunk: (bytes: Buffer, position: number) => void,
): Promise<void> {
  async function* source() {
    for (let position = 0; position < range.endOffset; ) {
      const wanted = Math.min(CHUNK_BYTES, range.endOffset - position);
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(wanted), 0, wanted, position);
      if (bytesRead === 0) return;
      position += bytesRead;
      onChunk(buffer.subarray(0, bytesRead), position);
      yield buffer.subarray(0, bytesRead);
    }
  }
  try {
    await pipeline(
      source,
      createZstdDecompress(),
      async (plain: AsyncIterable<Buffer>) => {
        for await (const chunk of plain)
          if (!entries.write(chunk)) await once(entries, 'drain', { signal: range.signal });
        entries.end(null);
      },
      { signal: range.signal },
    );
  } catch (cause) {
    entries.destroy(cause as Error);
    throw cause;
  }
}

async function take(entry: Entry, seen: FileHandle, found: BackupRead, options: ReadOptions): Promise<void> {
  const { name, type, mode = 0o600 } = entry.header;
  if (type !== 'file' || (name !== HEAD_NAME && !isKeptName(name))) {
    found.damage.push(`${JSON.stringify(name)} does not belong into a backup`);
    for await (const _ of entry);
    return;
  }
  const sink = name === HEAD_NAME ? undefined : await options.visit({ name, mode });
  const sum = createHash('sha256');
  const headChunks: Buffer[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of entry) {
      sum.update(chunk);
      sizeBytes += chunk.length;
      if (name === HEAD_NAME && sizeBytes <= HEAD_BYTES_AT_MOST) headChunks.push(chunk);
      await sink?.write(chunk);
    }
    await sink?.end();
  } finally {
    await sink?.close();
  }
  await seen.write(lineOf({ name, mode, sizeBytes, sha256: sum.digest('hex') }));
  found.entries++;
  found.contentBytes += sizeBytes;
  if (name === HEAD_NAME) found.head = readHead(Buffer.concat(headChunks), found.damage);
}

function readHead(bytes: Buffer, damage: string[]): BackupHead | undefined {
  try {
    const head = JSON.parse(bytes.toString()) as BackupHead;
    if (head.format !== 'assay-backup') throw new Error('another format');
    if (head.version > FORMAT_VERSION)
      damage.push(`it was made by a newer Assay (${head.assay}): use that version to read it`);
    return head;
  } catch {
    damage.push(`${HEAD_NAME} cannot be read`);
    return undefined;
  }
}

/** The list in the file beside what was found, line by line. */
async function compare(listed: AsyncIterable<Uint8Array>, seen: FileHandle): Promise<string[]> {
  const damage: string[] = [];
  const note = (text: string) => {
    if (damage.length < NAMED_AT_MOST) damage.push(text);
    else if (damage.length === NAMED_AT_MOST) damage.push('and more');
  };
  const found = linesOf(seen.createReadStream({ start: 0, autoClose: false }) as AsyncIterable<Buffer>);
  for await (const line of linesOf(listed)) {
    const { value: other } = await found.next();
    if (other === line) continue;
    const [expected, actual] = [nameInLine(line), other === undefined ? undefined : nameInLine(other)];
    note(actual === expected ? `${expected} is damaged` : `${expected} is missing`);
    // From here on the two no longer go side by side.
    if (actual !== expected) return damage;
  }
  for await (const line of found) note(`${nameInLine(line)} was not in it when it was made`);
  return damage;
}

async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  if (rest !== '') yield rest;
}
