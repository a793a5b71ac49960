// Owns the tars that artifacts are kept as: what a volume held, in an order and form of their own, with a hash over what it
// is rather than when it was made. Where they are kept is src/store/artifacts.ts's.
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { extract, type Header, type Pack, pack } from 'tar-stream';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { VOLUME_DIRECTORY } from '../engine.ts';

export interface Captured {
  hash: string;
  /** Of all files together, unpacked. */
  sizeBytes: number;
  /** Everything but directories: none of them is an empty prefix. */
  files: number;
}

/** Why a capture was given up: `goOn` said so. */
export class GivenUp extends Error {}

const KEPT_TYPES = new Set(['file', 'link', 'symlink', 'directory', 'fifo']);
const ASK_EVERY_BYTES = 8 << 20;

/**
 * Writes what Docker gives of a directory into `file`, safe on disk when it resolves. Docker's order is by name. The owner
 * is who made it all: Docker tells the host's numbers, which an engine with user namespaces does not take back.
 */
export async function captureTar(
  source: Readable,
  target: { file: string; prefix: string; owner: RunAs; goOn(sizeBytes: number): boolean },
): Promise<Captured> {
  const hash = createHash('sha256');
  const tar = pack();
  const entries = extract();
  // What goes wrong is told by the promises below; an event that nobody listens to would end the server.
  for (const stream of [tar, entries]) stream.on('error', () => {});
  const reading = pipeline(source, entries as unknown as NodeJS.WritableStream);
  reading.catch(cause => entries.destroy(cause as Error));
  const writing = pipeline(
    Readable.from(tar as AsyncIterable<Buffer>, { objectMode: false, highWaterMark: 1 << 20 }),
    createZstdCompress({
      params: {
        [constants.ZSTD_c_compressionLevel]: 1,
        [constants.ZSTD_c_checksumFlag]: 1,
      },
    }),
    createWriteStream(target.file, { flags: 'w', mode: 0o600, flush: true }),
  );
  writing.catch(cause => entries.destroy(cause as Error));
  let sizeBytes = 0;
  let files = 0;
  let asked = 0;
  hash.update(`${JSON.stringify(target.prefix)}\n`);
  try {
    for await (const entry of entries) {
      const header = canonical(entry.header, target.owner);
      if (!header) {
        entry.resume();
        continue;
      }
      if (header.type !== 'directory') files += 1;
      hash.update(`${JSON.stringify(identity(header))}\n`);
      // A hole of any size takes no room where it was made, and all of it where it is unpacked.
      if (header.size > ASK_EVERY_BYTES && !target.goOn(sizeBytes + header.size))
        throw new GivenUp('given up');
      const sink = tar.entry(header);
      for await (const chunk of entry as AsyncIterable<Buffer>) {
        hash.update(chunk);
        sizeBytes += chunk.length;
        if (sizeBytes - asked > ASK_EVERY_BYTES) {
          asked = sizeBytes;
          if (!target.goOn(sizeBytes)) throw new GivenUp('given up');
        }
        await writeEntry(sink, chunk);
      }
      sink.end(undefined);
    }
    tar.finalize();
    await Promise.all([reading, writing]);
  } catch (cause) {
    tar.destroy();
    source.destroy();
    await Promise.allSettled([reading, writing]);
    throw cause;
  }
  return { hash: hash.digest('hex'), sizeBytes, files };
}

/** Waits until there is room for more; fails where the tar is given up meanwhile, which nobody else is told of. */
export async function writeEntry(sink: ReturnType<Pack['entry']>, chunk: Buffer): Promise<void> {
  if (sink.write(chunk)) return;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onClose = () => reject(new Error('the tar was given up'));
  sink.once('drain', resolve);
  sink.once('close', onClose);
  await promise.finally(() => {
    sink.off('drain', resolve);
    sink.off('close', onClose);
  });
}

/** The kept tar as Docker unpacks it: plain. */
export function openArtifact(file: string): Readable {
  const plain = createZstdDecompress();
  pipeline(createReadStream(file, { highWaterMark: 1 << 20 }), plain).catch(() => {});
  return plain;
}

/** Directories alone, one inside the other as the paths say. */
export function directoriesTar(paths: readonly string[], owner: RunAs): Readable {
  const all = new Set(
    paths.flatMap(path => path.split('/').map((_, at, parts) => parts.slice(0, at + 1).join('/'))),
  );
  const tar = pack();
  for (const path of [...all].sort())
    tar.entry({
      ...owner,
      name: `${VOLUME_DIRECTORY.slice(1)}/${path}`,
      type: 'directory',
      mode: 0o755,
      mtime: new Date(0),
    });
  tar.finalize();
  return Readable.from(tar as AsyncIterable<Buffer>, { objectMode: false });
}

type Kept = Pick<Header, 'name' | 'type' | 'mode' | 'uid' | 'gid' | 'size' | 'mtime'> & { linkname?: string };

/** What Docker calls `<last part of the path>/…`, under the name that it is unpacked by; undefined for what is not kept. */
function canonical(header: Header, { uid, gid }: RunAs): Kept | undefined {
  const type = header.type ?? 'file';
  // What else there is, are the marks that an overlay leaves of files that were taken away.
  if (!KEPT_TYPES.has(type)) return undefined;
  return {
    name: renamed(header.name),
    type,
    mode: header.mode ?? 0o644,
    uid,
    gid,
    size: type === 'file' ? (header.size ?? 0) : 0,
    ...(header.mtime && { mtime: header.mtime }),
    ...((type === 'link' || type === 'symlink') && {
      linkname: type === 'link' ? renamed(header.linkname ?? '') : (header.linkname ?? ''),
    }),
  };
}

function renamed(name: string): string {
  const inside = name.replace(/^\/?[^/]*\/?/, '').replace(/\/$/, '');
  return VOLUME_DIRECTORY.slice(1) + (inside === '' ? '' : `/${inside}`);
}

/** Everything that makes it what it is; times and owner do not. */
function identity({ name, type, mode, size, linkname }: Kept): unknown[] {
  return [name, type, mode, size, linkname ?? ''];
}
