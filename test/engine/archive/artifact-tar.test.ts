// The tars of artifacts: what is in them, where each file begins, and memory that stays flat for many files.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ArtifactTarEntry } from '../../../src/domain/artifact-entry.ts';
import { captureTar, listArtifact, openArtifactRange } from '../../../src/engine/archive/artifact-tar.ts';
import { temporaryDirectory } from '../../cli/program.ts';
import { type ArtifactTree, tarOfVolume } from '../../support/dependency-artifact.ts';
import { collectGarbage } from '../../support/garbage.ts';

async function capture(file: string, tree: Iterable<ArtifactTree[number]>): Promise<ArtifactTarEntry[]> {
  const entries: ArtifactTarEntry[] = [];
  await captureTar(tarOfVolume(tree), {
    file,
    prefix: '/opt/x',
    owner: { uid: 1000, gid: 1000 },
    mayContinue: () => true,
    onEntry: entry => entries.push(entry),
  });
  return entries;
}

test('the entries of a capture are those of the stored tar, and their content is where they say', async () => {
  using fixture = temporaryDirectory();
  const file = join(fixture.path, 'artifact');
  const contents = ['', 'x', 'y'.repeat(511), 'z'.repeat(512), 'w'.repeat(513), 'v'.repeat(300_000)];
  const names = [
    'short',
    'grün',
    'long-'.repeat(60),
    `${'deep/'.repeat(60)}end`,
    'new\nline',
    `${'d'.repeat(150)}/f`,
  ];
  const tree: ArtifactTree = [
    { path: '', type: 'directory' },
    ...names.map((path, at) => ({ path, content: contents[at] as string })),
    { path: 'link', type: 'symlink', linkname: 'l'.repeat(200) },
    { path: 'hard', type: 'link', linkname: names[2] as string },
    { path: 'last', content: 'the last one' },
  ];
  const captured = await capture(file, tree);
  const stored: ArtifactTarEntry[] = [];
  await listArtifact(file, entry => stored.push(entry));
  const withContent = (entries: ArtifactTarEntry[]) => entries.filter(({ sizeBytes }) => sizeBytes > 0);
  assert.deepEqual(withContent(captured), withContent(stored));
  const plain = (entries: ArtifactTarEntry[]) => entries.map(({ offset: _, ...entry }) => entry);
  assert.deepEqual(plain(captured), plain(stored));
  for (const { path, offset, sizeBytes } of withContent(captured)) {
    const range = { start: offset, end: offset + sizeBytes - 1 };
    const read = Buffer.concat(await openArtifactRange(file, range).toArray());
    assert.equal(read.toString(), tree.find(one => one.path === path)?.content, path.slice(0, 30));
  }
});

test('many small files do not gather in memory', async () => {
  using fixture = temporaryDirectory();
  let peakBytes = 0;
  let count = 0;
  const heapBytes = () => {
    collectGarbage();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  function* tree(): Generator<ArtifactTree[number]> {
    for (let at = 0; at < 30_000; at += 1) {
      if (at % 5_000 === 4_999) peakBytes = Math.max(peakBytes, heapBytes());
      yield { path: `file-${at}`, content: 'some content' };
    }
  }
  const beforeBytes = heapBytes();
  await captureTar(tarOfVolume(tree()), {
    file: join(fixture.path, 'artifact'),
    prefix: '/opt/x',
    owner: { uid: 1000, gid: 1000 },
    mayContinue: () => true,
    onEntry: () => {
      count += 1;
    },
  });
  assert.equal(count, 30_000);
  assert.ok(peakBytes - beforeBytes < 12 << 20, `${peakBytes - beforeBytes} bytes`);
});
