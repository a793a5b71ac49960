// The file of an exported dependency: a plain tar of the manifest, its signature, the source archives and the artifacts.
// Sizes follow from the manifest, so a reader knows the place of every byte before it trusts any. Memory stays flat.

import { type FileHandle, open } from 'node:fs/promises';
import { type ContentHash, startContentHash } from '../../content-hash.ts';
import {
  BadExport,
  type ExportedFile,
  type Manifest,
  parseManifest,
  publicKeyIn,
} from '../../domain/dependency-export.ts';
import { fingerprintOf, type Identity, isSignedBy } from '../appliance.ts';
import { BLOCK_BYTES, tarHeader } from '../backup/archive.ts';

const MANIFEST = 'manifest.json';
const SIGNATURE = 'signature';
const SIGNATURE_BYTES = 64;
const MODE = 0o644;
const MAX_MANIFEST_BYTES = 4 << 20;
const COPY_BYTES = 1 << 20;
const END = Buffer.alloc(2 * BLOCK_BYTES);
/** Replaced by checksums of the same length when the files have been written. */
export const UNKNOWN_SHA256 = '0'.repeat(64);

const paddingOf = (sizeBytes: number) => -sizeBytes & (BLOCK_BYTES - 1);
const entryOf = (name: string, content: Buffer) =>
  Buffer.concat([tarHeader(name, MODE, content.length), content, Buffer.alloc(paddingOf(content.length))]);

/** Reads each file once: the manifest, which comes first, gets its checksums at the end. Resolves with the file's size. */
export async function writeDependencyFile(
  path: string,
  options: {
    manifest: Manifest;
    identity: Identity;
    sources: ReadonlyMap<string, FileHandle>;
    /** Throws if the checksum is not the expected one. */
    onFile(file: ExportedFile): void;
    /** May throw to stop. */
    onBytes(bytes: number): void;
  },
): Promise<number> {
  const { manifest, identity } = options;
  const headOf = (files: ExportedFile[]) => {
    const content = Buffer.from(`${JSON.stringify({ ...manifest, files }, null, 1)}\n`);
    return Buffer.concat([entryOf(MANIFEST, content), entryOf(SIGNATURE, identity.sign(content))]);
  };
  await using out = await open(path, 'wx', 0o600);
  using hash = startContentHash();
  let at = headOf(manifest.files).length;
  const files: ExportedFile[] = [];
  for (const { name, size_bytes } of manifest.files) {
    const from = options.sources.get(name) as FileHandle;
    await out.write(tarHeader(name, MODE, size_bytes), 0, BLOCK_BYTES, at);
    at += BLOCK_BYTES;
    const sha256 = await copy(
      hash,
      { from, fromAt: 0, to: out, toAt: at, sizeBytes: size_bytes },
      options.onBytes,
    );
    files.push({ name, size_bytes, sha256 });
    options.onFile({ name, size_bytes, sha256 });
    at += size_bytes + paddingOf(size_bytes);
  }
  // What is skipped reads as zeros.
  await out.write(END, 0, END.length, at);
  const head = headOf(files);
  await out.write(head, 0, head.length, 0);
  await out.sync();
  return at + END.length;
}

export type PlacedFile = ExportedFile & { at: number };

export type DependencyFile = {
  manifest: Manifest;
  fingerprint: string;
  files: PlacedFile[];
};

/**
 * Verifies the signature, the manifest and the layout of a file, but not the content of its files. Throws BadExport. The
 * caller decides whether it trusts the key.
 */
export async function readDependencyFile(file: FileHandle): Promise<DependencyFile> {
  const { size } = await file.stat();
  const [content, signatureAt] = await readEntry(file, MANIFEST, 0, size);
  const [signature, filesAt] = await readEntry(file, SIGNATURE, signatureAt, size);
  const text = content.toString('utf8');
  const publicKey = publicKeyIn(text);
  if (signature.length !== SIGNATURE_BYTES || !isSignedBy(publicKey, content, signature))
    throw new BadExport('its signature does not match: it was changed after it was exported');
  const manifest = parseManifest(text);
  const files: PlacedFile[] = [];
  let at = filesAt;
  for (const one of manifest.files) {
    files.push({ ...one, at: at + BLOCK_BYTES });
    at += BLOCK_BYTES + one.size_bytes + paddingOf(one.size_bytes);
  }
  const expected = at + END.length;
  if (size < expected) throw new BadExport(`it is cut off: it has ${size} of ${expected} bytes`);
  if (size > expected) throw new BadExport('it continues after its end');
  for (const one of files) {
    const padding = paddingOf(one.size_bytes);
    await expectBytes(file, one.at - BLOCK_BYTES, tarHeader(one.name, MODE, one.size_bytes));
    await expectBytes(file, one.at + one.size_bytes, Buffer.alloc(padding));
  }
  await expectBytes(file, at, END);
  return { manifest, fingerprint: fingerprintOf(publicKey), files };
}

export type Extractor = Disposable & {
  /** Copies one file to a new path and syncs it. Throws BadExport if its content is not what the manifest says. */
  extract(entry: PlacedFile, path: string): Promise<void>;
};

export function createExtractor(file: FileHandle, onBytes: (bytes: number) => void): Extractor {
  const hash = startContentHash();
  return {
    async extract({ name, at, size_bytes: sizeBytes, sha256 }, path) {
      await using to = await open(path, 'wx', 0o600);
      const found = await copy(hash, { from: file, fromAt: at, to, toAt: 0, sizeBytes }, onBytes);
      if (found !== sha256)
        throw new BadExport(`${name} was changed after it was exported (its checksum differs)`);
      await to.sync();
    },
    [Symbol.dispose]: () => hash[Symbol.dispose](),
  };
}

/** The content of a small entry, and where the next one begins. */
async function readEntry(
  file: FileHandle,
  name: string,
  at: number,
  fileBytes: number,
): Promise<[content: Buffer, next: number]> {
  const header = await readFully(file, Buffer.alloc(BLOCK_BYTES), at);
  const sizeBytes = Number.parseInt(header.toString('latin1', 124, 135), 8);
  if (!(sizeBytes >= 0) || !header.equals(tarHeader(name, MODE, sizeBytes)))
    throw new BadExport('it is not an exported dependency');
  if (sizeBytes > MAX_MANIFEST_BYTES) throw new BadExport('its manifest is too large');
  const next = at + BLOCK_BYTES + sizeBytes + paddingOf(sizeBytes);
  if (next > fileBytes) throw new BadExport('it is cut off');
  const content = await readFully(file, Buffer.alloc(sizeBytes), at + BLOCK_BYTES);
  await expectBytes(file, next - paddingOf(sizeBytes), Buffer.alloc(paddingOf(sizeBytes)));
  return [content, next];
}

async function expectBytes(file: FileHandle, at: number, expected: Buffer): Promise<void> {
  const found = await readFully(file, Buffer.alloc(expected.length), at);
  if (!found.equals(expected)) throw new BadExport('it was changed after it was exported');
}

type Copy = { from: FileHandle; fromAt: number; to: FileHandle; toAt: number; sizeBytes: number };

/** Copies and hashes in parallel, with two buffers. Returns the checksum. */
async function copy(hash: ContentHash, range: Copy, onBytes: (bytes: number) => void): Promise<string> {
  const { from, fromAt, to, toAt, sizeBytes } = range;
  const buffers = [Buffer.allocUnsafe(COPY_BYTES), Buffer.allocUnsafe(COPY_BYTES)] as const;
  const read = (at: number, buffer: Buffer) =>
    readFully(from, buffer.subarray(0, Math.min(COPY_BYTES, sizeBytes - at)), fromAt + at);
  hash.begin();
  let chunk = await read(0, buffers[0]);
  for (let at = 0, turn = 1; at < sizeBytes; turn = 1 - turn) {
    const nextAt = at + chunk.length;
    const steps = await Promise.allSettled([
      read(nextAt, buffers[turn] as Buffer),
      writeFully(to, chunk, toAt + at),
      hash.update(chunk),
    ]);
    for (const step of steps) if (step.status === 'rejected') throw step.reason;
    onBytes(chunk.length);
    at = nextAt;
    if (steps[0].status === 'fulfilled') chunk = steps[0].value;
  }
  return (await hash.end()).sha256;
}

async function readFully(file: FileHandle, buffer: Buffer, at: number): Promise<Buffer> {
  for (let filled = 0; filled < buffer.length; ) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, at + filled);
    if (bytesRead === 0) throw new BadExport('it is cut off');
    filled += bytesRead;
  }
  return buffer;
}

async function writeFully(file: FileHandle, bytes: Buffer, at: number): Promise<void> {
  for (let written = 0; written < bytes.length; )
    written += (await file.write(bytes, written, bytes.length - written, at + written)).bytesWritten;
}
