// Puts a backup back into a new or empty data directory: all of it, or nothing.

import { existsSync, rmSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, mkdtemp, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { createDataDirectory, DataError, lockDataDirectory } from '../data/data.ts';
import { syncDirectory } from '../data/fsync.ts';
import { directories, lockPath } from '../data/paths.ts';
import { type BackupHead, databaseName, kept, keyName, lockName } from './format.ts';
import { type EntrySink, type ReadEntry, readBackup } from './read.ts';
import { openWorkPlace } from './work.ts';

type Progress = (doneBytes: number, totalBytes: number) => void;
export type RestoreWishes = {
  file: string;
  data: string;
  onProgress?: Progress;
  signal?: AbortSignal;
};

type Owner = { uid: number; gid: number };

const PREFIX = '.restore-';
/** On a disk of its own the directory has this from the beginning. */
const NOT_OURS = 'lost+found';

export async function restoreBackup(
  wishes: RestoreWishes,
): Promise<{ head: BackupHead; entries: number; contentBytes: number }> {
  const data = resolve(wishes.data);
  const isThere = await checkTarget(data);
  await refuseDamaged(wishes);
  // Root puts it back for whom the directory belongs to: the service.
  const found = isThere ? await stat(data) : undefined;
  const owner = found && process.getuid?.() === 0 && found.uid !== 0 ? found : undefined;
  if (!isThere) await mkdir(dirname(data), { recursive: true });
  const work = await openWorkPlace(
    isThere ? data : dirname(data),
    isThere ? PREFIX : `.${basename(data)}${PREFIX}`,
  );
  let hold: ReturnType<typeof takeHold> | undefined;
  try {
    if (isThere) hold = takeHold(data);
    const tree = join(work.path, 'data');
    createDataDirectory(tree);
    const { file, signal, onProgress } = wishes;
    const read = await readBackup({
      file,
      signal,
      onProgress: onProgress && ((done, total) => onProgress(total + done, total * 2)),
      work: work.path,
      visit: entry =>
        place(tree, entry, owner).catch(cause => {
          throw cause.code === 'EEXIST' ? refusal(file, [`${entry.name} is in it twice`]) : cause;
        }),
    });
    // Checked before; it can only differ where the file was changed in between.
    if (read.damage.length > 0 || !read.head) throw refusal(wishes.file, read.damage);
    if (owner) await ownDirectories(tree, owner);
    for (const directory of ['', ...directories]) await syncDirectory(join(tree, directory));
    if (isThere) {
      // Commands beside a server ask for no hold: one of them may have made a database here meanwhile.
      if (!(await isEmpty(data))) throw notEmpty(data);
      await moveContents(tree, data);
      await chmod(data, 0o700);
      if (owner) await chown(lockPath(data), owner.uid, owner.gid);
      hold?.keep();
    } else await rename(tree, data);
    await syncDirectory(isThere ? data : dirname(data));
    return { head: read.head, entries: read.entries, contentBytes: read.contentBytes };
  } finally {
    hold?.release();
    await work.clear();
  }
}

/** As a server holds it: none begins in a directory that is about to be filled. Not kept, it leaves no trace. */
function takeHold(data: string): { keep(): void; release(): void } {
  const wasThere = existsSync(lockPath(data));
  const { release } = lockDataDirectory(data);
  let isKept = wasThere;
  return {
    keep() {
      isKept = true;
    },
    release() {
      if (!isKept) rmSync(lockPath(data), { force: true });
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
    name => name === NOT_OURS || name.startsWith(lockName) || name.startsWith(PREFIX),
  );
}

const notEmpty = (data: string) =>
  new DataError(
    `${data} is not empty: restore into a new directory with --data, or move this one out of the way first`,
  );

/** Reads all of it once, before anything is written anywhere but to a list of sums. */
async function refuseDamaged({ file, signal, onProgress }: RestoreWishes): Promise<void> {
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile()) throw new DataError(`there is no file ${file}`);
  const work = await mkdtemp(join(tmpdir(), 'assay-sums-'));
  try {
    const half = onProgress && ((done: number, total: number) => onProgress(done, total * 2));
    const { damage } = await readBackup({
      file,
      work,
      visit: async () => undefined,
      onProgress: half,
      signal,
    });
    if (damage.length > 0) throw refusal(file, damage);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

const refusal = (file: string, damage: readonly string[]) =>
  new DataError(`${file} is damaged and was not restored; nothing was changed.\n  ${damage.join('\n  ')}`);

async function place(tree: string, entry: ReadEntry, owner: Owner | undefined): Promise<EntrySink> {
  const file = await open(join(tree, entry.name), 'wx', 0o600);
  return {
    write: chunk => file.writeFile(chunk),
    async end() {
      await file.chmod(entry.mode & 0o777);
      if (owner) await file.chown(owner.uid, owner.gid);
      // Tens of thousands of logs would wait for the disk one by one; they are not what is missed most.
      if (!entry.name.startsWith(`${kept.logs}/`)) await file.sync();
    },
    close: () => file.close(),
  };
}

async function ownDirectories(path: string, owner: Owner): Promise<void> {
  await chown(path, owner.uid, owner.gid);
  for (const entry of await readdir(path, { withFileTypes: true }))
    if (entry.isDirectory()) await ownDirectories(join(path, entry.name), owner);
}

/** The database first and the key last: in between no server starts on it, nor makes a new one. */
async function moveContents(tree: string, data: string): Promise<void> {
  const names = (await readdir(tree)).filter(name => ![databaseName, keyName, lockName].includes(name));
  for (const name of [databaseName, ...names, keyName])
    if (existsSync(join(tree, name))) await rename(join(tree, name), join(data, name));
}
