// The file that a container writes its output to: creates it, follows it record by record, and frees the disk space of
// what was read. The caller masks and stores the output.
import { execFile } from 'node:child_process';
import { watch } from 'node:fs';
import { type FileHandle, lstat, open } from 'node:fs/promises';
import {
  type EntryRecord,
  parseRecord,
  RECORD_END,
  RECORD_PAYLOAD_BYTES,
  recordPrefix,
} from '../domain/container/entry-script.ts';

const CHUNK_BYTES = 256 * 1024;
const POLL_MS = 1_000;
const HOLE_BYTES = 1024 ** 3;

/** Starts at `rawOffset` in the file. The next record starts at `nextOffset`. */
export type OutputRecord = (
  | { kind: 'bytes'; bytes: Buffer }
  | EntryRecord
  /** A process in the container truncated or extended the file: nothing after this can be trusted. */
  | { kind: 'tampered'; reason: 'shrank' | 'stretched' }
) & { rawOffset: number; nextOffset: number };

type FollowOptions = {
  file: string;
  fromByte: number;
  nonce: string;
  /** Stops at once, without a last record. */
  signal: AbortSignal;
  /** Aborted when the container no longer runs. Following ends after the rest of the file. */
  gone: AbortSignal;
};

/** Creates the file, writable for any user of the container. On the host the data directory protects it. */
export async function createOutput(file: string): Promise<void> {
  const handle = await open(file, 'a', 0o666);
  try {
    await handle.chmod(0o666);
  } finally {
    await handle.close();
  }
}

/** Ends after the exit record or a tampered one, or at the end of the file when the container is gone. */
export async function* followOutput(options: FollowOptions): AsyncGenerator<OutputRecord> {
  const { file, nonce, signal, gone } = options;
  const handle = await open(file, 'r');
  const changes = watchChanges(file, [signal, gone]);
  try {
    let held: Buffer = Buffer.alloc(0);
    let position = options.fromByte;
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

/** A file extended by a hole would take years to read. Real output has disk blocks, even on compressing file systems. */
function tampering(position: number, size: number, blocks: number): 'shrank' | 'stretched' | undefined {
  if (size < position) return 'shrank';
  const unread = size - position;
  return unread > HOLE_BYTES && blocks * 512 < unread / 1000 ? 'stretched' : undefined;
}

async function readSome(handle: FileHandle, position: number, size: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size - position));
  if (buffer.length === 0) return buffer;
  const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
  return buffer.subarray(0, bytesRead);
}

/** Splits a chunk into bytes and records. Keeps back only what may be the start of a record. */
function scanRecords(chunk: Buffer, nonce: string, offset: number) {
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
 * Frees the disk space of the bytes before `throughByte`. The file keeps its length: offsets stay valid, and no record that
 * is being appended is lost. False if the file system or the host does not support it.
 */
export async function releaseOutput(file: string, throughByte: number): Promise<boolean> {
  if (throughByte <= 0) return true;
  const hole = ['--punch-hole', '--offset', '0', '--length', String(throughByte), file];
  return await new Promise(resolve => {
    execFile('fallocate', hole, { timeout: 30_000 }, error => resolve(error === null));
  });
}

/** Whether the file has any content. Waits for it, for up to a second. */
export async function waitForContent(file: string): Promise<boolean> {
  const changes = watchChanges(file, []);
  try {
    if (await hasContent(file)) return true;
    await changes.next();
    return await hasContent(file);
  } finally {
    changes.close();
  }
}

const hasContent = (file: string) =>
  lstat(file).then(
    ({ size }) => size > 0,
    () => false,
  );

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
    /** Resolves on a change, on an end, and after a while, in case inotify misses a change. */
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

/** Undefined if the host has no inotify watches left. Then the file is polled. */
function startWatcher(file: string, onChange: () => void) {
  try {
    const watcher = watch(file, onChange);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
