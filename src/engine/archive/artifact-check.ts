// Checks the tar of an artifact that another appliance made: every entry is one that a compile here could have left, and
// the hash is recomputed from the content.

import type { Readable } from 'node:stream';
import type { Header } from 'tar-stream';
import { type ContentHash, startContentHash } from '../../content-hash.ts';
import type { RunAs } from '../../domain/container/container-plan.ts';
import { VOLUME_DIRECTORY } from '../engine.ts';
import { type Captured, identityLine, KEPT_TYPES, type Kept, prefixLine } from './artifact-tar.ts';
import { readEntries } from './tar-files.ts';
import { BadArchive } from './zip-reader.ts';

type Expected = {
  hash: string;
  prefix: string;
  /** Of all files. More is not read. */
  sizeBytes: number;
  /** Called every few MiB. May throw to stop. */
  onBytes(bytes: number): void;
};

/** `owner` is the one of all entries; undefined if they differ. */
export type CheckedArtifact = Captured & { owner: RunAs | undefined };

const ROOT = VOLUME_DIRECTORY.slice(1);
const BLOCK_BYTES = 512;
const REPORT_EVERY_BYTES = 8 << 20;
/** A tar may have at most this many bytes of headers, besides one for each byte of its files. */
const SPARE_HEADER_BYTES = 64 << 20;
/** Docker would set other attributes, such as capabilities, on the files. */
const PAX_NAMES = ['path', 'linkpath', 'size'];
/** Hashes of earlier versions cover the type of the file in the mode. */
const TYPE_BITS: Record<string, number> = {
  file: 0o100000,
  link: 0o100000,
  symlink: 0o120000,
  directory: 0o040000,
  fifo: 0o010000,
};

/** `open` returns the plain tar. It is read a second time if an earlier version made the hash. Throws BadArchive. */
export async function checkArtifact(open: () => Readable, expected: Expected): Promise<CheckedArtifact> {
  using hash = startContentHash();
  for (const typeBits of [{}, TYPE_BITS]) {
    const checked = await readArtifact(open(), expected, hash, typeBits);
    if (checked.hash === expected.hash) return checked;
  }
  throw new BadArchive('its content does not have the hash of the artifact');
}

async function readArtifact(
  source: Readable,
  expected: Expected,
  hash: ContentHash,
  typeBits: Record<string, number>,
): Promise<CheckedArtifact> {
  const inside = createPathCheck();
  const owners = new Map<string, RunAs>();
  let sizeBytes = 0;
  let headerBytes = 0;
  let files = 0;
  let newBytes = 0;
  const proceed = (bytes: number) => {
    newBytes += bytes;
    if (newBytes < REPORT_EVERY_BYTES) return;
    expected.onBytes(newBytes);
    newBytes = 0;
  };
  hash.begin();
  await hash.update(Buffer.from(prefixLine(expected.prefix)));
  try {
    for await (const entry of readEntries(source)) {
      const header = checkHeader(entry.header);
      inside(header);
      if (header.type !== 'directory') files += 1;
      headerBytes += BLOCK_BYTES;
      if (
        sizeBytes + header.size > expected.sizeBytes ||
        headerBytes > SPARE_HEADER_BYTES + expected.sizeBytes
      )
        throw new BadArchive('it unpacks to more than its manifest says');
      proceed(BLOCK_BYTES);
      if (owners.size < 2) owners.set(`${header.uid}:${header.gid}`, { uid: header.uid, gid: header.gid });
      const mode = header.mode | (typeBits[header.type as string] ?? 0);
      await hash.update(Buffer.from(identityLine({ ...header, mode })));
      for await (const chunk of entry as AsyncIterable<Buffer>) {
        sizeBytes += chunk.length;
        proceed(chunk.length);
        await hash.update(chunk);
      }
    }
  } catch (error) {
    throw isUnreadable(error) ? new BadArchive('it cannot be unpacked', { cause: error }) : error;
  }
  const [owner] = owners.values();
  return {
    hash: (await hash.end()).sha256,
    sizeBytes,
    files,
    owner: owners.size === 1 ? owner : undefined,
  };
}

function isUnreadable(error: unknown): boolean {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return /^(ZSTD|Z)_/.test(code) || /header|end of data/i.test(message);
}

/** The entry as `captureTar` would have written it. */
function checkHeader(header: Header): Kept {
  const { type, linkname, pax } = header;
  if (!KEPT_TYPES.has(type ?? '')) throw new BadArchive(`it contains an entry of the type ${type}`);
  const foreign = Object.keys(pax ?? {}).filter(name => !PAX_NAMES.includes(name));
  if (foreign.length > 0) throw new BadArchive(`an entry has the attribute ${JSON.stringify(foreign[0])}`);
  const isLink = type === 'link' || type === 'symlink';
  return {
    name: header.name.replace(/\/$/, ''),
    type: type as NonNullable<Header['type']>,
    mode: header.mode ?? 0,
    uid: header.uid ?? 0,
    gid: header.gid ?? 0,
    size: type === 'file' ? (header.size ?? 0) : 0,
    ...(header.mtime && { mtime: header.mtime }),
    ...(isLink && { linkname: linkname ?? '' }),
  };
}

/**
 * Every path is below the root, in a directory that came before it. A directory is followed by all that it contains, so
 * only the directories on the way to the current one have to be known.
 */
function createPathCheck(): (header: Kept) => void {
  const open: string[] = [];
  return ({ name, type, linkname = '' }) => {
    const isOutside = !isInside(name) || (type === 'link' && !isInside(linkname));
    if (isOutside || (name === ROOT && type !== 'directory'))
      throw new BadArchive(
        `it contains the path ${JSON.stringify(name.slice(0, 200))}, which leads out of its prefix`,
      );
    const parent = name === ROOT ? '' : name.slice(0, name.lastIndexOf('/'));
    while (open.length > 0 && open.at(-1) !== parent) open.pop();
    if (name !== ROOT && open.length === 0 && parent !== ROOT)
      throw new BadArchive(`the directory of ${JSON.stringify(name.slice(0, 200))} is missing in it`);
    if (type === 'directory') open.push(name);
  };
}

const isInside = (path: string) =>
  path === ROOT ||
  (path.startsWith(`${ROOT}/`) &&
    path.split('/').every(segment => segment !== '' && segment !== '.' && segment !== '..') &&
    !path.includes('\0'));
