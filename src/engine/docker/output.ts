// Owns the file a container's output goes to: makes it, follows it record by record, frees what was read.
// What is kept, masked and shown of it is the caller's.
import { execFile } from 'node:child_process';
import { watch } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import {
  type EntryRecord,
  parseRecord,
  RECORD_END,
  RECORD_PAYLOAD_BYTES,
  recordPrefix,
} from '../../domain/container/entry-script.ts';

const CHUNK_BYTES = 256 * 1024;
const POLL_MS = 1_000;
const HOLE_BYTES = 1024 ** 3;

/** `rawOffset` is where it begins in the file, `nextOffset` the byte to follow from after it. */
export type OutputRecord = (
  | { kind: 'bytes'; bytes: Buffer }
  | EntryRecord
  /** Someone inside cut or stretched the file: nothing in it can be trusted from here on. */
  | { kind: 'tampered'; reason: 'shrank' | 'stretched' }
) & { rawOffset: number; nextOffset: number };

export interface Following {
  file: string;
  fromByte: number;
  nonce: string;
  /** Stops at once, without a word. */
  signal: AbortSignal;
  /** The container no longer runs: read what is there, then end. */
  gone: AbortSignal;
}

/** Makes the file, writable for whatever user the container has: the data directory around it is 0700. */
export async function createOutput(file: string): Promise<void> {
  const handle = await open(file, 'a', 0o666);
  try {
    await handle.chmod(0o666);
  } finally {
    await handle.close();
  }
}

/** Ends after the exit record or a tampered one, or when the container is gone and the file is read to its end. */
export async function* followOutput(following: Following): AsyncGenerator<OutputRecord> {
  const { file, nonce, signal, gone } = following;
  const handle = await open(file, 'r');
  const changes = watchChanges(file, [signal, gone]);
  try {
    let held: Buffer = Buffer.alloc(0);
    let position = following.fromByte;
    while (!signal.aborted) {
      const last = gone.aborted;
      changes.clear();
      const { size, blocks } = await handle.stat();
      const reason = tampering(position, size, blocks);
      if (reason) {
        yield { kind: 'tampered', reason, rawOffset: position, nextOffset: position };
        return;
      }
      const fresh = await readSome(handle, position, size);
      if (fresh.length === 0) {
        if (last) break;
        await changes.next();
        continue;
      }
      const offset = position - held.length;
      position += fresh.length;
      const scan = scanRecords(held.length > 0 ? Buffer.concat([held, fresh]) : fresh, nonce, offset);
      for (const record of scan.records) {
        yield record;
        if (record.kind === 'exit') return;
      }
      held = scan.held;
    }
    if (held.length > 0 && !signal.aborted) {
      yield { kind: 'bytes', bytes: held, rawOffset: position - held.length, nextOffset: position };
    }
  } finally {
    changes.close();
    await handle.close();
  }
}

/** A file made enormous with a hole would be read for years: real output fills blocks, packed ones included. */
function tampering(position: number, size: number, blocks: number): 'shrank' | 'stretched' | undefined {
  if (size < position) return 'shrank';
  const unread = size - position;
  return unread > HOLE_BYTES && blocks * 512 < unread / 1000 ? 'stretched' : undefined;
}

async function readSome(handle: FileHandle, position: number, size: number): Promise<Buffer> {
  const room = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size - position));
  if (room.length === 0) return room;
  const { bytesRead } = await handle.read(room, 0, room.length, position);
  return room.subarray(0, bytesRead);
}

/** Splits a chunk into bytes and records; only what may be the beginning of a record is held back. */
export function scanRecords(chunk: Buffer, nonce: string, offset: number) {
  const prefix = Buffer.from(recordPrefix(nonce), 'latin1');
  const records: OutputRecord[] = [];
  let start = 0;
  const keep = (end: number) => {
    if (end <= start) return;
    const [rawOffset, nextOffset] = [offset + start, offset + end];
    records.push({ kind: 'bytes', bytes: chunk.subarray(start, end), rawOffset, nextOffset });
    start = end;
  };
  for (let from = 0; ; ) {
    const at = chunk.indexOf(prefix, from);
    if (at === -1) break;
    const payloadAt = at + prefix.length;
    const end = chunk.subarray(0, payloadAt + RECORD_PAYLOAD_BYTES).indexOf(RECORD_END, payloadAt, 'latin1');
    if (end === -1 && chunk.length < payloadAt + RECORD_PAYLOAD_BYTES) {
      keep(at);
      return { records, held: chunk.subarray(at) };
    }
    const record = end === -1 ? undefined : parseRecord(chunk.toString('latin1', payloadAt, end));
    from = payloadAt;
    if (!record) continue;
    keep(at);
    start = from = end + 1;
    records.push({ ...record, rawOffset: offset + at, nextOffset: offset + start });
  }
  const tailAt = chunk.lastIndexOf(RECORD_END, chunk.length, 'latin1');
  const tail = tailAt >= start ? chunk.subarray(tailAt) : chunk.subarray(chunk.length);
  const mayBegin = tail.length > 0 && tail.length < prefix.length && prefix.indexOf(tail) === 0;
  const held = mayBegin ? tail : chunk.subarray(chunk.length);
  keep(chunk.length - held.length);
  return { records, held };
}

/**
 * Frees the disk under bytes that were read, up to `throughByte`. The file keeps its length, so offsets stay
 * true and no record that is being appended can be cut off, as truncating might. False when the file system
 * or the host cannot do it.
 */
export async function releaseOutput(file: string, throughByte: number): Promise<boolean> {
  if (throughByte <= 0) return true;
  const hole = ['--punch-hole', '--offset', '0', '--length', String(throughByte), file];
  return await new Promise(resolve => {
    execFile('fallocate', hole, { timeout: 30_000 }, error => resolve(error === null));
  });
}

function watchChanges(file: string, ends: AbortSignal[]) {
  let changed = false;
  let wake = () => {};
  const onChange = () => {
    changed = true;
    wake();
  };
  for (const end of ends) end.addEventListener('abort', onChange, { once: true });
  const watcher = startWatcher(file, onChange);
  return {
    clear: () => {
      changed = false;
    },
    /** Returns on a change, an end, or after a while: the poll is a net below inotify. */
    next: async () => {
      if (changed) return;
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>(resolve => {
        wake = resolve;
        timer = setTimeout(resolve, watcher ? POLL_MS : POLL_MS / 10);
      });
      clearTimeout(timer);
      wake = () => {};
    },
    close: () => {
      watcher?.close();
      for (const end of ends) end.removeEventListener('abort', onChange);
    },
  };
}

/** Undefined when the host has no inotify watch to give: then polling alone must do. */
function startWatcher(file: string, onChange: () => void) {
  try {
    const watcher = watch(file, onChange);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
