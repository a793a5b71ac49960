// The index of the files that builds produced. The content of a build's files is one ZIP: src/engine/archive/build-zip.ts.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { and, asc, eq, getTableColumns, gt, type SQL, sql } from 'drizzle-orm';
import { type Db, insertInto, prepared } from '../database/db.ts';
import { buildArtifacts } from '../database/result-schema.ts';
import { builds } from '../database/schema.ts';
import { writeInBatches } from './pace.ts';

export type BuildArtifact = typeof buildArtifacts.$inferSelect;
export type NewBuildArtifact = Omit<BuildArtifact, 'id' | 'buildId'>;

const ROWS_AT_ONCE = 200;

const insertArtifact = insertInto(buildArtifacts);
const buildById = prepared(({ sqlite }) => sqlite.prepare<[bigint]>('SELECT id FROM builds WHERE id = ?'));

/**
 * Inserts the index of a build, in order of the given list, which may be long: other work continues between the batches.
 * Replaces what a server that was killed meanwhile had inserted.
 */
export async function replaceBuildArtifacts(
  db: Db,
  buildId: bigint,
  artifacts: readonly NewBuildArtifact[],
): Promise<void> {
  await deleteBuildArtifacts(db, buildId);
  await writeInBatches(db, artifacts, artifact => {
    // The build may have been deleted with its project.
    if (buildById(db).get(buildId)) insertArtifact(db, { ...artifact, id: db.newId(), buildId });
  });
}

const deleteSome = prepared(({ sqlite }) =>
  sqlite.prepare(
    `DELETE FROM build_artifacts WHERE rowid IN (SELECT rowid FROM build_artifacts WHERE build_id = ? LIMIT ${ROWS_AT_ONCE})`,
  ),
);

/** Deletes the index of a build, in batches. */
export async function deleteBuildArtifacts(db: Db, buildId: bigint): Promise<void> {
  while (db.write(() => deleteSome(db).run(buildId).changes) === ROWS_AT_ONCE) {
    await db.checkpoint;
    await nextTurn();
  }
}

const markReport = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint, string]>('UPDATE build_artifacts SET report = 1 WHERE build_id = ? AND path = ?'),
);

/** Marks the artifacts that were read as test reports. */
export const markReports = (db: Db, buildId: bigint, paths: readonly string[]): Promise<void> =>
  writeInBatches(db, paths, path => markReport(db).run(buildId, path));

/** Of a build, or of all: the artifacts whose SHA-256 is not known. Those of a build that runs are not among them. */
export function listUnhashedArtifacts(db: Db, buildId?: bigint): BuildArtifact[] {
  return db.orm
    .select(getTableColumns(buildArtifacts))
    .from(buildArtifacts)
    .innerJoin(builds, isCounted)
    .where(and(sql`sha256 = ''`, buildId === undefined ? undefined : eq(buildArtifacts.buildId, buildId)))
    .all();
}

export function recordArtifactHash(db: Db, id: bigint, sha256: string): void {
  db.write(() => db.orm.update(buildArtifacts).set({ sha256 }).where(eq(buildArtifacts.id, id)).run());
}

export type ArtifactCounts = { artifacts: number; artifactsBytes: number; artifactsTruncated: boolean };

/** Its rows are visible once the build's record counts them: before that they are being collected, or deleted. */
const isCounted = and(eq(builds.id, buildArtifacts.buildId), gt(builds.artifacts, 0));

export function findBuildArtifact(db: Db, buildId: bigint, id: bigint): BuildArtifact | undefined {
  return findWhere(db, and(eq(buildArtifacts.buildId, buildId), eq(buildArtifacts.id, id)));
}

export function findBuildArtifactByPath(db: Db, buildId: bigint, path: string): BuildArtifact | undefined {
  return findWhere(db, and(eq(buildArtifacts.buildId, buildId), eq(buildArtifacts.path, path)));
}

const findWhere = (db: Db, condition: SQL | undefined): BuildArtifact | undefined =>
  db.orm
    .select(getTableColumns(buildArtifacts))
    .from(buildArtifacts)
    .innerJoin(builds, isCounted)
    .where(condition)
    .get();

/** In order of path, from after `afterPath` on. */
export function listBuildArtifacts(
  db: Db,
  buildId: bigint,
  { afterPath = '', limit }: { afterPath?: string | undefined; limit: number },
): BuildArtifact[] {
  return db.orm
    .select(getTableColumns(buildArtifacts))
    .from(buildArtifacts)
    .innerJoin(builds, isCounted)
    .where(and(eq(buildArtifacts.buildId, buildId), gt(buildArtifacts.path, afterPath)))
    .orderBy(asc(buildArtifacts.path))
    .limit(limit)
    .all();
}

const allPaths = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint], [id: bigint, path: string, sizeBytes: bigint]>(
      'SELECT id, path, size_bytes FROM build_artifacts WHERE build_id = ? ORDER BY path',
    )
    .raw(),
);

/** All files of a build, which may be ten thousand, in order of path. */
export function listArtifactPaths(
  db: Db,
  build: { id: bigint; artifacts: number },
): { id: bigint; path: string; sizeBytes: number }[] {
  if (build.artifacts === 0) return [];
  return allPaths(db)
    .all(build.id)
    .map(([id, path, sizeBytes]) => ({ id, path, sizeBytes: Number(sizeBytes) }));
}

/** Whatever project it belongs to: the caller checks access. */
export function findAnyBuild(db: Db, id: bigint): typeof builds.$inferSelect | undefined {
  return db.orm.select().from(builds).where(eq(builds.id, id)).get();
}
