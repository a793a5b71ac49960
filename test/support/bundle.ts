// Git bundles of working trees, as `POST …/snapshots` takes them.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { addCommits, type CommitDescription, git } from './repository.ts';

/** A commit with an empty tree and no parents. Made with `git bundle create FILE refs/assay/snapshot`. */
export const smallBundle = Buffer.from(
  'IyB2MiBnaXQgYnVuZGxlCmE5ZGNkOTQwYmIxY2YyODMzNDJjZmIzMGE1NzI5MjAwNjk1Nzk1OWQgcmVmcy9hc3NheS9zbmFwc2hvdAoKUEFDSwAAAAIAAAACmwl4nCspSk1VMEmyMDJNSTYzMUpOMktNskw0MDNINTVJSrNIMbM0srBIS0pNNbE0MOFKLC3JyC9ScExJVLBJTEl0SK1IzC3ISdXLL0q3UzA0N4ACBW0QyZWcn5ubWVKSSrQGrvD8ouzMvHSFEqCruAAK2y2BIHicAwAAAAABLGFGNSr+9F8ItPNozjJeBYbopys=',
  'base64',
);

/** Adds a commit to a clone of the repository, and bundles it without what `base` contains; all of it if it is empty. */
export function bundleOf(
  repository: string,
  commit: CommitDescription,
  base = git(repository, 'rev-parse', 'main'),
): { ref: string; bytes: Buffer } {
  const directory = mkdtempSync(join(tmpdir(), 'assay-bundle-'));
  try {
    const clone = join(directory, 'clone.git');
    git(directory, 'clone', '--quiet', '--bare', repository, clone);
    const parent = base === '' ? 'none' : base;
    const [ref = ''] = addCommits(clone, [
      { message: 'Working tree\n', branch: 'snapshot', parent, ...commit },
    ]);
    git(clone, 'update-ref', 'refs/assay/snapshot', ref);
    const without = base === '' ? [] : [`^${base}`];
    git(clone, 'bundle', 'create', '--quiet', '../bundle', 'refs/assay/snapshot', ...without);
    return { ref, bytes: readFileSync(join(directory, 'bundle')) };
  } finally {
    rmSync(directory, { recursive: true });
  }
}
