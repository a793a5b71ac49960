// The index of an artifact: sizes of directories, orders, pages, hostile names, and files that cannot be used.
import assert from 'node:assert/strict';
import { existsSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ArtifactTarEntry } from '../../../src/domain/artifact-entry.ts';
import {
  type ArtifactIndex,
  createIndex,
  type EntryOrder,
  openIndex,
} from '../../../src/store/data/artifact-index.ts';
import { temporaryDirectory } from '../../cli/program.ts';

const entry = (path: string, more: Partial<ArtifactTarEntry> = {}): ArtifactTarEntry => ({
  path,
  type: 'file',
  mode: 0o644,
  sizeBytes: 0,
  target: null,
  offset: 0,
  ...more,
});
const file = (path: string, sizeBytes: number, offset = 0) => entry(path, { sizeBytes, offset });
const directory = (path: string, mode = 0o755) => entry(path, { type: 'directory', mode });

async function makeIndex(path: string, entries: Iterable<ArtifactTarEntry>): Promise<ArtifactIndex> {
  const index = createIndex(`${path}.part`);
  for (const one of entries) index.add(one);
  await index.finish(path);
  const opened = openIndex(path);
  assert.ok(opened);
  return opened;
}

/** The names in a directory with their sizes, read in pages of two. */
function namesIn(index: ArtifactIndex, path: string, order: EntryOrder = 'name'): string[] {
  const found = index.find(path);
  assert.equal(found?.type, 'directory', path);
  const names: string[] = [];
  for (let after: bigint | undefined; ; ) {
    const page = index.list(found!, { order, after, limit: 2 });
    assert.ok(page);
    names.push(...page.map(one => `${one.name} ${one.sizeBytes}`));
    if (page.length < 2) return names;
    after = page.at(-1)?.id;
  }
}

const tree = [
  directory('', 0o700),
  directory('bin'),
  file('bin/tool', 300),
  directory('lib'),
  file('lib/a.so', 10, 4096),
  directory('lib/deep'),
  directory('lib/deep/er'),
  file('lib/deep/er/b', 500),
  directory('lib/empty', 0o1777),
  entry('lib/z.so', { type: 'symlink', target: 'a.so' }),
  file('readme', 7),
];

test('directories have the size and the number of everything in them, in any order of the entries', async () => {
  using fixture = temporaryDirectory();
  for (const [at, entries] of [tree, tree.toReversed(), tree.toSorted(() => 0.5 - Math.random())].entries()) {
    using index = await makeIndex(join(fixture.path, `${at}.index`), entries);
    const sizes = (path: string) => {
      const { sizeBytes, files } = index.find(path) ?? {};
      return [sizeBytes, files];
    };
    assert.deepEqual(sizes(''), [817, 5]);
    assert.deepEqual(sizes('lib'), [510, 3]);
    assert.deepEqual(sizes('lib/deep'), [500, 1]);
    assert.deepEqual(sizes('lib/empty'), [0, 0]);
    assert.deepEqual(namesIn(index, ''), ['bin 300', 'lib 510', 'readme 7']);
    assert.deepEqual(namesIn(index, '', 'size'), ['lib 510', 'bin 300', 'readme 7']);
    assert.deepEqual(namesIn(index, 'lib'), ['a.so 10', 'deep 500', 'empty 0', 'z.so 0']);
    assert.equal(index.find('lib/a.so')?.offset, 4096);
    assert.deepEqual([index.find('lib/z.so')?.type, index.find('lib/z.so')?.target], ['symlink', 'a.so']);
    for (const missing of ['nothing', 'bin/tool/x', 'lib/..', '../bin'])
      assert.equal(index.find(missing), undefined, missing);
  }
});

test('modes are those of the entries', async () => {
  using fixture = temporaryDirectory();
  using index = await makeIndex(join(fixture.path, 'x.index'), tree);
  assert.deepEqual(
    ['', 'lib/empty', 'bin/tool'].map(path => index.find(path)?.mode.toString(8)),
    ['700', '1777', '644'],
  );
});

test('many entries of the same size are paged without a gap', async () => {
  using fixture = temporaryDirectory();
  const names = Array.from({ length: 9 }, (_, at) => `file-${at}`);
  using index = await makeIndex(
    join(fixture.path, 'x.index'),
    names.map((name, at) => file(name, at < 7 ? 5 : 9)),
  );
  const found = namesIn(index, '', 'size').map(text => text.split(' ')[0] as string);
  assert.deepEqual(found.slice(0, 2).toSorted(), ['file-7', 'file-8']);
  assert.deepEqual(found.toSorted(), names);
  const root = index.find('');
  assert.ok(root);
  assert.equal(index.list(root, { order: 'name', after: 12345n, limit: 2 }), undefined);
});

test('names of any kind are kept as they are, and lead nowhere', async () => {
  using fixture = temporaryDirectory();
  const names = ['<img onerror=alert(1)>', 'a\nb', '..', 'quote\'"', '\u202egpj.exe', 'x'.repeat(300)];
  using index = await makeIndex(
    join(fixture.path, 'x.index'),
    names.map(name => file(`etc/${name}`, 1)),
  );
  assert.deepEqual(namesIn(index, 'etc').toSorted(), names.map(name => `${name} 1`).toSorted());
  for (const name of names) assert.equal(index.find(`etc/${name}`)?.sizeBytes, 1, name.slice(0, 30));
});

test('an entry that comes twice is there once, as the last one', async () => {
  using fixture = temporaryDirectory();
  using index = await makeIndex(join(fixture.path, 'x.index'), [
    file('a', 1),
    file('a', 2),
    directory('a'),
    file('a/b', 3),
  ]);
  assert.deepEqual(namesIn(index, ''), ['a 3']);
  assert.deepEqual(namesIn(index, 'a'), ['b 3']);
});

test('an index is private, and one that is incomplete or damaged is not used', async () => {
  using fixture = temporaryDirectory();
  const path = join(fixture.path, 'x.index');
  assert.equal(openIndex(path), undefined);
  (await makeIndex(path, tree))[Symbol.dispose]();
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal(existsSync(`${path}.part`), false);
  truncateSync(path, 100);
  assert.equal(openIndex(path), undefined);
  writeFileSync(path, '');
  assert.equal(openIndex(path), undefined);
  writeFileSync(path, 'not a database'.repeat(1000));
  assert.equal(openIndex(path), undefined);
  const stopped = createIndex(`${path}.part`);
  stopped.add(file('a', 1));
  stopped[Symbol.dispose]();
  assert.equal(existsSync(`${path}.part`), false);
});
