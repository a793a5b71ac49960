// Images that nodes pull: what is in their layers and in which order, that they are the same each time, and that nothing
// half-done is used.
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { MISSING_ARTIFACT } from '../../../src/domain/container/artifact-mounts.ts';
import { EngineRefused, EngineUnavailable } from '../../../src/engine/engine.ts';
import { pollUntil } from '../../drill/support/poll.ts';
import { savedByNewDocker, savedByOldDocker, tarOf } from '../../support/saved-image.ts';
import {
  blobOf,
  createStoreFixture,
  digestIn,
  type Entry,
  entriesOf,
  manifestOf,
  readAll,
  type StoreFixture,
} from './fixture.ts';

let fixture: StoreFixture;
beforeEach(() => {
  fixture = createStoreFixture();
});
afterEach(() => fixture.close());

const ROOT = { path: '', type: 'directory', mode: 0o755 } as const;
const baseLayer = [
  { name: 'etc/', type: 'directory', mode: 0o755 },
  { name: 'etc/name', content: 'base' },
] as const;

/** What a container sees: the layers on top of each other, with the rules of overlays. */
async function viewOf(reference: string): Promise<Map<string, Entry>> {
  const { layers } = await manifestOf(fixture.store, reference);
  const view = new Map<string, Entry>();
  const remove = (path: string, isItself: boolean) => {
    for (const name of view.keys())
      if ((isItself && name === path) || name.startsWith(`${path}/`)) view.delete(name);
  };
  for (const { digest } of layers)
    for (const entry of await entriesOf(await blobOf(fixture.store, digest))) {
      const name = entry.name.replace(/\/$/, '');
      if (name.endsWith('/.wh..wh..opq')) remove(name.slice(0, -'/.wh..wh..opq'.length), false);
      else {
        if (entry.type !== 'directory' || view.get(name)?.type !== 'directory') remove(name, true);
        view.set(name, entry);
      }
    }
  return view;
}

describe('an image without layers of Assay', () => {
  test('has the layers and the configuration of the image, by digest', async () => {
    const saved = await fixture.addImage(
      [...baseLayer],
      [{ name: 'srv/', type: 'directory' }],
      [...baseLayer],
    );
    const reference = await fixture.store.compose('base', []);
    assert.match(reference, /^assay\.example\.org:443\/assay\/image@sha256:[0-9a-f]{64}$/);
    const found = await fixture.store.findManifest(digestIn(reference));
    assert.equal(
      `sha256:${createHash('sha256')
        .update(found?.content as Buffer)
        .digest('hex')}`,
      digestIn(reference),
    );
    const { layers, config } = await manifestOf(fixture.store, reference);
    assert.deepEqual(
      layers.map(({ digest }) => digest),
      saved.diffIds,
    );
    for (const { digest, size, mediaType } of [...layers, { ...config, mediaType: undefined }]) {
      const content = await blobOf(fixture.store, digest);
      assert.equal(content.length, size);
      assert.equal(`sha256:${createHash('sha256').update(content).digest('hex')}`, digest);
      if (mediaType) assert.equal(mediaType, 'application/vnd.docker.image.rootfs.diff.tar');
    }
    const parsed = JSON.parse((await blobOf(fixture.store, config.digest)).toString());
    assert.deepEqual(parsed.rootfs.diff_ids, saved.diffIds);
    assert.deepEqual(parsed.config, { Env: ['PATH=/bin'], Labels: { kept: 'yes' } });
  });

  for (const isCompressed of [false, true])
    test(`is the same when a newer Docker exports it${isCompressed ? ' with compressed layers' : ''}`, async () => {
      const layers = await Promise.all([
        tarOf([...baseLayer]),
        tarOf([]),
        tarOf([{ name: '{', content: 'x' }]),
      ]);
      fixture.setImage(await savedByOldDocker(layers));
      const old = await fixture.store.compose('base', []);
      const other = createStoreFixture();
      try {
        other.setImage(await savedByNewDocker(layers, { isCompressed }));
        assert.equal(await other.store.compose('base', []), old);
      } finally {
        other.close();
      }
    });

  test('is exported once, also for concurrent calls and after a restart', async () => {
    await fixture.addImage([...baseLayer]);
    const { store } = fixture;
    const all = await Promise.all(Array.from({ length: 5 }, () => store.compose('base', [])));
    assert.equal(new Set(all).size, 1);
    assert.equal(await fixture.reopen().compose('base', []), all[0]);
    assert.equal(fixture.exports, 1);
  });

  test('is exported again if the export broke off, and leaves nothing behind', async () => {
    await fixture.addImage([...baseLayer, { name: 'large', content: Buffer.alloc(300_000, 7) }]);
    for (const share of [0.1, 0.5, 0.9, 0.99]) {
      fixture.onExport = tar => Readable.from([tar.subarray(0, Math.floor((tar.length - 1024) * share))]);
      await assert.rejects(fixture.store.compose('base', []), EngineUnavailable, `${share}`);
    }
    fixture.onExport = tar =>
      Readable.from(
        (async function* () {
          yield tar.subarray(0, 100_000);
          throw Object.assign(new Error('reset'), { code: 'ECONNRESET' });
        })(),
      );
    await assert.rejects(fixture.store.compose('base', []), EngineUnavailable);
    assert.deepEqual(readdirSync(join(fixture.directory, 'images', 'temporary')), []);
    assert.deepEqual(readdirSync(join(fixture.directory, 'images', 'bases')), []);
    fixture.onExport = undefined;
    await manifestOf(fixture.store, await fixture.store.compose('base', []));
  });

  test('is refused if a layer does not have the hash in the configuration', async () => {
    const saved = await fixture.addImage([...baseLayer]);
    const at = saved.tar.indexOf('base');
    saved.tar.write('bass', at);
    await assert.rejects(fixture.store.compose('base', []), EngineRefused);
    assert.deepEqual(readdirSync(join(fixture.directory, 'images', 'bases')), []);
  });
});

describe('the layers of dependencies', () => {
  beforeEach(() => fixture.addImage([...baseLayer]));

  test('the first one wins, and all others are there', async () => {
    const first = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'both', content: 'first' },
      { path: 'a', content: 'a' },
    ]);
    const second = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'both', content: 'second' },
      { path: 'b', content: 'b' },
    ]);
    const view = await viewOf(await fixture.store.compose('base', [first, second]));
    assert.equal(view.get('opt/x/both')?.content, 'first');
    assert.equal(view.get('opt/x/a')?.content, 'a');
    assert.equal(view.get('opt/x/b')?.content, 'b');
    assert.equal(view.get('etc/name')?.content, 'base');
    const other = await viewOf(await fixture.store.compose('base', [second, first]));
    assert.equal(other.get('opt/x/both')?.content, 'second');
  });

  test('a file hides a directory of a later one, and a directory a file', async () => {
    const file = await fixture.artifact('/opt/x', [ROOT, { path: 'place', content: 'a file' }]);
    const directory = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'place', type: 'directory' },
      { path: 'place/inside', content: 'inside' },
    ]);
    const fileFirst = await viewOf(await fixture.store.compose('base', [file, directory]));
    assert.equal(fileFirst.get('opt/x/place')?.content, 'a file');
    assert.equal(fileFirst.has('opt/x/place/inside'), false);
    const directoryFirst = await viewOf(await fixture.store.compose('base', [directory, file]));
    assert.equal(directoryFirst.get('opt/x/place')?.type, 'directory');
    assert.equal(directoryFirst.get('opt/x/place/inside')?.content, 'inside');
  });

  test('belong to root, and others read and run what the owner could, without writing', async () => {
    const modes: [given: number, expected: number][] = [
      [0o644, 0o644],
      [0o600, 0o644],
      [0o700, 0o755],
      [0o4755, 0o755],
      [0o2711, 0o755],
      [0o666, 0o644],
      [0o400, 0o444],
      [0o100, 0o111],
      [0o777, 0o755],
    ];
    const artifact = await fixture.artifact('/opt/x', [
      { ...ROOT, mode: 0o700 },
      ...modes.map(([mode]) => ({ path: `f${mode.toString(8)}`, mode, content: 'x' })),
      { path: 'sticky', type: 'directory' as const, mode: 0o1777 },
    ]);
    const view = await viewOf(await fixture.store.compose('base', [artifact]));
    for (const [given, expected] of modes)
      assert.equal(view.get(`opt/x/f${given.toString(8)}`)?.mode, expected, given.toString(8));
    assert.equal(view.get('opt/x/sticky')?.mode, 0o755);
    assert.equal(view.get('opt/x')?.mode, 0o755);
    assert.equal(view.get('opt')?.mode, 0o755);
    for (const { uid, gid, name } of view.values()) assert.deepEqual([uid, gid], [0, 0], name);
  });

  test('keep links and long names', async () => {
    const long = `${'deep/'.repeat(60)}${'n'.repeat(120)}`;
    const artifact = await fixture.artifact('/opt/x', [
      ROOT,
      { path: long, content: 'long' },
      { path: 'grün', content: 'green' },
      { path: 'hard', type: 'link', linkname: long },
      { path: 'soft', type: 'symlink', linkname: 'l'.repeat(200) },
      { path: 'out', type: 'symlink', linkname: '/etc/name' },
      { path: 'pipe', type: 'fifo' },
    ]);
    const view = await viewOf(await fixture.store.compose('base', [artifact]));
    assert.equal(view.get(`opt/x/${long}`)?.content, 'long');
    assert.equal(view.get('opt/x/grün')?.content, 'green');
    assert.equal(view.get('opt/x/hard')?.linkname, `opt/x/${long}`);
    assert.equal(view.get('opt/x/soft')?.linkname, 'l'.repeat(200));
    assert.equal(view.get('opt/x/out')?.linkname, '/etc/name');
    assert.equal(view.get('opt/x/pipe')?.type, 'fifo');
  });

  test('are the same each time, and not stored a second time', async () => {
    const artifact = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'large', content: Buffer.alloc(3_000_000, 5) },
    ]);
    const reference = await fixture.store.compose('base', [artifact]);
    const { layers } = await manifestOf(fixture.store, reference);
    const digest = layers.at(-1)?.digest as string;
    const [one, two] = await Promise.all([blobOf(fixture.store, digest), blobOf(fixture.store, digest)]);
    assert.ok(one.equals(two));
    assert.equal(one.length, layers.at(-1)?.size);
    assert.equal(`sha256:${createHash('sha256').update(one).digest('hex')}`, digest);
    const blobs = join(fixture.directory, 'images', 'blobs');
    for (const name of readdirSync(blobs)) assert.ok(statSync(join(blobs, name)).size < 100_000, name);
    assert.equal(await fixture.reopen().compose('base', [artifact]), reference);
    assert.equal(await fixture.store.compose('base', [artifact, artifact]), reference);
  });

  test('a range of one has the bytes at that place', async () => {
    const artifact = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'one', content: Buffer.alloc(700_000, 1) },
      { path: 'two', content: 'x'.repeat(1_000) },
    ]);
    const { layers } = await manifestOf(fixture.store, await fixture.store.compose('base', [artifact]));
    for (const { digest, size } of layers) {
      const whole = await blobOf(fixture.store, digest);
      for (const [start, end] of [
        [0, 0],
        [511, 513],
        [Math.floor(size / 2), size - 1],
        [size - 1, size - 1],
      ] as const) {
        const found = await fixture.store.findBlob(digest);
        const part = await readAll((found as NonNullable<typeof found>).open({ start, end }));
        assert.ok(part.equals(whole.subarray(start, end + 1)), `${start}-${end}`);
      }
    }
  });

  test('the digest of a layer does not change between versions of Assay without a new format', async () => {
    const artifact = await fixture.artifact('/opt/x', [
      { ...ROOT, mtime: new Date(1_000) },
      { path: 'file', content: 'content', mtime: new Date(2_000) },
      { path: 'n'.repeat(150), content: 'long', mtime: new Date(3_000) },
      { path: 'soft', type: 'symlink', linkname: 'file', mtime: new Date(4_000) },
    ]);
    const { layers } = await manifestOf(fixture.store, await fixture.store.compose('base', [artifact]));
    // If this fails, increase LAYER_FORMAT: the servers have recorded the digests of the old bytes.
    assert.equal(
      layers.at(-1)?.digest,
      'sha256:2db8ab0293110d9d7dfa3be70f07445aeb5dd6b94a8dfd6c5602fd830bbfda98',
    );
  });

  test('one whose file was replaced by another compile gets another digest', async () => {
    const tree = (seconds: number) =>
      [ROOT, { path: 'file', content: 'x', mtime: new Date(seconds * 1000) }] as const;
    const artifact = await fixture.artifact('/opt/x', [...tree(1)]);
    const before = await fixture.store.compose('base', [artifact]);
    const digest = (await manifestOf(fixture.store, before)).layers.at(-1)?.digest as string;
    const again = await fixture.artifact('/opt/x', [...tree(2)]);
    assert.deepEqual(again, artifact);
    assert.equal(await fixture.store.findBlob(digest), undefined);
    const after = await fixture.store.compose('base', [artifact]);
    assert.notEqual(after, before);
    const { layers } = await manifestOf(fixture.store, after);
    await blobOf(fixture.store, layers.at(-1)?.digest as string);
  });

  test('a missing or damaged artifact is refused with advice', async () => {
    const artifact = await fixture.artifact('/opt/x', [ROOT, { path: 'file', content: 'x'.repeat(50_000) }]);
    const refused = { name: 'EngineRefused', message: MISSING_ARTIFACT };
    truncateSync(artifact.file, 20);
    await assert.rejects(fixture.store.compose('base', [artifact]), refused);
    writeFileSync(artifact.file, 'not compressed');
    await assert.rejects(fixture.store.compose('base', [artifact]), refused);
    await assert.rejects(
      fixture.store.compose('base', [
        artifact,
        { kind: 'writable', prefix: '/opt/x', owner: { uid: 1, gid: 1 } },
      ]),
      refused,
    );
    rmSync(artifact.file);
    await assert.rejects(fixture.store.compose('base', [artifact]), refused);
  });

  test('a name that Docker would take for a deleted file is refused', async () => {
    const artifact = await fixture.artifact('/opt/x', [ROOT, { path: '.wh.passwd', content: '' }]);
    await assert.rejects(fixture.store.compose('base', [artifact]), EngineRefused);
  });

  test('too many are refused before a node pulls them', async () => {
    const artifact = await fixture.artifact('/opt/x', [ROOT, { path: 'f', content: 'x' }]);
    const layers = Array.from({ length: 124 }, (_, at) => ({ ...artifact, prefix: `/opt/x${at}` }));
    await assert.rejects(fixture.store.compose('base', layers), EngineRefused);
  });
});

describe('the place of a prefix in the image', () => {
  const opt = (mode: number, uid: number) =>
    ({ name: 'opt/', type: 'directory', mode, uid, gid: uid }) as const;
  const artifactAt = (prefix: string) => fixture.artifact(prefix, [ROOT, { path: 'file', content: 'own' }]);

  test('content of the image there is hidden, as with a mount', async () => {
    await fixture.addImage([
      opt(0o755, 0),
      { name: 'opt/x/', type: 'directory' },
      { name: 'opt/x/old', content: 'old' },
      { name: 'opt/y', content: 'beside' },
    ]);
    const view = await viewOf(await fixture.store.compose('base', [await artifactAt('/opt/x')]));
    assert.equal(view.has('opt/x/old'), false);
    assert.equal(view.get('opt/x/file')?.content, 'own');
    assert.equal(view.get('opt/y')?.content, 'beside');
  });

  test('directories above it keep their owner and mode', async () => {
    await fixture.addImage([opt(0o1777, 7)], [{ name: './etc', type: 'directory' }]);
    const view = await viewOf(await fixture.store.compose('base', [await artifactAt('/opt/new/x')]));
    assert.deepEqual([view.get('opt')?.mode, view.get('opt')?.uid], [0o1777, 7]);
    assert.deepEqual([view.get('opt/new')?.mode, view.get('opt/new')?.uid], [0o755, 0]);
  });

  test('links of the image on the way are followed', async () => {
    await fixture.addImage(
      [
        { name: 'opt', type: 'symlink', linkname: 'var/../var/opt' },
        { name: 'var/', type: 'directory' },
        { name: 'var/opt', type: 'symlink', linkname: '/data' },
      ],
      [{ name: 'data/', type: 'directory', mode: 0o711 }],
    );
    const view = await viewOf(await fixture.store.compose('base', [await artifactAt('/opt/x')]));
    assert.equal(view.get('opt')?.type, 'symlink');
    assert.equal(view.get('var/opt')?.type, 'symlink');
    assert.equal(view.get('data/x/file')?.content, 'own');
    assert.equal(view.get('data')?.mode, 0o711);
  });

  test('a link that a later layer removed or replaced is not followed', async () => {
    const link = { name: 'opt', type: 'symlink', linkname: 'data' } as const;
    await fixture.addImage([link], [{ name: '.wh.opt', content: '' }]);
    const removed = await viewOf(await fixture.store.compose('base', [await artifactAt('/opt/x')]));
    assert.equal(removed.get('opt/x/file')?.content, 'own');
    await fixture.addImage([link], [opt(0o700, 0)]);
    const replaced = await viewOf(await fixture.store.compose('base', [await artifactAt('/opt/x')]));
    assert.equal(replaced.get('opt/x/file')?.content, 'own');
    assert.equal(replaced.get('opt')?.mode, 0o700);
  });

  test('links in a circle, and one to the root, are refused', async () => {
    await fixture.addImage([
      { name: 'opt', type: 'symlink', linkname: 'opt' },
      { name: 'all', type: 'symlink', linkname: '/' },
    ]);
    await assert.rejects(fixture.store.compose('base', [await artifactAt('/opt/x')]), EngineRefused);
    await assert.rejects(fixture.store.compose('base', [await artifactAt('/all')]), EngineRefused);
  });
});

describe('the prefix of a compile', () => {
  const owner = { uid: 1000, gid: 1001 };
  const writable = (prefix: string) => ({ kind: 'writable', prefix, owner }) as const;
  const ownersIn = (view: Map<string, Entry>) => (path: string) => {
    const { uid, gid, mode } = view.get(path) as Entry;
    return [uid, gid, mode.toString(8)];
  };
  beforeEach(() => fixture.addImage([...baseLayer]));

  test('belongs to the user when there is nothing else', async () => {
    const view = await viewOf(await fixture.store.compose('base', [writable('/opt/x')]));
    assert.deepEqual(ownersIn(view)('opt/x'), [1000, 1001, '755']);
    assert.deepEqual(ownersIn(view)('opt'), [0, 0, '755']);
  });

  test('is on top, with everything that dependencies have there, which it may change', async () => {
    const shared = await fixture.artifact('/opt/x', [
      { ...ROOT, mode: 0o500 },
      { path: 'lib', type: 'directory', mode: 0o500 },
      { path: 'lib/pkg', type: 'directory' },
      { path: 'lib/file', content: 'shared' },
    ]);
    const outer = await fixture.artifact('/opt', [
      ROOT,
      { path: 'x', type: 'directory' },
      { path: 'x/from-outer', type: 'directory' },
      { path: 'other', type: 'directory' },
    ]);
    for (const layers of [
      [writable('/opt/x'), shared, outer],
      [shared, outer, writable('/opt/x')],
    ]) {
      const view = await viewOf(await fixture.store.compose('base', layers));
      for (const path of ['opt/x', 'opt/x/lib', 'opt/x/lib/pkg', 'opt/x/from-outer'])
        assert.deepEqual(ownersIn(view)(path), [1000, 1001, '755'], path);
      assert.deepEqual(ownersIn(view)('opt/x/lib/file'), [1000, 1001, '644']);
      assert.equal(view.get('opt/x/lib/file')?.content, 'shared');
      assert.deepEqual(ownersIn(view)('opt/other'), [0, 0, '755']);
      assert.deepEqual(ownersIn(view)('opt'), [0, 0, '755']);
    }
  });

  test('does not bring back a directory that a file hides', async () => {
    const file = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'lib', type: 'symlink', linkname: 'lib64' },
      { path: 'lib64', type: 'directory' },
    ]);
    const directory = await fixture.artifact('/opt/x', [
      ROOT,
      { path: 'lib', type: 'directory' },
      { path: 'lib/sub', type: 'directory' },
      { path: 'lib/sub/f', content: 'hidden' },
    ]);
    const view = await viewOf(await fixture.store.compose('base', [file, directory, writable('/opt/x')]));
    assert.equal(view.get('opt/x/lib')?.type, 'symlink');
    assert.equal(view.has('opt/x/lib/sub'), false);
    assert.deepEqual(ownersIn(view)('opt/x/lib64'), [1000, 1001, '755']);
    const other = await viewOf(await fixture.store.compose('base', [directory, file, writable('/opt/x')]));
    assert.deepEqual(ownersIn(other)('opt/x/lib'), [1000, 1001, '755']);
    assert.equal(other.get('opt/x/lib/sub/f')?.content, 'hidden');
  });

  test('the prefix of another dependency inside it stays read-only', async () => {
    const inner = await fixture.artifact('/opt/x/inner', [ROOT, { path: 'lib', type: 'directory' }]);
    const view = await viewOf(await fixture.store.compose('base', [inner, writable('/opt/x')]));
    assert.deepEqual(ownersIn(view)('opt/x/inner'), [0, 0, '755']);
    assert.deepEqual(ownersIn(view)('opt/x/inner/lib'), [0, 0, '755']);
    assert.deepEqual(ownersIn(view)('opt/x'), [1000, 1001, '755']);
  });
});

describe('the sweep', () => {
  /** Makes all files look as if they were last used that long ago. */
  const age = (ms: number) => {
    const root = join(fixture.directory, 'images');
    const at = new Date(Date.now() - ms);
    for (const kind of readdirSync(root))
      for (const name of readdirSync(join(root, kind))) utimesSync(join(root, kind, name), at, at);
  };
  const count = () =>
    readdirSync(join(fixture.directory, 'images'), { recursive: true, withFileTypes: true }).filter(one =>
      one.isFile(),
    ).length;

  test('removes what was not used, and it can be composed again', async () => {
    await fixture.addImage([...baseLayer]);
    const artifact = await fixture.artifact('/opt/x', [ROOT, { path: 'f', content: 'x' }]);
    const reference = await fixture.store.compose('base', [artifact]);
    await fixture.store.sweep(60_000);
    await manifestOf(fixture.store, reference);
    age(120_000);
    writeFileSync(join(fixture.directory, 'images', 'temporary', 'left'), 'by a crash');
    utimesSync(join(fixture.directory, 'images', 'temporary', 'left'), 0, 0);
    await fixture.store.sweep(60_000);
    assert.equal(count(), 0);
    assert.equal(await fixture.store.findManifest(digestIn(reference)), undefined);
    assert.equal(await fixture.store.compose('base', [artifact]), reference);
    for (const { digest } of (await manifestOf(fixture.store, reference)).layers)
      await blobOf(fixture.store, digest);
    assert.equal(fixture.exports, 2);
  });

  test('keeps everything that a used image needs', async () => {
    await fixture.addImage([...baseLayer]);
    const artifact = await fixture.artifact('/opt/x', [ROOT, { path: 'f', content: 'x' }]);
    const used = await fixture.store.compose('base', [artifact]);
    const unused = await fixture.store.compose('base', []);
    age(120_000);
    const reopened = fixture.reopen();
    assert.equal(await reopened.compose('base', [artifact]), used);
    await reopened.sweep(60_000);
    const { layers, config } = await manifestOf(reopened, used);
    for (const { digest } of [...layers, config]) await blobOf(reopened, digest);
    assert.equal(await reopened.findManifest(digestIn(unused)), undefined);
    assert.equal(fixture.exports, 1);
  });
});

test('a process that is killed leaves nothing half-done', { timeout: 60_000 }, async () => {
  const layers = Array.from({ length: 4 }, (_, at) => [
    { name: `file-${at}`, content: Buffer.alloc(8 << 20, at + 1) },
  ]);
  const saved = await fixture.addImage(...layers);
  const file = join(fixture.directory, 'saved');
  writeFileSync(file, saved.tar);
  const blobs = join(fixture.directory, 'images', 'blobs');
  const stored = () => (existsSync(blobs) ? readdirSync(blobs) : []);
  // Killed when the first, the second and the third layer are there.
  for (const count of [1, 2, 3]) {
    const child = fork(join(import.meta.dirname, 'compose-until-killed.ts'), [
      join(fixture.directory, 'images'),
      file,
      saved.id,
    ]);
    const ended = once(child, 'exit');
    await pollUntil(30_000, stored, names => names.length >= count || child.exitCode !== null, 1);
    child.kill('SIGKILL');
    await ended;
    for (const name of stored())
      assert.equal(
        createHash('sha256')
          .update(readFileSync(join(blobs, name)))
          .digest('hex'),
        name,
      );
  }
  const reference = await fixture.store.compose('base', []);
  for (const { digest, size } of (await manifestOf(fixture.store, reference)).layers)
    assert.equal((await blobOf(fixture.store, digest)).length, size);
});

test('nothing is found by a name that is not a digest', async () => {
  for (const name of [
    '',
    'latest',
    'sha256:',
    `sha256:${'A'.repeat(64)}`,
    '../bases/x',
    `sha256:../${'a'.repeat(61)}`,
  ]) {
    assert.equal(await fixture.store.findManifest(name), undefined);
    assert.equal(await fixture.store.findBlob(name), undefined);
  }
});
