// Shows the progress of work on the data directory, and explains why it failed.

import { createProgress } from '../command/progress.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import { DataError } from '../store/data/data.ts';

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
