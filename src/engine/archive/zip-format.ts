// The parts of a ZIP file: its headers and its directory, also for sizes of 4 GiB and more.

export const STORED = 0;
export const DEFLATED = 8;

/** What is needed to read an entry. */
export type ZipSlice = { offset: number; sizeBytes: number; storedBytes: number; method: number };

/** An entry of a finished ZIP. `offset` is where its content begins. `sha256` is empty if it was not computed. */
export type StoredEntry = ZipSlice & { path: string; crc32: number; sha256: string };

export type NewEntry = {
  /** In UTF-8, without a leading slash. The caller checks it and adds each path once. */
  path: string;
  sizeBytes: number;
  isExecutable: boolean;
  modifiedAt: Date;
};

const LOCAL_HEADER_BYTES = 30;
const VERSION = 45;
const MADE_BY_UNIX = 3 << 8;
const UTF8_NAMES = 1 << 11;
const MAX_UINT16 = 0xffff;
const MAX_UINT32 = 0xffffffff;

export const MAX_STORED_BLOCK_BYTES = MAX_UINT16;

/** Precedes content in a deflated file that is not compressed. It must begin at a whole byte. */
export function storedBlockHeader(contentBytes: number, isLast: boolean): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt8(isLast ? 1 : 0, 0);
  header.writeUInt16LE(contentBytes, 1);
  header.writeUInt16LE(~contentBytes & MAX_UINT16, 3);
  return header;
}

/** A part of a deflated file that is not compressed, in pieces. */
export function storedBlocks(content: Buffer, isLast: boolean): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < content.length; at += MAX_STORED_BLOCK_BYTES) {
    const piece = content.subarray(at, at + MAX_STORED_BLOCK_BYTES);
    pieces.push(storedBlockHeader(piece.length, isLast && at + piece.length === content.length), piece);
  }
  return pieces;
}

export function localHeader(entry: NewEntry & Pick<StoredEntry, 'method' | 'crc32' | 'storedBytes'>): Buffer {
  const name = Buffer.from(entry.path);
  const isLarge = isLargeEntry(entry);
  const extra = isLarge ? extraField64([entry.sizeBytes, entry.storedBytes]) : Buffer.alloc(0);
  const header = Buffer.alloc(LOCAL_HEADER_BYTES);
  header.writeUInt32LE(0x04034b50, 0);
  header.writeUInt16LE(VERSION, 4);
  writeCommonFields(header, 6, entry, name.length, extra.length);
  return Buffer.concat([header, name, extra]);
}

export function directoryHeader(entry: StoredEntry & NewEntry & { headerAt: number }): Buffer {
  const name = Buffer.from(entry.path);
  const isFar = entry.headerAt >= MAX_UINT32;
  const values = [
    ...(isLargeEntry(entry) ? [entry.sizeBytes, entry.storedBytes] : []),
    ...(isFar ? [entry.headerAt] : []),
  ];
  const extra = values.length > 0 ? extraField64(values) : Buffer.alloc(0);
  const header = Buffer.alloc(46);
  header.writeUInt32LE(0x02014b50, 0);
  header.writeUInt16LE(MADE_BY_UNIX | VERSION, 4);
  header.writeUInt16LE(VERSION, 6);
  writeCommonFields(header, 8, entry, name.length, extra.length);
  header.writeUInt32LE(((entry.isExecutable ? 0o100755 : 0o100644) << 16) >>> 0, 38);
  header.writeUInt32LE(isFar ? MAX_UINT32 : entry.headerAt, 42);
  return Buffer.concat([header, name, extra]);
}

/** The fields from the flags to the length of the extra field, which both headers have in the same order. */
function writeCommonFields(
  header: Buffer,
  at: number,
  entry: NewEntry & Pick<StoredEntry, 'method' | 'crc32' | 'storedBytes'>,
  nameBytes: number,
  extraBytes: number,
): void {
  const isLarge = isLargeEntry(entry);
  const { time, date } = dosTime(entry.modifiedAt);
  header.writeUInt16LE(UTF8_NAMES, at);
  header.writeUInt16LE(entry.method, at + 2);
  header.writeUInt16LE(time, at + 4);
  header.writeUInt16LE(date, at + 6);
  header.writeUInt32LE(entry.crc32, at + 8);
  header.writeUInt32LE(isLarge ? MAX_UINT32 : entry.storedBytes, at + 12);
  header.writeUInt32LE(isLarge ? MAX_UINT32 : entry.sizeBytes, at + 16);
  header.writeUInt16LE(nameBytes, at + 20);
  header.writeUInt16LE(extraBytes, at + 22);
}

/** Depends on nothing that is unknown when the header is first written. Deflating may add a little. */
const isLargeEntry = ({ sizeBytes }: { sizeBytes: number }) => sizeBytes >= MAX_UINT32 - (1 << 24);

/** The extra field for sizes and offsets of 4 GiB and more. */
function extraField64(values: readonly number[]): Buffer {
  const extra = Buffer.alloc(4 + 8 * values.length);
  extra.writeUInt16LE(1, 0);
  extra.writeUInt16LE(8 * values.length, 2);
  for (const [at, value] of values.entries()) extra.writeBigUInt64LE(BigInt(value), 4 + 8 * at);
  return extra;
}

export function directoryEnd(count: number, at: number, bytes: number): Buffer {
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  for (const position of [8, 10]) end.writeUInt16LE(Math.min(count, MAX_UINT16), position);
  end.writeUInt32LE(Math.min(bytes, MAX_UINT32), 12);
  end.writeUInt32LE(Math.min(at, MAX_UINT32), 16);
  if (count < MAX_UINT16 && at < MAX_UINT32 && bytes < MAX_UINT32) return end;
  const end64 = Buffer.alloc(56);
  end64.writeUInt32LE(0x06064b50, 0);
  end64.writeBigUInt64LE(44n, 4);
  end64.writeUInt16LE(MADE_BY_UNIX | VERSION, 12);
  end64.writeUInt16LE(VERSION, 14);
  for (const position of [24, 32]) end64.writeBigUInt64LE(BigInt(count), position);
  end64.writeBigUInt64LE(BigInt(bytes), 40);
  end64.writeBigUInt64LE(BigInt(at), 48);
  const locator = Buffer.alloc(20);
  locator.writeUInt32LE(0x07064b50, 0);
  locator.writeBigUInt64LE(BigInt(at + bytes), 8);
  locator.writeUInt32LE(1, 16);
  return Buffer.concat([end64, locator, end]);
}

/** In UTC. The format covers the years 1980 to 2107. */
function dosTime(at: Date): { time: number; date: number } {
  const year = Math.min(Math.max(at.getUTCFullYear(), 1980), 2107);
  return {
    time: (at.getUTCHours() << 11) | (at.getUTCMinutes() << 5) | (at.getUTCSeconds() >> 1),
    date: ((year - 1980) << 9) | ((at.getUTCMonth() + 1) << 5) | at.getUTCDate(),
  };
}
