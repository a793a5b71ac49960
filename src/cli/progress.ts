// Shows the progress of long work on a terminal, and formats sizes. Prints nothing when the output is not a terminal.

import { isDiskFull } from '../domain/disk-full.ts';
import { DataError } from '../store/data/data.ts';

type Progress = {
  update(doneBytes: number, totalBytes: number): void;
  /** Removes the line. */
  end(): void;
};

const REDRAW_MS = 100;

export function createProgress(what: string, out: NodeJS.WriteStream = process.stderr): Progress {
  if (!out.isTTY) return { update() {}, end() {} };
  const startedAt = performance.now();
  let drawnAt = Number.NEGATIVE_INFINITY;
  return {
    update(doneBytes, totalBytes) {
      const now = performance.now();
      if (now - drawnAt < REDRAW_MS) return;
      drawnAt = now;
      const percent = totalBytes === 0 ? 100 : Math.floor((100 * doneBytes) / totalBytes);
      const seconds = Math.round((now - startedAt) / 1000);
      out.write(`\r\x1b[K${what} ${String(percent).padStart(3)} %  ${sizeText(doneBytes)}  ${seconds} s`);
    },
    end() {
      if (drawnAt > 0) out.write('\r\x1b[K');
    },
  };
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function sizeText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

/** Shows the progress of `work`. SIGINT and SIGTERM abort it, so that it can remove what it wrote. */
export async function withProgress<T>(
  what: string,
  work: (onProgress: (doneBytes: number, totalBytes: number) => void, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const progress = createProgress(what);
  const stopped = new AbortController();
  const stop = () => stopped.abort(new DataError(`${what} was stopped, and left nothing behind`));
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  try {
    return await work(progress.update, stopped.signal);
  } catch (error) {
    throw explain(error, what);
  } finally {
    progress.end();
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}

/** Turns errors of the operating system into messages that say what to do. */
function explain(error: unknown, what: string): unknown {
  const { code, path, message } = error as NodeJS.ErrnoException;
  if (isDiskFull(error)) return new DataError(`${what}: the disk is full; free some space and try again`);
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS' || code === 'SQLITE_READONLY')
    return new DataError(`${what}: this user may not use ${path ?? 'the directory'} (${message})`);
  if (code === 'SQLITE_BUSY') return new DataError(`${what}: the database was busy for too long; try again`);
  return error;
}
