// The check of artifacts that come from another appliance.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { checkArtifact } from '../../../src/engine/archive/artifact-check.ts';
import { captureTar, openArtifact } from '../../../src/engine/archive/artifact-tar.ts';
import { temporaryDirectory } from '../../cli/program.ts';
import { type TarEntry, tarStream } from '../../support/planted-dependency.ts';

const prefix = '/opt/tool';
const deep = `${'a-long-name/'.repeat(30)}`;
const entries: TarEntry[] = [
  { name: 'volume/', type: 'directory', mode: 0o40755 },
  { name: 'volume/ü', mode: 0o104755, content: 'set-user-ID' },
  { name: 'volume/empty', mode: 0o100600 },
  { name: 'volume/link', type: 'link', linkname: 'volume/ü', mode: 0o100755 },
  { name: 'volume/out', type: 'symlink', linkname: '/usr/bin/env', mode: 0o120777 },
  { name: 'volume/pipe', type: 'fifo', mode: 0o10644 },
  ...deep.split('/').map(
    (_, at, all): TarEntry => ({
      name: `volume/${all.slice(0, at).join('/')}`,
      type: 'directory',
      mode: 0o40755,
    }),
  ),
  { name: `volume/${deep}file`, mode: 0o100644, content: Buffer.alloc(3 << 20, 'content') },
];
const owner = { uid: 1000, gid: 1000 };
const capture = (file: string) =>
  captureTar(tarStream(entries), { file, prefix, owner, mayContinue: () => true });

test('the hash of a stored artifact can be computed again from its content', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'artifact');
  const captured = await capture(file);
  const checked = await checkArtifact(() => openArtifact(file), { ...captured, prefix, onBytes() {} });
  assert.deepEqual(checked, { ...captured, owner });
});

test('an artifact whose hash covers the types of files, as in earlier versions, is accepted', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'artifact');
  const captured = await capture(file);
  const old = createHash('sha256').update(`${JSON.stringify(prefix)}\n`);
  const stored = (name: string) => name.replace(/^volume/, 'srv/cache').replace(/\/$/, '');
  for (const { name, type = 'file', mode, content = '', linkname = '' } of entries) {
    const target = type === 'link' ? stored(linkname as string) : linkname;
    old.update(`${JSON.stringify([stored(name), type, mode, content.length, target])}\n`).update(content);
  }
  const hash = old.digest('hex');
  assert.notEqual(hash, captured.hash);
  const expected = { ...captured, hash, prefix, onBytes() {} };
  const checked = await checkArtifact(() => openArtifact(file), expected);
  assert.equal(checked.hash, hash);
});

test('a check stops when its caller does, and reports an unreadable source', async () => {
  using place = temporaryDirectory();
  const file = join(place.path, 'artifact');
  const captured = await capture(file);
  const large = [{ name: 'srv/cache/zeros', content: Buffer.alloc(20 << 20) }];
  const expected = { ...captured, sizeBytes: 1 << 30, prefix, onBytes() {} };
  const stop = () => {
    throw new Error('stopped');
  };
  await assert.rejects(
    checkArtifact(() => tarStream(large), { ...expected, onBytes: stop }),
    /^Error: stopped$/,
  );
  const broken = () =>
    new Readable({
      read() {
        this.destroy(new Error('disk error'));
      },
    });
  await assert.rejects(checkArtifact(broken, expected), /disk error/);
});
