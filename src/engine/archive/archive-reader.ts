// Owns the two packings that images seldom have a program for: zstd and zip become plain tars, which a container unpacks
// like any other. Only bytes are read and written here; no name in an archive becomes a path on the host.
import { createReadStream, createWriteStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createZstdDecompress } from 'node:zlib';
import { pack } from 'tar-stream';
import { type ArchiveFormat, detectFormat, detectionBytes } from '../../domain/text/archive-format.ts';
import { GivenUp, writeEntry } from './artifact-tar.ts';
import { BadArchive, readZip, type ZipEntry } from './zip-reader.ts';

export { BadArchive } from './zip-reader.ts';

const ASK_EVERY_BYTES = 8 << 20;
const LINK_BYTES = 4_096;

/** Told by its first bytes, as when it was uploaded. */
export async function formatOf(file: string): Promise<ArchiveFormat> {
  const handle = await open(file, 'r');
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(detectionBytes), 0, detectionBytes, 0);
    const detected = detectFormat(buffer.subarray(0, bytesRead));
    if (!detected) throw new BadArchive('the archive is neither a tar nor a zip any more');
    return detected.format;
  } finally {
    await handle.close();
  }
}

/** Whether a container cannot be expected to read the format. */
export const needsTar = (format: ArchiveFormat) => format === 'zstd' || format === 'zip';

/** Writes the archive as a plain tar to `target`, readable for the container's user; `goOn` is asked every few MiB. */
export async function writeTar(
  archive: { file: string; format: ArchiveFormat },
  target: string,
  goOn: () => boolean,
): Promise<void> {
  const plain = archive.format === 'zip' ? tarOfZip(archive.file) : tarOfZstd(archive.file);
  await pipeline(plain, asking(goOn), createWriteStream(target, { mode: 0o644 }));
}

function tarOfZstd(file: string): Readable {
  const plain = createZstdDecompress();
  const source = createReadStream(file, { highWaterMark: 1 << 20 });
  source.on('error', cause => plain.destroy(cause));
  source.pipe(plain);
  return Readable.from(
    (async function* () {
      try {
        yield* plain as AsyncIterable<Buffer>;
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code?.startsWith('Z'))
          throw new BadArchive('the archive is cut off or damaged');
        throw cause;
      }
    })(),
    { objectMode: false, highWaterMark: 1 << 20 },
  );
}

function tarOfZip(file: string): Readable {
  const tar = pack();
  const filled = fillTar(tar, file).then(
    () => tar.finalize(),
    cause => {
      tar.destroy();
      throw cause;
    },
  );
  filled.catch(() => {});
  return Readable.from(
    (async function* () {
      try {
        yield* tar as AsyncIterable<Buffer>;
      } catch (cause) {
        // It was broken off because of what the zip is like, which says more.
        await filled;
        throw cause;
      }
      await filled;
    })(),
    { objectMode: false, highWaterMark: 1 << 20 },
  );
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
  if (entry.sizeBytes > LINK_BYTES)
    throw new BadArchive(`the link ${JSON.stringify(entry.name)} is too long`);
  const chunks: Buffer[] = [];
  for await (const chunk of entry.read()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function asking(goOn: () => boolean): Transform {
  let unasked = 0;
  return new Transform({
    highWaterMark: 1 << 20,
    transform(chunk: Buffer, _, done) {
      unasked += chunk.length;
      if (unasked < ASK_EVERY_BYTES) return done(null, chunk);
      unasked = 0;
      if (goOn()) done(null, chunk);
      else done(new GivenUp('given up'));
    },
  });
}
