// Git bundles of working trees, as `POST …/snapshots` takes them.
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateSync, gzipSync } from 'node:zlib';
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

const types = { commit: 1, tree: 2, blob: 3, tag: 4 } as const;

/** An object of git, or a delta: `base` is the hash of the object that it changes. */
export type PackedObject =
  | { type: keyof typeof types; data: Buffer | string }
  | { type: 'delta'; base: string; data: Buffer };

export function hashOf({ type, data }: { type: string; data: Buffer | string }): string {
  const bytes = Buffer.from(data);
  return createHash('sha1').update(`${type} ${bytes.length}\0`).update(bytes).digest('hex');
}

export const treeOf = (...entries: [mode: string, name: string, hash: string][]) => ({
  type: 'tree' as const,
  data: Buffer.concat(
    entries.flatMap(([mode, name, hash]) => [Buffer.from(`${mode} ${name}\0`), Buffer.from(hash, 'hex')]),
  ),
});

export const commitOf = (tree: string, ...parents: string[]) => ({
  type: 'commit' as const,
  data: [
    `tree ${tree}`,
    ...parents.map(parent => `parent ${parent}`),
    'author Eve <eve@example.org> 1700000000 +0000',
    'committer Eve <eve@example.org> 1700000000 +0000',
    '',
    'Working tree',
    '',
  ].join('\n'),
});

/** The delta that makes `copies` copies of the first 64 KiB of its base. */
export function copyingDelta(baseBytes: number, copies: number): Buffer {
  // Without an offset and a size, a copy begins at 0 and has 64 KiB.
  return Buffer.concat([varint(baseBytes), varint(copies * 0x10000), Buffer.alloc(copies, 0x80)]);
}

/** A pack of any objects, also of those that git would not write. */
export function packOf(objects: readonly PackedObject[], count = objects.length): Buffer {
  const header = Buffer.alloc(12);
  header.write('PACK');
  header.writeUInt32BE(2, 4);
  header.writeUInt32BE(count, 8);
  const entries = objects.flatMap(object => {
    const data = Buffer.from(object.data);
    const isDelta = object.type === 'delta';
    return [
      entryHeader(isDelta ? 7 : types[object.type], data.length),
      ...(isDelta ? [Buffer.from(object.base, 'hex')] : []),
      deflateSync(data),
    ];
  });
  const bytes = Buffer.concat([header, ...entries]);
  return Buffer.concat([bytes, createHash('sha1').update(bytes).digest()]);
}

function entryHeader(type: number, size: number): Buffer {
  const bytes = [(type << 4) | (size & 15)];
  for (let rest = Math.floor(size / 16); rest > 0; rest = Math.floor(rest / 128)) {
    bytes[bytes.length - 1]! |= 0x80;
    bytes.push(rest % 128);
  }
  return Buffer.from(bytes);
}

function varint(value: number): Buffer {
  const bytes = [value % 128];
  for (let rest = Math.floor(value / 128); rest > 0; rest = Math.floor(rest / 128)) {
    bytes[bytes.length - 1]! |= 0x80;
    bytes.push(rest % 128);
  }
  return Buffer.from(bytes);
}

/** A bundle with any header: the lines after the signature, and a pack. */
export const bundleWith = (lines: readonly string[], pack: Buffer, signature = '# v2 git bundle') =>
  Buffer.concat([Buffer.from(`${[signature, ...lines].join('\n')}\n\n`), pack]);

/** A bundle of a commit and what it needs. */
export function bundleOfObjects(commit: PackedObject & { data: string }, ...others: PackedObject[]): Buffer {
  return bundleWith([`${hashOf(commit)} refs/assay/snapshot`], packOf([commit, ...others]));
}

const EMPTY_TREE = treeOf();

/** Bundles that must be refused, by what is wrong with them. */
export function hostileBundles(): Record<string, Buffer> {
  const blob = { type: 'blob', data: 'text\n' } as const;
  const zeros = { type: 'blob', data: Buffer.alloc(0x10000) } as const;
  const entry = (mode: string, name: string, target: PackedObject = blob) => {
    const tree = treeOf([mode, name, hashOf(target)]);
    return bundleOfObjects(commitOf(hashOf(tree)), tree, target);
  };
  const commit = commitOf(hashOf(EMPTY_TREE));
  const ref = `${hashOf(commit)} refs/assay/snapshot`;
  const pack = packOf([commit, EMPTY_TREE]);
  const tag = {
    type: 'tag',
    data: `object ${hashOf(commit)}\ntype commit\ntag v1\ntagger Eve <eve@example.org> 1700000000 +0000\n\nText\n`,
  } as const;
  const missing = '1'.repeat(40);
  const bomb = { type: 'delta', base: hashOf(zeros), data: copyingDelta(0x10000, 0x10000) } as const;
  return {
    'is not a bundle': gzipSync('source'),
    'is of another version': bundleWith([ref], pack, '# v4 git bundle'),
    'has no pack': bundleWith([ref], Buffer.alloc(0)),
    'has a pack of zeros': bundleWith([ref], Buffer.alloc(1000)),
    'has no ref': bundleWith([], pack),
    'has a branch as its ref': bundleWith([`${hashOf(commit)} refs/heads/main`], pack),
    'has two refs': bundleWith([ref, `${hashOf(commit)} refs/heads/main`], pack),
    'has the same ref twice': bundleWith([ref, ref], pack),
    'has a ref outside of refs': bundleWith([`${hashOf(commit)} ../../config`], pack),
    'has a filter': bundleWith(['@filter=blob:none', ref], pack, '# v3 git bundle'),
    'has an unknown capability': bundleWith(['@object-format=sha256', ref], pack, '# v3 git bundle'),
    'has a header without end': Buffer.from(`# v2 git bundle\n${'-'.repeat(300_000)}`),
    'has a ref that is a tree': bundleWith([`${hashOf(EMPTY_TREE)} refs/assay/snapshot`], pack),
    'has a ref that is a tag': bundleWith(
      [`${hashOf(tag)} refs/assay/snapshot`],
      packOf([commit, EMPTY_TREE, tag]),
    ),
    'does not have the commit of its ref': bundleWith([`${missing} refs/assay/snapshot`], pack),
    'lacks the tree of its commit': bundleOfObjects(commitOf(missing)),
    'lacks a file': bundleOfObjects(
      commitOf(hashOf(treeOf(['100644', 'a', missing]))),
      treeOf(['100644', 'a', missing]),
    ),
    'lacks a parent': bundleOfObjects(commitOf(hashOf(EMPTY_TREE), missing), EMPTY_TREE),
    'claims four billion objects': bundleWith([ref], packOf([commit], 0xffff_ffff)),
    'claims more objects than it has': bundleWith([ref], packOf([commit, EMPTY_TREE], 3)),
    'has a damaged checksum': bundleWith([ref], Buffer.concat([pack.subarray(0, -1), Buffer.from([0])])),
    'has a delta without its base': bundleWith(
      [ref],
      packOf([commit, EMPTY_TREE, { type: 'delta', base: missing, data: copyingDelta(0x10000, 1) }]),
    ),
    'has a file .git': entry('100644', '.git'),
    'has a directory .GIT': entry('40000', '.GIT', EMPTY_TREE),
    'has a file that git takes for .git on some systems': entry('100644', '.g\u200cit'),
    'has a name with dots': entry('100644', '..'),
    'has a name with a slash': entry('100644', 'a/b'),
    'has an empty name': entry('100644', ''),
    'has a symbolic link .gitmodules': entry('120000', '.gitmodules', { type: 'blob', data: '/etc/passwd' }),
    'has a submodule with an option as its URL': entry('100644', '.gitmodules', {
      type: 'blob',
      data: '[submodule "a"]\n\tpath = a\n\turl = --upload-pack=touch /tmp/x\n',
    }),
    'has a submodule outside': entry('100644', '.gitmodules', {
      type: 'blob',
      data: '[submodule "../../x"]\n\tpath = a\n\turl = git@git.example.org:a.git\n',
    }),
    'has a commit that is not one': bundleOfObjects({ type: 'commit', data: 'tree of nothing\n' }),
    'becomes 4 GiB from a few KB': bundleOfObjects(commit, EMPTY_TREE, zeros, bomb),
  };
}
