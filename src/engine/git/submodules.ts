// Reads what a commit requires besides its own files: its submodules, and whether it uses Git LFS.

import type { Submodule } from '../../domain/submodules.ts';
import { fullHash, GitFailure, runGit } from './git.ts';

type CommitRequirements = {
  submodules: Submodule[];
  /** Whether a .gitattributes file names the filter of Git LFS. */
  hasLfs: boolean;
};

const GITMODULES_MAX_BYTES = 256 * 1024;

export async function readRequirements(mirror: string, hash: string): Promise<CommitRequirements> {
  const [submodules, hasLfs] = await Promise.all([readSubmodules(mirror, hash), findLfs(mirror, hash)]);
  return { submodules, hasLfs };
}

// The submodules that .gitmodules describes and that the commit's tree has at the same path.
async function readSubmodules(mirror: string, hash: string): Promise<Submodule[]> {
  const file = `${fullHash(hash)}:.gitmodules`;
  const { output } = await runGit(['cat-file', '--batch-check'], { repository: mirror, input: `${file}\n` });
  const size = /^[0-9a-f]+ blob (\d+)$/.exec(output.trim())?.[1];
  if (size === undefined) return [];
  if (Number(size) > GITMODULES_MAX_BYTES)
    throw new GitFailure('The file .gitmodules is too large to be read.');
  const described = await readDescriptions(mirror, file);
  const paths = described
    .map(({ path }) => path)
    .filter(path => path !== '' && !/^\/|(?:^|\/)\.{1,2}(?:\/|$)/.test(path));
  if (paths.length === 0) return [];
  const tree = await runGit(['--literal-pathspecs', 'ls-tree', '-z', '--full-tree', hash, '--', ...paths], {
    repository: mirror,
  });
  const pinned = new Map(
    tree.output.split('\0').flatMap(entry => {
      const [, commit, path] = /^160000 commit ([0-9a-f]{40})\t([\s\S]+)$/.exec(entry) ?? [];
      return commit && path ? [[path, commit] as const] : [];
    }),
  );
  return described.flatMap(submodule => {
    const commit = pinned.get(submodule.path);
    return commit ? [{ ...submodule, hash: commit }] : [];
  });
}

async function readDescriptions(mirror: string, file: string): Promise<Omit<Submodule, 'hash'>[]> {
  const { output, messages } = await runGit(
    ['config', '--no-includes', `--blob=${file}`, '-z', '--get-regexp', '^submodule\\..*\\.(path|url)$'],
    { repository: mirror, acceptedExitCodes: [0, 1, 3, 128] },
  );
  if (messages !== '')
    throw new GitFailure('The file .gitmodules cannot be read: correct it in the repository.');
  const found = new Map<string, { name: string; path: string; url: string }>();
  for (const entry of output.split('\0')) {
    const [, name, field, value] = /^submodule\.([\s\S]+)\.(path|url)\n([\s\S]*)$/.exec(entry) ?? [];
    if (name === undefined || value === undefined) continue;
    const one = found.get(name) ?? { name, path: '', url: '' };
    found.set(name, {
      ...one,
      [field as 'path' | 'url']: field === 'path' ? value.replace(/\/+$/, '') : value,
    });
  }
  return [...found.values()];
}

async function findLfs(mirror: string, hash: string): Promise<boolean> {
  const { exitCode } = await runGit(
    [
      'grep',
      '--quiet',
      // Starting threads takes longer than reading a few files.
      '--threads=1',
      '--fixed-strings',
      '-e',
      'filter=lfs',
      fullHash(hash),
      '--',
      ':(glob)**/.gitattributes',
    ],
    { repository: mirror, acceptedExitCodes: [0, 1] },
  );
  return exitCode === 0;
}
