// The caches of suites: the generation of each cache's volume, its last measured size, and when it was last used.

import { and, asc, eq, sql } from 'drizzle-orm';
import { type Db, jsonOf, prepared } from './database/db.ts';
import { caches, projects, suites } from './database/schema.ts';

export type Cache = typeof caches.$inferSelect;

/** Published when a cache is emptied: its old volume can be removed. */
export const CACHES_TOPIC = 'caches';

/** Even an empty directory uses some space. */
const EMPTY_BYTES = 65_536;

const isUsedByBuild = sql`suite_id IN (SELECT suite_id FROM builds WHERE build_state = 'running')`;

export function findCache(db: Db, suiteId: bigint): Cache | undefined {
  return db.orm.select().from(caches).where(eq(caches.suiteId, suiteId)).get();
}

/** Every suite with the generation of its cache, which is null if no build has used it yet. */
export function listCacheGenerations(db: Db): { suiteId: bigint; generation: number | null }[] {
  return db.orm
    .select({ suiteId: suites.id, generation: caches.generation })
    .from(suites)
    .leftJoin(caches, eq(caches.suiteId, suites.id))
    .all();
}

/** Returns the suite's cache. The first build of the suite creates its row. */
export function openCache(db: Db, suiteId: bigint): Cache {
  return (
    findCache(db, suiteId) ??
    db.write(() =>
      db.orm.insert(caches).values({ suiteId, generation: 0, usedAt: db.now() }).returning().get(),
    )
  );
}

const setUsedAt = prepared(({ sqlite }) =>
  sqlite.prepare<[number, bigint]>('UPDATE caches SET used_at = ? WHERE suite_id = ?'),
);

/** Records that a build of the suite has started or ended. After its end the cache is measured again. */
export function markCacheUsed(db: Db, suiteId: bigint): void {
  db.write(() => setUsedAt(db).run(db.now(), suiteId));
}

/** Creates the row of a cache volume that is older than this table. */
export function adoptCache(db: Db, suiteId: bigint, usedAt: number): void {
  db.write(() =>
    db.orm.insert(caches).values({ suiteId, generation: 0, usedAt }).onConflictDoNothing().run(),
  );
}

/** `measuredAt` is when the measurement started; a null size could not be counted. Ignored if the cache was emptied since. */
export function recordCacheSize(
  db: Db,
  { suiteId, generation }: Pick<Cache, 'suiteId' | 'generation'>,
  { sizeBytes, measuredAt }: { sizeBytes: number | null; measuredAt: number },
): void {
  db.write(() => {
    db.orm
      .update(caches)
      .set({ sizeBytes, measuredAt })
      .where(and(eq(caches.suiteId, suiteId), eq(caches.generation, generation)))
      .run();
    db.touch(`cache:${suiteId}`);
  });
}

/** The next build of the suite starts with an empty cache. `because` is by whom or why, as the end of a sentence. */
export function emptyCache(db: Db, suiteId: bigint, because: string): void {
  db.write(() => {
    const now = db.now();
    const emptied = { sizeBytes: 0, measuredAt: now, emptiedAt: now, emptiedBecause: because };
    db.orm
      .insert(caches)
      .values({ suiteId, generation: 1, usedAt: now, ...emptied })
      .onConflictDoUpdate({
        target: caches.suiteId,
        set: { ...emptied, generation: sql`${caches.generation} + 1` },
      })
      .run();
    db.touch(CACHES_TOPIC);
  });
}

export type CacheOfSuite = Cache & { suiteName: string; projectId: bigint; projectName: string };

const cachesInOrder = prepared(({ sqlite }) => {
  const isThere = `suite_id NOT IN (
    SELECT suite.id FROM projects AS project CROSS JOIN suites AS suite ON suite.project_id = project.id
    WHERE project.deleted_at IS NOT NULL)`;
  return {
    // By the index of sizes, so that a page reads no more than it shows.
    unmeasured: sqlite
      .prepare<[number, number], bigint>(
        `SELECT suite_id FROM caches WHERE size_bytes IS NULL AND ${isThere} ORDER BY suite_id LIMIT ? OFFSET ?`,
      )
      .pluck(),
    unmeasuredCount: sqlite
      .prepare<[], bigint>(`SELECT count(*) FROM caches WHERE size_bytes IS NULL AND ${isThere}`)
      .pluck(),
    measured: sqlite
      .prepare<[number, number], bigint>(
        `SELECT suite_id FROM caches WHERE size_bytes >= 0 AND ${isThere}
         ORDER BY size_bytes DESC, suite_id DESC LIMIT ? OFFSET ?`,
      )
      .pluck(),
    names: sqlite
      .prepare<[], [bigint, string, string]>(
        `SELECT cache.suite_id, suite.name, project.name FROM caches AS cache
         CROSS JOIN suites AS suite ON suite.id = cache.suite_id
         CROSS JOIN projects AS project ON project.id = suite.project_id AND project.deleted_at IS NULL`,
      )
      .raw(),
  };
});

/** Unmeasured caches first, then the largest. */
export function listCaches(db: Db, limit: number, offset = 0): CacheOfSuite[] {
  return readCaches(db, listInOrder(db, limit, offset));
}

function listInOrder(db: Db, limit: number, offset: number): bigint[] {
  const { unmeasured, unmeasuredCount, measured } = cachesInOrder(db);
  const first = unmeasured.all(limit, offset);
  const skipped = Math.max(0, offset - Number(unmeasuredCount.get()));
  return [...first, ...measured.all(limit - first.length, skipped)];
}

/** Those that have all words in the names of their suite and project, in the same order. */
export function findCaches(
  db: Db,
  words: readonly string[],
  limit: number,
  offset = 0,
): { caches: CacheOfSuite[]; count: number } {
  const texts = new Map(
    cachesInOrder(db)
      .names.all()
      .map(([suiteId, suite, project]) => [suiteId, `${suite} ${project}`.toLowerCase()]),
  );
  const found = listInOrder(db, Number.MAX_SAFE_INTEGER, 0).filter(suiteId =>
    words.every(word => texts.get(suiteId)?.includes(word.toLowerCase())),
  );
  return { caches: readCaches(db, found.slice(offset, offset + limit)), count: found.length };
}

function readCaches(db: Db, suiteIds: readonly bigint[]): CacheOfSuite[] {
  const rows = db.orm
    .select({ cache: caches, suiteName: suites.name, projectId: projects.id, projectName: projects.name })
    .from(caches)
    .innerJoin(suites, eq(suites.id, caches.suiteId))
    .innerJoin(projects, eq(projects.id, suites.projectId))
    .where(sql`${caches.suiteId} IN (SELECT value FROM json_each(${jsonOf(suiteIds)}))`)
    .all();
  const bySuite = new Map(rows.map(({ cache, ...names }) => [cache.suiteId, { ...cache, ...names }]));
  return suiteIds.flatMap(id => bySuite.get(id) ?? []);
}

/** The sum of the last measured sizes. */
export function sumCaches(db: Db): { count: number; bytes: number } {
  const found = db.orm
    .select({ count: sql<bigint>`count(*)`, bytes: sql<bigint>`coalesce(sum(${caches.sizeBytes}), 0)` })
    .from(caches)
    .get();
  return { count: Number(found?.count ?? 0), bytes: Number(found?.bytes ?? 0) };
}

/** Whether the cache was never measured, or a build has used it since. */
export const isUnmeasured = ({ sizeBytes, measuredAt, usedAt }: Cache): boolean =>
  sizeBytes === null || measuredAt === null || measuredAt <= usedAt;

/** Caches that no running build uses and that may not be empty, least recently used first. */
export function listIdleCaches(db: Db): Cache[] {
  return db.orm
    .select()
    .from(caches)
    .where(
      sql`(size_bytes IS NULL OR size_bytes > ${EMPTY_BYTES} OR measured_at <= used_at) AND NOT ${isUsedByBuild}`,
    )
    .orderBy(asc(caches.usedAt))
    .all();
}

/**
 * Caches that no running build uses and that were never measured, or last measured before `measuredBefore` and used since.
 */
export function listUnmeasuredCaches(
  db: Db,
  { measuredBefore, limit }: { measuredBefore: number; limit: number },
): Cache[] {
  const isDue = sql`(measured_at IS NULL OR (measured_at <= used_at AND measured_at < ${measuredBefore}))`;
  return db.orm
    .select()
    .from(caches)
    .where(sql`${isDue} AND NOT ${isUsedByBuild}`)
    .orderBy(asc(caches.usedAt))
    .limit(limit)
    .all();
}
