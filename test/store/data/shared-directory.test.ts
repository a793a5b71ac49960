// The parts of the data directory that the nodes of a swarm mount.
import assert from 'node:assert/strict';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createDataDirectory } from '../../../src/store/data/data.ts';

const LINKED = ['jobs', 'mirrors', 'snapshots'];

test('directories that nodes mount move to the shared directory, with their content', t => {
  const root = mkdtempSync(join(tmpdir(), 'assay-shared-'));
  t.after(() => rmSync(root, { recursive: true }));
  const [data, shared] = [join(root, 'data'), join(root, 'shared')];
  createDataDirectory(data);
  mkdirSync(join(data, 'mirrors', '1.git'));
  writeFileSync(join(data, 'mirrors', '1.git', 'HEAD'), 'ref: refs/heads/main\n');
  // Twice, as at the next start.
  for (let start = 0; start < 2; start++) createDataDirectory(data, shared);
  for (const name of LINKED) {
    assert.ok(lstatSync(join(data, name)).isSymbolicLink());
    assert.equal(readlinkSync(join(data, name)), join(shared, name));
  }
  assert.equal(readFileSync(join(shared, 'mirrors', '1.git', 'HEAD'), 'utf8'), 'ref: refs/heads/main\n');
  // Nobody else can list them, on any node.
  for (const name of ['.', ...readdirSync(shared)])
    assert.equal(statSync(join(shared, name)).mode & 0o777, 0o711, name);
});

test('an interrupted move continues at the next start', t => {
  const root = mkdtempSync(join(tmpdir(), 'assay-shared-'));
  t.after(() => rmSync(root, { recursive: true }));
  const [data, shared] = [join(root, 'data'), join(root, 'shared')];
  createDataDirectory(data);
  for (const [place, content] of [
    [join(data, 'mirrors', '1.git'), 'complete'],
    [join(shared, 'mirrors', '1.git'), 'half'],
    [join(shared, 'mirrors', '2.git'), 'moved before'],
  ] as const) {
    mkdirSync(place, { recursive: true });
    writeFileSync(join(place, 'HEAD'), content);
  }
  createDataDirectory(data, shared);
  assert.equal(readFileSync(join(data, 'mirrors', '1.git', 'HEAD'), 'utf8'), 'complete');
  assert.equal(readFileSync(join(data, 'mirrors', '2.git', 'HEAD'), 'utf8'), 'moved before');
});
