// What a backup file is: a tar in zstd with a list of sums at its end, and after that the sum of all of it, in a frame
// that zstd skips. `tar --zstd -xf` reads it. Writing one is backup.ts's, reading backup-read.ts's.

import type { FileHandle } from 'node:fs/promises';
import { databasePath, type directories, lockPath, masterKeyPath } from '../data/paths.ts';

type Directory = (typeof directories)[number];

/** The first entry: what this is, before anything is unpacked. */
export type BackupHead = {
  format: 'assay-backup';
  version: number;
  assay: string;
  createdAt: string;
  /** Whether the master key and the keys of the own certificate authority are in it. */
  keys: boolean;
  logs: boolean;
};

export type EntryRecord = {
  name: string;
  mode: number;
  sizeBytes: number;
  sha256: string;
};

export const FORMAT_VERSION = 1;
export const HEAD_NAME = 'backup.json';
export const LIST_NAME = 'sums.jsonl';

export const databaseName = databasePath('');
export const keyName = masterKeyPath('');
export const lockName = lockPath('');

const archives: Directory = 'archives';
const artifacts: Directory = 'artifacts';
const logs: Directory = 'logs';
const ssh: Directory = 'ssh';
const tls: Directory = 'tls';
export const kept = { archives, artifacts, logs, tls, ssh: [`${ssh}/config`, `${ssh}/known_hosts`] } as const;

/** Whether a name may be put into a data directory: nothing else is in a backup, nothing leads out. */
export function isKeptName(name: string): boolean {
  if (name === databaseName || name === keyName || (kept.ssh as readonly string[]).includes(name))
    return true;
  const [directory, file, ...more] = name.split('/');
  return (
    more.length === 0 &&
    [archives, artifacts, logs, tls].some(one => one === directory) &&
    /^[\w-][\w.-]*$/.test(file ?? '')
  );
}

export const lineOf = ({ sha256, sizeBytes, mode, name }: EntryRecord) =>
  `${JSON.stringify([sha256, sizeBytes, mode, name])}\n`;

export const nameInLine = (line: string): string => {
  try {
    return String(JSON.parse(line)[3]);
  } catch {
    return 'a line of the list';
  }
};

const SKIPPABLE_FRAME = 0x184d2a5a;
const MARK = Buffer.from('assay-backup-1\0\0');
const DIGEST_BYTES = 32;
const FRAME_HEAD_BYTES = 8;
export const TRAILER_BYTES = FRAME_HEAD_BYTES + MARK.length + DIGEST_BYTES;

export function trailerOf(digest: Buffer): Buffer {
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  head.writeUInt32LE(SKIPPABLE_FRAME, 0);
  head.writeUInt32LE(MARK.length + DIGEST_BYTES, 4);
  return Buffer.concat([head, MARK, digest]);
}

/** The sum that the file ends with; undefined where its end is missing. */
export async function readTrailer(file: FileHandle, sizeBytes: number): Promise<Buffer | undefined> {
  if (sizeBytes <= TRAILER_BYTES) return undefined;
  const { buffer } = await file.read(
    Buffer.alloc(TRAILER_BYTES),
    0,
    TRAILER_BYTES,
    sizeBytes - TRAILER_BYTES,
  );
  const digest = buffer.subarray(-DIGEST_BYTES);
  return buffer.equals(trailerOf(digest)) ? digest : undefined;
}
