// The index of an artifact that has none: made once, in the background if it takes long, and never left behind half.
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { captureTar } from '../../src/engine/archive/artifact-tar.ts';
import { createLog } from '../../src/log.ts';
import { artifactPath } from '../../src/store/data/paths.ts';
import { createArtifactFiles } from '../../src/work/artifact-files.ts';
import { temporaryDirectory } from '../cli/program.ts';
import { tarOfVolume } from '../support/dependency-artifact.ts';

const HASH = 'c'.repeat(64);
const FILES = 5_000;

async function openArtifacts(waitMs: number) {
  const directory = temporaryDirectory();
  mkdirSync(join(directory.path, 'artifacts'));
  function* tree() {
    for (let at = 0; at < FILES; at += 1) yield { path: `file-${at}`, content: 'x' };
  }
  await captureTar(tarOfVolume(tree()), {
    file: artifactPath(directory.path, HASH),
    prefix: '/opt/x',
    owner: { uid: 1000, gid: 1000 },
    mayContinue: () => true,
  });
  const stopping = new AbortController();
  const logged: string[] = [];
  const log = createLog(line => logged.push(line), {});
  const make = (ms: number) =>
    createArtifactFiles({ dataDirectory: directory.path, log, stopping: stopping.signal, waitMs: ms });
  return {
    files: make(waitMs),
    stopping,
    logged,
    names: () => readdirSync(join(directory.path, 'artifacts')).map(name => name.slice(HASH.length)),
    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

test('a caller does not wait long for an index, which is made all the same', async () => {
  using fixture = await openArtifacts(1);
  assert.equal(await fixture.files.openIndex(HASH), undefined);
  const deadline = Date.now() + 60_000;
  for (;;) {
    using index = await fixture.files.openIndex(HASH);
    if (index) {
      assert.equal(index.find('')?.files, FILES);
      break;
    }
    assert.ok(Date.now() < deadline, 'the index was never made');
  }
  assert.deepEqual(fixture.names().toSorted(), ['.index', '.tar.zst']);
});

test('a server that stops gives up the index and leaves nothing of it', async () => {
  using fixture = await openArtifacts(60_000);
  const opening = fixture.files.openIndex(HASH);
  fixture.stopping.abort();
  await assert.rejects(opening, { name: 'AbortError' });
  assert.deepEqual(fixture.names(), ['.tar.zst']);
  assert.deepEqual(fixture.logged, []);
});
