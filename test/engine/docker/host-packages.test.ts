// The fingerprint of what is installed on the host, on a private tree.
import assert from 'node:assert/strict';
import {
  appendFileSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fingerprintHost } from '../../../src/engine/docker/host-packages.ts';

const FILES = [
  'var/lib/dpkg/status',
  'var/lib/apt/lists/index',
  'usr/bin/make',
  'usr/include/zlib.h',
  'usr/lib/x86_64-linux-gnu/pkgconfig/zlib.pc',
  'usr/local/lib/python3.13/dist-packages/tool.py',
  'usr/share/doc/zlib/README',
];

/** Everything in it is old, so that a change is later than it, however coarse the clock of the file system is. */
function openTree() {
  const root = mkdtempSync(join(tmpdir(), 'assay-host-'));
  const write = (path: string, text = 'new') => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  for (const path of FILES) write(path, 'old');
  for (const path of globSync('**/*', { cwd: root })) utimesSync(join(root, path), 1e9, 1e9);
  return { root, write, [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }) };
}

const changes: [string, (tree: ReturnType<typeof openTree>) => void][] = [
  ['a package is upgraded in place', ({ write }) => write('var/lib/dpkg/status', 'own')],
  ['a package is installed', ({ root }) => appendFileSync(join(root, 'var/lib/dpkg/status'), 'more')],
  ['a system gets another package manager', ({ write }) => write('var/lib/rpm/rpmdb.sqlite')],
  ['a package of Alpine is installed', ({ write }) => write('lib/apk/db/installed')],
  ['a package of Arch is installed', ({ write }) => write('var/lib/pacman/local/zlib-1/desc')],
  ['a program is added', ({ write }) => write('usr/bin/cmake')],
  ['a program is removed', ({ root }) => rmSync(join(root, 'usr/bin/make'))],
  ['a header is added', ({ write }) => write('usr/include/png.h')],
  ['a library is added', ({ write }) => write('usr/lib/x86_64-linux-gnu/libpng.so')],
  ['a package file is added', ({ write }) => write('usr/lib/x86_64-linux-gnu/pkgconfig/png.pc')],
  ['make install creates /usr/local/include', ({ write }) => write('usr/local/include/own.h')],
  ['pip installs a module', ({ write }) => write('usr/local/lib/python3.13/dist-packages/other.py')],
];

for (const [what, change] of changes)
  test(`changes when ${what}`, async () => {
    using tree = openTree();
    const before = await fingerprintHost(tree.root);
    assert.equal(await fingerprintHost(tree.root), before);
    change(tree);
    assert.notEqual(await fingerprintHost(tree.root), before);
  });

test('stays the same when nothing is installed', async () => {
  using tree = openTree();
  const before = await fingerprintHost(tree.root);
  for (const path of FILES) readFileSync(join(tree.root, path));
  tree.write('var/lib/apt/lists/index');
  tree.write('home/user/file');
  tree.write('tmp/file');
  assert.equal(await fingerprintHost(tree.root), before);
});

test('the host of this test has one, and a tree without anything too', async () => {
  assert.match(await fingerprintHost(), /^[0-9a-f]{32}$/);
  const root = mkdtempSync(join(tmpdir(), 'assay-host-'));
  assert.match(await fingerprintHost(root), /^[0-9a-f]{32}$/);
  rmSync(root, { recursive: true });
});
