// The repack of mirrors: after the response, one at a time, and harmless if it fails.
import assert from 'node:assert/strict';
import { readdirSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { needsRepack } from '../../../src/engine/git/mirror.ts';
import { createLog } from '../../../src/log.ts';
import { createRepacks } from '../../../src/work/source/repack-mirrors.ts';
import { temporaryDirectory } from '../../cli/program.ts';
import { addCommits, createRepository, git } from '../../support/repository.ts';

const packsOf = (mirror: string) =>
  readdirSync(join(mirror, 'objects/pack')).filter(name => name.endsWith('.pack'));

function mirrorOfManyPacks(mirror: string): void {
  createRepository(mirror, []);
  git(mirror, 'config', 'fastimport.unpackLimit', '0');
  for (let index = 0; index < 40; index++) addCommits(mirror, [{ files: { [`${index}`]: `${index}` } }]);
}

test('a mirror of many packs is repacked, and one that fails is logged and left alone for a while', async () => {
  using directory = temporaryDirectory();
  const [good, bad, small] = ['good', 'bad', 'small'].map(name => join(directory.path, `${name}.git`)) as [
    string,
    string,
    string,
  ];
  mirrorOfManyPacks(good);
  mirrorOfManyPacks(bad);
  createRepository(small, [{}]);
  for (const name of packsOf(bad)) truncateSync(join(bad, 'objects/pack', name), 20);
  const logged: string[] = [];
  const log = createLog(line => logged.push(line), {});
  const stopping = new AbortController();
  const repacks = createRepacks({ log, stopping: stopping.signal });
  for (const mirror of [bad, good, small]) repacks.schedule(mirror);
  await repacks.idle();
  assert.ok(!(await needsRepack(good)));
  assert.equal(git(good, 'rev-list', '--count', 'main'), '40');
  const complaints = () => logged.filter(line => line.includes('mirror could not be repacked')).length;
  assert.equal(complaints(), 1);
  repacks.schedule(bad);
  await repacks.idle();
  assert.equal(complaints(), 1, 'it would only fail again');
});

test('a repack ends when the server stops, and leaves the mirror intact', async () => {
  using directory = temporaryDirectory();
  const mirror = join(directory.path, 'stopped.git');
  mirrorOfManyPacks(mirror);
  const logged: string[] = [];
  const stopping = new AbortController();
  const repacks = createRepacks({
    log: createLog(line => logged.push(line), {}),
    stopping: stopping.signal,
  });
  repacks.schedule(mirror);
  stopping.abort();
  await repacks.idle();
  assert.equal(git(mirror, 'rev-list', '--count', 'main'), '40');
  assert.deepEqual(logged, []);
});
