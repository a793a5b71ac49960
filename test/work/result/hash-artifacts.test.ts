// When the SHA-256 of large artifacts is computed.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { HASHED_LATER_BYTES } from '../../../src/engine/archive/build-zip.ts';
import { createLog } from '../../../src/log.ts';
import { buildFilesDirectory, buildFilesPath } from '../../../src/store/data/paths.ts';
import { listBuildArtifacts } from '../../../src/store/result/build-artifacts.ts';
import { moveBuild } from '../../../src/store/transition.ts';
import { createArtifactHashes } from '../../../src/work/result/hash-artifacts.ts';
import { addBuilds, addProject, addSuite, openFixture } from '../../store/fixture.ts';
import { addArtifacts } from '../../support/artifacts.ts';

const files = {
  'large/random': randomBytes(HASHED_LATER_BYTES),
  'large/text': Buffer.from('a line of a log\n'.repeat(HASHED_LATER_BYTES / 16)),
  small: Buffer.from('x'),
};
const sha256 = (content: Buffer) => createHash('sha256').update(content).digest('hex');

async function openWorld() {
  const fixture = openFixture();
  const { db } = fixture;
  const data = dirname(fixture.path);
  mkdirSync(buildFilesDirectory(data));
  const project = addProject(db);
  const suites = Array.from({ length: 2 }, () => addSuite(db, project.id).id);
  const ids = addBuilds(db, project, suites).builds as [bigint, bigint];
  for (const id of ids) {
    moveBuild(db, id, 'start', { nonce: 'n' });
    await addArtifacts(db, data, id, files);
    moveBuild(db, id, 'pass', { exitCode: 0 });
  }
  const lines: string[] = [];
  return {
    ...fixture,
    data,
    ids,
    lines,
    sums: (id: bigint) => listBuildArtifacts(db, id, { limit: 9 }).map(artifact => artifact.sha256),
    hashes: createArtifactHashes({
      db,
      log: createLog(line => void lines.push(line), {}),
      dataDirectory: data,
      stopping: new AbortController().signal,
    }),
  };
}
const [random, text, small] = Object.values(files).map(sha256) as [string, string, string];

test('the SHA-256 of large files is computed when a build finishes, and later if a server was killed before', async () => {
  using world = await openWorld();
  const { ids, sums, hashes } = world;
  assert.deepEqual(ids.map(sums), [
    ['', '', small],
    ['', '', small],
  ]);
  hashes.add(ids[0]);
  await hashes.idle();
  assert.deepEqual(ids.map(sums), [
    [random, text, small],
    ['', '', small],
  ]);
  hashes.repair();
  await hashes.idle();
  assert.deepEqual(ids.map(sums), [
    [random, text, small],
    [random, text, small],
  ]);
});

test('a file that was damaged on the disk gets no SHA-256, the others do, and the log of the server names it', async () => {
  using world = await openWorld();
  const { data, ids, sums, hashes, lines } = world;
  const file = openSync(buildFilesPath(data, ids[0]), 'r+');
  writeSync(file, Buffer.from('damage'), 0, 6, 1_000_000);
  closeSync(file);
  hashes.repair();
  await hashes.idle();
  assert.deepEqual(ids.map(sums), [
    ['', text, small],
    [random, text, small],
  ]);
  assert.match(lines.join(''), /SHA-256 of an artifact could not be computed.*large\/random/);
});
