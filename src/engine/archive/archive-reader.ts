// Reads archives without unpacking them: no name in an archive becomes a path on the host. Few images can unpack zstd and
// zip, so these are converted to plain tars.

import { createReadStream, createWriteStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline as connect, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { pack } from 'tar-stream';
import { type ArchiveFormat, detectFormat, detectionBytes } from '../../domain/text/archive-format.ts';
import { CaptureStopped, writeEntry } from './artifact-tar.ts';
import { BadArchive, readZip, type ZipEntry } from './zip-reader.ts';

export { BadArchive } from './zip-reader.ts';

const CHECK_EVERY_BYTES = 8 << 20;
const MAX_LINK_BYTES = 4_096;

/** Undefined if the file is not an archive. */
export async function formatOf(file: string): Promise<ArchiveFormat | undefined> {
  const handle = await open(file, 'r');
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(detectionBytes), 0, detectionBytes, 0);
    return detectFormat(buffer.subarray(0, bytesRead))?.format;
  } finally {
    await handle.close();
  }
}

/** The file, decompressed if it is a gzip or zstd. */
export function openPlain(file: string, format: ArchiveFormat | undefined): Readable {
  const source = createReadStream(file, { highWaterMark: 1 << 20 });
  if (format !== 'gzip' && format !== 'zstd') return source;
  return connect(source, format === 'gzip' ? createGunzip() : createZstdDecompress(), () => {});
}

/** Whether the archive must be converted because few images can unpack the format. */
export const needsTar = (format: ArchiveFormat) => format === 'zstd' || format === 'zip';

/** Writes the archive as a plain tar that the container's user can read. Calls `mayContinue` every few MiB. */
export async function writeTar(
  archive: { file: string; format: ArchiveFormat },
  target: string,
  mayContinue: () => boolean,
): Promise<void> {
  const plain = archive.format === 'zip' ? tarOfZip(archive.file) : openPlain(archive.file, archive.format);
  let unchecked = 0;
  async function* checked(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      unchecked += chunk.length;
      if (unchecked >= CHECK_EVERY_BYTES) {
        unchecked = 0;
        if (!mayContinue()) throw new CaptureStopped('stopped');
      }
      yield chunk;
    }
  }
  try {
    await pipeline(plain, checked, createWriteStream(target, { mode: 0o644 }));
  } catch (error) {
    const isCorrupt = (error as NodeJS.ErrnoException).code?.startsWith('Z');
    throw isCorrupt ? new BadArchive('the archive is cut off or damaged') : error;
  }
}

async function* tarOfZip(file: string): AsyncGenerator<Buffer> {
  const tar = pack();
  const filled = fillTar(tar, file).then(
    () => tar.finalize(),
    error => {
      tar.destroy();
      throw error;
    },
  );
  filled.catch(() => {});
  try {
    yield* tar as AsyncIterable<Buffer>;
  } catch (error) {
    // The zip caused the failure, so its error is the useful one.
    await filled;
    throw error;
  }
  await filled;
}

async function fillTar(tar: ReturnType<typeof pack>, file: string): Promise<void> {
  for await (const entry of readZip(file)) {
    const header = { name: entry.name, mode: entry.mode, mtime: entry.mtime, uid: 0, gid: 0 };
    if (entry.typeBits === 0o040000) tar.entry({ ...header, type: 'directory' });
    else if (entry.typeBits === 0o120000)
      tar.entry({ ...header, type: 'symlink', linkname: await readTarget(entry) });
    else if (entry.typeBits !== 0 && entry.typeBits !== 0o100000)
      throw new BadArchive(`${JSON.stringify(entry.name)} is neither a file nor a directory nor a link`);
    else {
      const sink = tar.entry({ ...header, type: 'file', size: entry.sizeBytes });
      for await (const chunk of entry.read()) await writeEntry(sink, chunk);
      sink.end(undefined);
    }
  }
}

async function readTarget(entry: ZipEntry): Promise<string> {
  if (entry.sizeBytes > MAX_LINK_BYTES)
    throw new BadArchive(`the link ${JSON.stringify(entry.name)} is too long`);
  const chunks: Buffer[] = [];
  for await (const chunk of entry.read()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
