// Bundles of working trees: unpacked with what they borrow from the mirror, or refused without a trace.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  BundleFailure,
  listBases,
  type UnpackSnapshot,
  unpackSnapshot,
} from '../../../src/engine/git/snapshot.ts';
import {
  bundleOf,
  bundleOfObjects,
  bundleWith,
  commitOf,
  copyingDelta,
  hashOf,
  hostileBundles,
  packOf,
  smallBundle,
  treeOf,
} from '../../support/bundle.ts';
import { addCommits, createRepository, git } from '../../support/repository.ts';

let place: string;
let mirror: string;
let base: string;
before(() => {
  place = mkdtempSync(join(tmpdir(), 'assay-snapshot-'));
  mirror = join(place, 'mirrors', 'mirror.git');
  const text = Array.from({ length: 5_000 }, (_, line) => `${line}\n`).join('');
  [base = ''] = createRepository(mirror, [{ message: 'First\n', files: { a: text, 'dir/b': 'b\n' } }]);
  mkdirSync(join(place, 'snapshots'));
});
after(() => rmSync(place, { recursive: true }));

let count = 0;
async function unpack(bytes: Buffer, options: Partial<UnpackSnapshot> = {}) {
  const bundle = join(place, 'bundle');
  writeFileSync(bundle, bytes);
  const repository = join(place, 'snapshots', `${++count}.git`);
  const ref = await unpackSnapshot({
    bundle,
    mirror,
    repository,
    hasFreeSpace: () => true,
    signal: new AbortController().signal,
    ...options,
  });
  return { repository, ref };
}

const filesOf = (directory: string) => readdirSync(directory, { recursive: true }).toSorted();
const failsWith = (reason: string) => (error: unknown) => {
  assert.ok(error instanceof BundleFailure, String(error));
  assert.equal(error.reason, reason, error.message);
  return true;
};

/** It is refused for this reason, and leaves nothing behind. */
async function refused(bytes: Buffer, reason: string, options: Partial<UnpackSnapshot> = {}): Promise<void> {
  const before = [filesOf(mirror), filesOf(join(place, 'snapshots'))];
  await assert.rejects(unpack(bytes, options), failsWith(reason));
  assert.deepEqual([filesOf(mirror), filesOf(join(place, 'snapshots'))], before);
}

test('A bundle of what changed is unpacked into a repository that borrows the rest from the mirror', async () => {
  const before = filesOf(mirror);
  const text = Array.from({ length: 5_000 }, (_, line) => `${line}${line === 7 ? ' changed' : ''}\n`).join(
    '',
  );
  const { ref, bytes } = bundleOf(mirror, { files: { a: text, 'dir/b': null, new: 'new\n' } });
  assert.ok(bytes.length < 2_000, `${bytes.length} bytes`);
  const unpacked = await unpack(bytes);
  assert.equal(unpacked.ref, ref);
  assert.equal(git(unpacked.repository, 'diff', '--name-status', base, ref), 'M\ta\nD\tdir/b\nA\tnew');
  assert.equal(git(unpacked.repository, 'rev-parse', 'refs/assay/snapshot'), ref);
  assert.deepEqual(filesOf(mirror), before, 'the mirror got something');
  const packs = join(unpacked.repository, 'objects/pack');
  // Containers read it as another user.
  for (const path of [packs, ...readdirSync(packs).map(name => join(packs, name))])
    assert.equal(statSync(path).mode & 0o004, 0o004, path);
});

test('A bundle of everything needs no mirror', async () => {
  const unpacked = await unpack(smallBundle, { mirror: join(place, 'nowhere.git') });
  assert.equal(git(unpacked.repository, 'log', '--format=%s', unpacked.ref), 'Working tree');
  assert.deepEqual(await listBases(unpacked.repository, mirror), []);
});

test('A bundle of version 3 is taken if it leaves nothing out', async () => {
  const commit = commitOf(hashOf(treeOf()));
  const lines = ['@object-format=sha1', `${hashOf(commit)} refs/assay/snapshot`];
  const { ref } = await unpack(bundleWith(lines, packOf([commit, treeOf()]), '# v3 git bundle'));
  assert.equal(ref, hashOf(commit));
});

test('Only commits of branches and tags count as the ones that a working tree builds on', async () => {
  const [hidden = ''] = addCommits(mirror, [{ message: 'Fork\n', branch: 'fork', files: { c: 'c\n' } }]);
  git(mirror, 'update-ref', 'refs/assay/pull/1', hidden);
  git(mirror, 'update-ref', '-d', 'refs/heads/fork');
  const onFork = await unpack(bundleOf(mirror, { files: { new: 'new\n' } }, hidden).bytes);
  assert.deepEqual(await listBases(onFork.repository, mirror), []);
  const onMain = await unpack(bundleOf(mirror, { files: { new: 'new\n' } }).bytes);
  assert.deepEqual(await listBases(onMain.repository, mirror), [base]);
});

describe('A bundle is refused, and nothing is left, if it', () => {
  for (const [what, bytes] of Object.entries(hostileBundles())) test(what, () => refused(bytes, 'invalid'));

  test('ends anywhere before its end', async () => {
    const { bytes } = bundleOf(mirror, { files: { new: 'new\n' } });
    for (let at = 0; at < bytes.length; at += Math.ceil(bytes.length / 20))
      await refused(bytes.subarray(0, at), 'invalid');
    await refused(bytes.subarray(0, -1), 'invalid');
  });

  test('builds on a commit that the mirror does not have, or on something else', async () => {
    const commit = commitOf(hashOf(treeOf()), '1'.repeat(40));
    const ref = `${hashOf(commit)} refs/assay/snapshot`;
    const pack = packOf([commit, treeOf()]);
    await refused(bundleWith([`-${'1'.repeat(40)} gone`, ref], pack), 'unknown_base');
    const blob = git(mirror, 'rev-parse', `${base}:a`);
    await refused(bundleWith([`-${blob} a file`, ref], pack), 'unknown_base');
    await refused(bundleOf(mirror, { files: { new: '' } }).bytes, 'unknown_base', {
      mirror: join(place, 'nowhere.git'),
    });
  });

  test('has no commit of its own', () =>
    refused(bundleWith([`-${base} base`, `${base} refs/assay/snapshot`], packOf([treeOf()])), 'invalid'));

  test('has a file of more than 256 MiB', async () => {
    const blob = { type: 'blob', data: Buffer.alloc(257 * 1024 ** 2) } as const;
    const tree = treeOf(['100644', 'zeros', hashOf(blob)]);
    const bytes = bundleOfObjects(commitOf(hashOf(tree)), tree, blob);
    assert.ok(bytes.length < 1024 ** 2);
    await refused(bytes, 'invalid');
  });

  test('would keep git busy for longer than the deadline', async () => {
    const zeros = { type: 'blob', data: Buffer.alloc(0x10000) } as const;
    const commit = commitOf(hashOf(treeOf()));
    // Each becomes another file of 128 MiB.
    const deltas = Array.from({ length: 500 }, (_, index) => ({
      type: 'delta' as const,
      base: hashOf(zeros),
      data: copyingDelta(0x10000, 2048 - index),
    }));
    await refused(bundleOfObjects(commit, treeOf(), zeros, ...deltas), 'invalid', { deadlineMs: 1_000 });
  });

  test('arrives while the disk is nearly full', () =>
    refused(smallBundle, 'disk_full', { hasFreeSpace: () => false }));
});
