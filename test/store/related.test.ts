// Related dependencies: what the next compile uses, and what the last one used.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deleteDependency, isDependencyInUse, updateDependency } from '../../src/store/dependencies.ts';
import { listRelated, listRelatedVersions, relatesTo } from '../../src/store/dependency-use.ts';
import { recordCompiledRelated } from '../../src/store/related-dependencies.ts';
import { addAccount, addDependency, openFixture } from './fixture.ts';

const idsOf = (list: readonly { id: bigint }[]) => list.map(({ id }) => id);

test('a changed list is asked for at once, and the compiled one stays until the next successful compile', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const owner = addAccount(db).id;
  const [a, b, c] = [1, 2, 3].map(() => addDependency(db, owner).id) as [bigint, bigint, bigint];
  const dependency = addDependency(db, owner, [a, b]);
  const { id } = dependency;
  const lists = () => [
    idsOf(listRelated(db, id)),
    idsOf(listRelatedVersions(db, { ...dependency, kept: null })),
  ];
  assert.deepEqual(lists(), [[a, b], []]);
  recordCompiledRelated(db, id, [a, b]);
  assert.deepEqual(lists(), [
    [a, b],
    [a, b],
  ]);
  updateDependency(db, dependency, {}, [c, b]);
  assert.deepEqual(lists(), [
    [c, b],
    [a, b],
  ]);
  assert.equal(isDependencyInUse(db, a), true);
  assert.equal(relatesTo(db, id, a), false, 'a may relate to it now');
  // Asked for again, in another order.
  updateDependency(db, dependency, {}, [b, a]);
  assert.deepEqual(lists(), [
    [b, a],
    [a, b],
  ]);
  assert.equal(isDependencyInUse(db, c), false);
  updateDependency(db, dependency, {}, [c]);
  recordCompiledRelated(db, id, [c]);
  assert.deepEqual(lists(), [[c], [c]]);
  assert.equal(isDependencyInUse(db, a), false);
});

test('a compile that started before the list changed records what it used', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const owner = addAccount(db).id;
  const [a, b, gone] = [1, 2, 3].map(() => addDependency(db, owner)) as [
    ReturnType<typeof addDependency>,
    ReturnType<typeof addDependency>,
    ReturnType<typeof addDependency>,
  ];
  const dependency = addDependency(db, owner, [a.id, gone.id]);
  updateDependency(db, dependency, {}, [b.id]);
  deleteDependency(db, gone);
  recordCompiledRelated(db, dependency.id, [a.id, gone.id]);
  assert.deepEqual(idsOf(listRelated(db, dependency.id)), [b.id]);
  assert.deepEqual(idsOf(listRelatedVersions(db, { ...dependency, kept: null })), [a.id]);
});
