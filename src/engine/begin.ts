// The directory in which a container that was started early finds what to run: a named pipe that the container waits for,
// and the entry that the server writes before it signals. See domain/container/waiting-plan.ts.
import { execFile } from 'node:child_process';
import { chmodSync, closeSync, constants, existsSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { chmod, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { BEGIN_ENTRY, BEGIN_PIPE } from '../domain/container/waiting-plan.ts';

const PIPE_DEADLINE_MS = 10_000;

/** Where it is among the files of a job. */
export const beginDirectory = (jobDirectory: string) => join(jobDirectory, 'begin');
const pipeIn = (jobDirectory: string) => join(beginDirectory(jobDirectory), BEGIN_PIPE);
const entryIn = (jobDirectory: string) => join(beginDirectory(jobDirectory), BEGIN_ENTRY);

/** Any user of the container can read it. On the host, the data directory protects it. */
export function createBegin(jobDirectory: string): void {
  mkdirSync(beginDirectory(jobDirectory));
  chmodSync(beginDirectory(jobDirectory), 0o755);
}

/** The container waits for it, so that it can be started meanwhile. */
export async function createPipe(jobDirectory: string): Promise<void> {
  // With its mode, so that it can be read as soon as it exists.
  await promisify(execFile)('mkfifo', ['-m', '644', pipeIn(jobDirectory)], { timeout: PIPE_DEADLINE_MS });
}

export const hasBegin = (jobDirectory: string) => existsSync(beginDirectory(jobDirectory));

/** Written whole or not at all, also if the server is killed. */
export async function writeEntry(jobDirectory: string, entry: string): Promise<void> {
  const draft = `${entryIn(jobDirectory)}.draft`;
  await writeFile(draft, entry, { mode: 0o600 });
  await chmod(draft, 0o644);
  await rename(draft, entryIn(jobDirectory));
}

/** Whether the container waits and has nothing to run. It will never run anything by itself. */
export const hasNoEntry = (jobDirectory: string) =>
  hasBegin(jobDirectory) && !existsSync(entryIn(jobDirectory));

/**
 * Lets the container run its entry. It does so once, however often this is called. Keep the result until the container has
 * printed something: the line is lost if the pipe is closed before it is read.
 */
export function signalBegin(jobDirectory: string): Disposable {
  // Does not block, because it is opened for reading too.
  const pipe = openSync(pipeIn(jobDirectory), constants.O_RDWR);
  writeSync(pipe, '\n');
  return { [Symbol.dispose]: () => closeSync(pipe) };
}

export const removeBegin = (jobDirectory: string) =>
  rm(beginDirectory(jobDirectory), { recursive: true, force: true });
