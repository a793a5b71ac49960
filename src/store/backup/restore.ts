// Restores a backup into a new or empty data directory: all of it, or nothing.

import { existsSync, rmSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { syncDirectory } from '../../fsync.ts';
import { createDataDirectory, DataError, lockDataDirectory } from '../data/data.ts';
import { directories, lockPath } from '../data/paths.ts';
import { type BackupHead, databaseName, keyName, type ReadOptions, unpackArchive } from './archive.ts';
import { inWorkDirectory } from './work-directory.ts';

const PREFIX = '.restore-';
const LOCK_NAME = lockPath('');
/** On a disk of its own the directory has this from the beginning. */
const NOT_OURS = 'lost+found';

export async function restoreBackup(
  options: ReadOptions & { data: string },
): Promise<{ head: BackupHead; entries: number; contentBytes: number }> {
  const { file } = options;
  const data = resolve(options.data);
  const isThere = await checkTarget(data);
  if (!(await stat(file).catch(() => undefined))?.isFile()) throw new DataError(`there is no file ${file}`);
  const made = isThere ? undefined : await mkdir(dirname(data), { recursive: true });
  // Inside a directory that is there: it may be a disk of its own.
  const [parent, prefix] = isThere ? [data, PREFIX] : [dirname(data), `.${basename(data)}${PREFIX}`];
  try {
    return await inWorkDirectory(parent, prefix, async work => {
      using hold = isThere ? holdTarget(data) : undefined;
      const tree = join(work, 'data');
      createDataDirectory(tree);
      // Root restores for the user that the directory belongs to: the service.
      const found = isThere ? await stat(data) : undefined;
      const owner = found && process.getuid?.() === 0 && found.uid !== 0 ? found : undefined;
      const { damage, head, entries, contentBytes } = await unpackArchive(options, {
        work,
        tree,
        async finish(file, name) {
          if (owner) await file.chown(owner.uid, owner.gid);
          // Tens of thousands of logs would wait for the disk one by one; they are not what is missed most.
          if (!name.startsWith('logs/')) await file.sync();
        },
      });
      if (damage.length > 0 || !head)
        throw new DataError(
          `${file} is damaged and was not restored; nothing was changed.\n  ${damage.join('\n  ')}`,
        );
      for (const directory of ['', ...directories]) {
        if (owner) await chown(join(tree, directory), owner.uid, owner.gid);
        await syncDirectory(join(tree, directory));
      }
      if (hold) {
        // Commands beside a server ask for no hold: one of them may have made a database here meanwhile.
        if (!(await isEmpty(data))) throw notEmpty(data);
        await moveContents(tree, data);
        await chmod(data, 0o700);
        if (owner) await chown(lockPath(data), owner.uid, owner.gid);
        hold.isKept = true;
      } else await rename(tree, data);
      await syncDirectory(isThere ? data : dirname(data));
      return { head, entries, contentBytes };
    });
  } catch (error) {
    if (made) await rm(made, { recursive: true, force: true });
    throw error;
  }
}

/** As a server holds it: none starts in a directory that is about to be filled. Unless kept, the lock leaves no trace. */
function holdTarget(data: string): Disposable & { isKept: boolean } {
  const isKept = existsSync(lockPath(data));
  const { release } = lockDataDirectory(data);
  return {
    isKept,
    [Symbol.dispose]() {
      if (!this.isKept) rmSync(lockPath(data), { force: true });
      release();
    },
  };
}

/** Whether the directory is there, and empty. */
async function checkTarget(data: string): Promise<boolean> {
  const found = await lstat(data).catch(() => undefined);
  if (!found) return false;
  if (!found.isDirectory()) throw new DataError(`${data} is not a directory: choose another with --data`);
  if (await isEmpty(data)) return true;
  if (existsSync(lockPath(data))) lockDataDirectory(data).release();
  throw notEmpty(data);
}

async function isEmpty(data: string): Promise<boolean> {
  return (await readdir(data)).every(
    name => name === NOT_OURS || name.startsWith(LOCK_NAME) || name.startsWith(PREFIX),
  );
}

const notEmpty = (data: string) =>
  new DataError(
    `${data} is not empty: restore into a new directory with --data, or move this one out of the way first`,
  );

/** The database first and the key last: in between no server starts on it, nor makes a new one. */
async function moveContents(tree: string, data: string): Promise<void> {
  const names = (await readdir(tree)).filter(name => name !== databaseName && name !== keyName);
  for (const name of [databaseName, ...names, keyName])
    if (existsSync(join(tree, name))) await rename(join(tree, name), join(data, name));
}
