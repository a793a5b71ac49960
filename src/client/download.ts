// Downloads files into a directory: all of them or none. Names come from the server, so each is checked: nothing is written
// outside of the directory.

import { createHash, randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { lstat, mkdir, open, rename, rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { dirname, join, resolve } from 'node:path';
import { CommandError } from '../command/command.ts';
import { createProgress } from '../command/progress.ts';
import { copyBody } from './connection.ts';
import { EXIT, refused, unreachable } from './exit-status.ts';
import { plain } from './output.ts';

export type Download = {
  /** Relative, with slashes. */
  path: string;
  sizeBytes: number;
  /** Null if the server has not computed it yet. */
  sha256: string | null;
  open(signal?: AbortSignal): Promise<IncomingMessage>;
};

const PARALLEL = 4;
/** Names that stand for devices on Windows, with any extension. */
const DEVICE =
  /^(con|prn|aux|nul|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3]|conin\$|conout\$)(\..*)?$/i;

/** Whether a name from a server stays below a directory, on every system. */
export function isSafePath(path: string): boolean {
  if (/[\u0000-\u001f\u007f\\]/.test(path) || /^[a-z]:/i.test(path)) return false;
  return path
    .split('/')
    .every(name => name !== '' && name !== '.' && name !== '..' && !DEVICE.test(name.trim()));
}

/** Writes the files below the directory, which is created. They get their names when all of them are complete. */
export async function downloadFiles(directory: string, files: readonly Download[]): Promise<void> {
  const root = resolve(directory);
  for (const { path } of files) {
    if (!isSafePath(path))
      throw refused(
        `the server sent the name ${JSON.stringify(plain(path))}, which is not safe: nothing was written`,
      );
    await refuseObstacles(root, path);
  }
  const created = await mkdir(root, { recursive: true }).catch(explain);
  const staging = join(root, `.assay-${randomBytes(6).toString('hex')}`);
  const stop = new AbortController();
  const leave = () => {
    rmSync(staging, { recursive: true, force: true });
    process.exit(EXIT.interrupted);
  };
  process.once('SIGINT', leave).once('SIGTERM', leave);
  const progress = createProgress('Downloading');
  try {
    await mkdir(staging).catch(explain);
    const total = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    let done = 0;
    const waiting = files.map((file, at) => ({ file, to: join(staging, String(at)) }));
    const work = async () => {
      for (let next = waiting.shift(); next && !stop.signal.aborted; next = waiting.shift())
        await downloadFile(next.file, next.to, stop.signal, bytes => {
          done += bytes;
          progress.update(done, total);
        });
    };
    let failure: unknown;
    const fail = (error: unknown) => {
      failure ??= error;
      stop.abort();
    };
    await Promise.all(Array.from({ length: PARALLEL }, () => work().catch(fail)));
    if (failure !== undefined) throw failure;
    for (const [at, { path }] of files.entries()) {
      const target = join(root, ...path.split('/'));
      await mkdir(dirname(target), { recursive: true }).catch(explain);
      await rename(join(staging, String(at)), target).catch(explain);
    }
  } catch (error) {
    // A directory that was there before stays.
    if (created !== undefined) await rm(created, { recursive: true, force: true });
    throw error;
  } finally {
    progress.end();
    process.off('SIGINT', leave).off('SIGTERM', leave);
    await rm(staging, { recursive: true, force: true });
  }
}

async function downloadFile(
  { path, sizeBytes, sha256, open: openBody }: Download,
  to: string,
  signal: AbortSignal,
  onBytes: (bytes: number) => void,
): Promise<void> {
  const response = await openBody(signal);
  const file = await open(to, 'wx').catch(explain);
  const hash = createHash('sha256');
  let written = 0;
  try {
    await copyBody(response, async chunk => {
      signal.throwIfAborted();
      hash.update(chunk);
      written += chunk.length;
      await file.write(chunk).catch(explain);
      onBytes(chunk.length);
    });
  } finally {
    await file.close().catch(explain);
  }
  if (written !== sizeBytes || (sha256 !== null && hash.digest('hex') !== sha256))
    throw unreachable(`${plain(path)} did not arrive as the server has it: try again`);
}

/** A link in the directory must not lead a file out of it, and a directory cannot be replaced. */
async function refuseObstacles(root: string, path: string): Promise<void> {
  const names = path.split('/');
  for (let depth = 1; depth <= names.length; depth += 1) {
    const found = await lstat(join(root, ...names.slice(0, depth))).catch(() => undefined);
    if (!found) return;
    const isLast = depth === names.length;
    if (isLast ? found.isDirectory() : !found.isDirectory())
      throw refused(
        `${plain(names.slice(0, depth).join('/'))} is there already, and is ${isLast ? 'a directory' : 'a link or a file'}: choose another directory`,
      );
  }
}

const PROBLEMS: Record<string, string> = {
  ENOSPC: 'the disk is full: nothing was kept. Free some space, or choose another directory',
  EDQUOT: 'your disk quota is used up: nothing was kept. Choose another directory',
  EACCES: 'you may not write there: choose another directory',
  EROFS: 'the file system is read-only: choose another directory',
};

function explain(error: NodeJS.ErrnoException): never {
  throw new CommandError(
    PROBLEMS[error.code ?? ''] ?? `the files cannot be written: ${error.message}`,
    EXIT.errored,
  );
}
