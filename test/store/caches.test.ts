// The list of caches: its order, its pages, and finding caches by names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findCaches,
  listCaches,
  listUnmeasuredCaches,
  markCacheUsed,
  openCache,
  recordCacheSize,
} from '../../src/store/caches.ts';
import type { Db } from '../../src/store/database/db.ts';
import { createSuite } from '../../src/store/suites.ts';
import { addProject, openFixture } from './fixture.ts';

function addCache(db: Db, projectId: bigint, name: string, sizeBytes: number | null): void {
  const { id } = createSuite(db, { projectId, name, description: '', command: 'true', image: null });
  recordCacheSize(db, openCache(db, id), { sizeBytes, measuredAt: db.now() });
}

function openCaches() {
  const fixture = openFixture();
  const { db } = fixture;
  const [project, deleted] = [addProject(db), addProject(db)];
  for (const [name, size] of [
    ['small', 1_000],
    ['Größe unknown', null],
    ['large', 9_000],
    ['empty', 0],
    ['new', null],
    ['middle', 5_000],
  ] as const)
    addCache(db, project.id, name, size);
  addCache(db, deleted.id, 'of a deleted project', 7_000);
  db.sqlite.prepare('UPDATE projects SET deleted_at = 1 WHERE id = ?').run(deleted.id);
  return { ...fixture, project, [Symbol.dispose]: () => fixture[Symbol.dispose]() };
}

const names = (caches: readonly { suiteName: string }[]) => caches.map(({ suiteName }) => suiteName);

test('caches that are not measured come first, then the largest, page by page', () => {
  using fixture = openCaches();
  const { db } = fixture;
  const all = ['Größe unknown', 'new', 'large', 'middle', 'small', 'empty'];
  assert.deepEqual(names(listCaches(db, Number.MAX_SAFE_INTEGER)), all);
  for (let size = 1; size <= 4; size += 1)
    for (let offset = 0; offset <= all.length; offset += 1)
      assert.deepEqual(names(listCaches(db, size, offset)), all.slice(offset, offset + size));
});

test('caches are found by words of their suite and project, on any page', () => {
  using fixture = openCaches();
  const { db, project } = fixture;
  const found = (words: string[], limit = 10, offset = 0) => {
    const { caches, count } = findCaches(db, words, limit, offset);
    return [count, ...names(caches)];
  };
  assert.deepEqual(found(['M']), [3, 'middle', 'small', 'empty']);
  assert.deepEqual(found(['m'], 1, 1), [3, 'small']);
  assert.deepEqual(found(['GRÖSSE']), [0]);
  assert.deepEqual(found(['GRÖß', project.name]), [1, 'Größe unknown']);
  assert.deepEqual(found(['deleted']), [0]);
});

test('a page of caches is read by the index of their sizes', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const statements: string[] = [];
  const prepare = db.sqlite.prepare.bind(db.sqlite);
  db.sqlite.prepare = ((text: string) => {
    statements.push(text);
    return prepare(text);
  }) as typeof prepare;
  listCaches(db, 50);
  const paged = statements.filter(text => text.includes('OFFSET'));
  assert.equal(paged.length, 2);
  for (const text of paged) {
    const steps = prepare(`EXPLAIN QUERY PLAN ${text}`).all(1, 1) as { detail: string }[];
    const details = steps.map(({ detail }) => detail).join('\n');
    assert.match(details, /caches USING COVERING INDEX caches_size/);
    assert.doesNotMatch(details, /TEMP B-TREE FOR ORDER BY/);
  }
});

test('a cache is measured after its first use, and again after a later use, but not more often than asked', () => {
  using fixture = openFixture();
  const { db } = fixture;
  const project = addProject(db);
  const { id } = createSuite(db, {
    projectId: project.id,
    name: 'unit',
    description: '',
    command: 'true',
    image: null,
  });
  const cache = openCache(db, id);
  const isDue = (measuredBefore: number) =>
    listUnmeasuredCaches(db, { measuredBefore, limit: 10 }).length === 1;
  const measuredAt = db.now() - 60_000;
  assert.equal(isDue(0), true);
  recordCacheSize(db, cache, { sizeBytes: 1_000, measuredAt });
  markCacheUsed(db, id);
  assert.equal(isDue(measuredAt), false);
  assert.equal(isDue(measuredAt + 1), true);
  recordCacheSize(db, cache, { sizeBytes: 1_000, measuredAt: db.now() + 1 });
  assert.equal(isDue(Number.MAX_SAFE_INTEGER), false);
});
