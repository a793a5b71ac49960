// Artifacts: which ones are deleted because nothing refers to them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createArtifact, deleteUnusedArtifacts, findArtifact } from '../../src/store/artifacts.ts';
import { moveDependency } from '../../src/store/transition.ts';
import { startCompile } from '../api/states.ts';
import { addAccount, addDependency, openFixture } from './fixture.ts';

test('the result of a compile that is not recorded yet is kept, and deleted once the compile has failed', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const [before, result] = ['a', 'b'].map(digit => digit.repeat(64)) as [string, string];
  createArtifact(db, { hash: before, prefix: '/srv/dependency', sizeBytes: 1, files: 1 });
  db.sqlite.prepare('UPDATE artifacts SET created_at = created_at - 1000').run();
  const { id } = addDependency(db, addAccount(db).id);
  startCompile(db, id);
  createArtifact(db, { hash: result, prefix: '/srv/dependency', sizeBytes: 1, files: 1 });

  assert.deepEqual(
    deleteUnusedArtifacts(db, () => false),
    [before],
  );
  moveDependency(db, id, 'fail');
  assert.deepEqual(
    deleteUnusedArtifacts(db, () => false),
    [result],
  );
  assert.equal(findArtifact(db, result), undefined);
});
