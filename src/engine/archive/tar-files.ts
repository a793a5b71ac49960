// Reads the files of a tar one after the other, as a stream.

import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { extract, type Header } from 'tar-stream';
import { freeBuffer } from './free-buffer.ts';
import { BadArchive } from './zip-reader.ts';

export type TarFile = {
  /** Bytes that are not UTF-8 are replaced by U+FFFD. */
  name: string;
  type: 'file' | 'directory' | 'link' | 'special';
  sizeBytes: number;
  isExecutable: boolean;
  modifiedAt: Date;
  /** A chunk can be used until the next one is read. */
  content: AsyncIterable<Buffer>;
};

type TarEntry = ReturnType<typeof extract> extends AsyncIterable<infer Entry> ? Entry : never;

/**
 * The entries of a tar. The content of each has to be read, or skipped with `resume`, before the next one comes. Throws the
 * errors of the source and of the tar. Leaving the loop closes the source.
 */
export async function* readEntries(source: Readable): AsyncGenerator<TarEntry> {
  const entries = extract();
  // The loop below throws the errors. An unhandled error event would end the server.
  entries.on('error', () => {});
  const reading = pipeline(source, entries as unknown as NodeJS.WritableStream);
  reading.catch(error => entries.destroy(error as Error));
  for await (const entry of entries) {
    entry.on('error', () => {});
    yield entry;
  }
  await reading;
}

/** Calls `take` for each file until it returns `stop`. Content that it does not read is skipped. Throws BadArchive. */
export async function readTar(
  source: Readable,
  take: (file: TarFile) => Promise<'continue' | 'stop'>,
): Promise<void> {
  try {
    for await (const entry of readEntries(source)) {
      const taken = await take({ ...describe(entry.header), content: freeing(entry) });
      if (taken === 'stop') return;
      entry.resume();
    }
  } catch (error) {
    const isCutOff = (error as Error).message === 'Unexpected end of data';
    throw isCutOff ? new BadArchive('the tar is cut off', { cause: error }) : error;
  }
}

async function* freeing(entry: AsyncIterable<unknown>): AsyncGenerator<Buffer> {
  for await (const chunk of entry as AsyncIterable<Buffer>) {
    yield chunk;
    freeBuffer(chunk);
  }
}

function describe({ name, type, size, mode, mtime }: Header): Omit<TarFile, 'content'> {
  return {
    name,
    type:
      type === 'file' || type === 'contiguous-file' || type == null
        ? 'file'
        : type === 'directory'
          ? 'directory'
          : type === 'link' || type === 'symlink'
            ? 'link'
            : 'special',
    sizeBytes: size ?? 0,
    isExecutable: ((mode ?? 0) & 0o100) !== 0,
    modifiedAt: mtime ?? new Date(0),
  };
}
