// Reads a zip entry by entry and verifies each checksum. No name in it becomes a path on the host.

import { PassThrough, pipeline } from 'node:stream';
import { crc32, createInflateRaw, createZstdDecompress } from 'node:zlib';
import type { Entry, ZipFile } from 'yauzl';

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

/** By the number of the compression method. */
const decoders = new Map([
  [0, () => new PassThrough()],
  [8, () => createInflateRaw()],
  [93, () => createZstdDecompress()],
]);

export async function* readZip(path: string): AsyncGenerator<ZipEntry> {
  // Loaded when it is needed: few starts of the server need it soon.
  const { openPromise } = await import('yauzl');
  try {
    const zip = await openPromise(path, { decodeStrings: false });
    for await (const entry of zip.eachEntry()) yield describe(zip, entry);
  } catch (error) {
    throw explain(error, 'the zip is cut off or damaged');
  }
}

function describe(zip: ZipFile, entry: Entry): ZipEntry {
  const name = entry.fileNameRaw.toString('utf8');
  const unixMode = entry.externalFileAttributes >>> 16;
  const isUnix = entry.versionMadeBy >> 8 === 3 && unixMode !== 0;
  const isDirectory = name.endsWith('/');
  return {
    name,
    typeBits: isUnix ? unixMode & 0o170000 : isDirectory ? 0o040000 : 0,
    mode: isUnix ? unixMode & 0o777 : isDirectory ? 0o755 : 0o644,
    mtime: entry.getLastModDate({ forceDosFormat: true, timezone: 'UTC' }),
    sizeBytes: entry.uncompressedSize,
    read: () => readEntry(zip, entry, JSON.stringify(name)),
  };
}

async function* readEntry(zip: ZipFile, entry: Entry, name: string): AsyncGenerator<Buffer> {
  const decoder = decoders.get(entry.compressionMethod);
  if (entry.isEncrypted()) throw new BadArchive(`${name} is encrypted: make the zip without a password`);
  if (!decoder)
    throw new BadArchive(`${name} is compressed by method ${entry.compressionMethod}: use deflate`);
  let sum = 0;
  let count = 0;
  try {
    const compressed = await zip.openReadStreamPromise(entry, { decodeFileData: false });
    const plain = pipeline(compressed, decoder(), () => {});
    for await (const chunk of plain as AsyncIterable<Buffer>) {
      count += chunk.length;
      if (count > entry.uncompressedSize) break;
      sum = crc32(chunk, sum);
      yield chunk;
    }
  } catch (error) {
    throw explain(error, `the zip is damaged at ${name}`);
  }
  if (count !== entry.uncompressedSize || sum !== entry.crc32)
    throw new BadArchive(`the zip is damaged at ${name}`);
}

/** Errors of the file system have a code and are not the archive's fault. */
function explain(error: unknown, message: string): unknown {
  const { code } = error as NodeJS.ErrnoException;
  return code === undefined || code.startsWith('Z') ? new BadArchive(message, { cause: error }) : error;
}
