// Git LFS: finds the pointers of a commit and fetches their objects into the mirror. It uses SSH only: git-lfs would
// follow the host to any HTTP address, so the only SSH command it may run is git-lfs-transfer.

import { existsSync, readdirSync, statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { shellQuote } from '../../domain/text/shell.ts';
import { fullHash, GitFailure, runGit } from './git.ts';
import { type FetchMirror, markUsed } from './mirror.ts';
import { withSsh } from './ssh.ts';

export type Pointer = { oid: string; sizeBytes: number };

const DEADLINE_MS = 1_800_000;
const STALL_MS = 60_000;
const WATCH_MS = 1_000;
const ALL_MAX_BYTES = 10 * 1024 ** 3;
const MARKED_AT_ONCE = 1_000;

/** One pointer for each file. A pointer is a blob of 100 to 199 bytes in a fixed format. */
export async function listPointers(mirror: string, hash: string): Promise<Pointer[]> {
  const tree = await runGit(['ls-tree', '-r', '-l', '--full-tree', fullHash(hash)], { repository: mirror });
  const blobs = tree.output.matchAll(/^100\d{3} blob ([0-9a-f]{40}) +1\d\d\t/gm);
  const candidates = Array.from(blobs, ([, blob]) => blob as string);
  if (candidates.length === 0) return [];
  const { output } = await runGit(['cat-file', '--batch'], {
    repository: mirror,
    input: `${candidates.join('\n')}\n`,
  });
  const pointers = output.matchAll(
    /^[0-9a-f]{40} blob \d+\nversion https:\/\/git-lfs\.github\.com\/spec\/v1\noid sha256:([0-9a-f]{64})\nsize (\d{1,15})\n/gm,
  );
  return Array.from(pointers, ([, oid, size]) => ({ oid: oid as string, sizeBytes: Number(size) }));
}

/** Marks the objects of the pointers as used, and returns the pointers without an object. */
export async function markObjects(mirror: string, pointers: readonly Pointer[]): Promise<Pointer[]> {
  const missing: Pointer[] = [];
  for (const [index, pointer] of pointers.entries()) {
    if (index % MARKED_AT_ONCE === MARKED_AT_ONCE - 1) await nextTurn();
    const { oid } = pointer;
    if (!markUsed(join(mirror, 'lfs/objects', oid.slice(0, 2), oid.slice(2, 4), oid))) missing.push(pointer);
  }
  return missing;
}

/** Fetches the LFS objects of the commit. git-lfs verifies their hashes. */
export async function fetchObjects(
  fetch: FetchMirror,
  hash: string,
  missing: readonly Pointer[],
): Promise<void> {
  const bytes = missing.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (bytes > ALL_MAX_BYTES) throw new GitFailure('they are more than 10 GiB');
  if (!(await isInstalled())) throw new GitFailure('git-lfs is not installed on this server');
  const tooMuch = new AbortController();
  // A host may send more than the pointers declare.
  const watch = setInterval(() => {
    if (unfinishedBytes(fetch.mirror) > ALL_MAX_BYTES) tooMuch.abort();
  }, WATCH_MS);
  try {
    await withSsh(fetch.ssh, async session => {
      const command = join(session.directory, 'lfs-ssh');
      const pid = shellQuote(join(session.directory, 'pid'));
      const config = shellQuote(join(session.directory, 'config'));
      await writeFile(
        command,
        `case "$*" in *git-lfs-transfer*) ;; *) exit 1 ;; esac\necho $$ >${pid}\nexec ssh -F ${config} "$@"\n`,
      );
      const environment = { ...session.environment, GIT_SSH_COMMAND: `sh ${shellQuote(command)}` };
      await runGit(fetchArguments(fetch.url, fullHash(hash)), {
        repository: fetch.mirror,
        ssh: { ...session, environment },
        signal: AbortSignal.any([tooMuch.signal, ...(fetch.signal ? [fetch.signal] : [])]),
        deadlineMs: DEADLINE_MS,
        stallMs: STALL_MS,
      });
    });
  } catch (error) {
    if (fetch.signal?.aborted || !(error instanceof GitFailure)) throw error;
    throw new GitFailure('the host did not provide them over SSH (git-lfs-transfer)', error.detail);
  } finally {
    clearInterval(watch);
  }
}

// The URL given here overrides one in the repository's .lfsconfig.
function fetchArguments(url: string, hash: string): string[] {
  const settings = [
    `lfs.url=${url}`,
    `remote.origin.url=${url}`,
    'lfs.ssh.automultiplex=false',
    'lfs.ssh.retries=1',
    'lfs.transfer.maxretries=1',
    'lfs.concurrenttransfers=2',
    'lfs.fetchrecentalways=false',
    'lfs.fetchinclude=',
    'lfs.fetchexclude=',
  ];
  return [...settings.flatMap(setting => ['-c', setting]), 'lfs', 'fetch', 'origin', hash];
}

let installed: Promise<boolean> | undefined;

function isInstalled(): Promise<boolean> {
  installed ??= runGit(['lfs', 'version'], {}).then(
    () => true,
    () => {
      // It may be installed while the server runs.
      installed = undefined;
      return false;
    },
  );
  return installed;
}

function unfinishedBytes(mirror: string): number {
  return ['lfs/tmp', 'lfs/incomplete'].reduce((sum, name) => {
    const directory = join(mirror, name);
    if (!existsSync(directory)) return sum;
    const sizes = readdirSync(directory).map(
      file => statSync(join(directory, file), { throwIfNoEntry: false })?.size ?? 0,
    );
    return sizes.reduce((all, size) => all + size, sum);
  }, 0);
}
