// The versions of dependencies that accounts keep when the owner stops sharing them: made at that moment, and deleted when
// nobody uses them any more.

import { and, eq, exists, inArray, ne, sql } from 'drizzle-orm';
import { findArtifact } from './artifacts.ts';
import type { Db } from './database/db.ts';
import {
  dependencies,
  keptRelations,
  keptVersions,
  relatedDependencies,
  suiteDependencies,
} from './database/dependency-schema.ts';
import { projects, suites } from './database/schema.ts';
import {
  countUsesByOthers,
  type Dependency,
  listRelatedVersions,
  type UsedDependency,
} from './dependency-use.ts';

/** Suites and dependencies of other accounts get the version as it is now, with those that it relates to. */
export function keepForOthers(db: Db, dependency: Dependency): void {
  const uses = countUsesByOthers(db, dependency);
  if (uses.suites + uses.dependencies === 0) return;
  const keptVersionId = keepVersion(db, { ...dependency, kept: null }, new Map());
  const otherSuites = db.orm
    .select({ id: suites.id })
    .from(suites)
    .innerJoin(projects, eq(projects.id, suites.projectId))
    .where(and(eq(suites.id, suiteDependencies.suiteId), ne(projects.ownerId, dependency.ownerId)));
  db.orm
    .update(suiteDependencies)
    .set({ keptVersionId })
    .where(and(eq(suiteDependencies.dependencyId, dependency.id), exists(otherSuites)))
    .run();
  const others = db.orm
    .select({ id: dependencies.id })
    .from(dependencies)
    .where(ne(dependencies.ownerId, dependency.ownerId));
  db.orm
    .update(relatedDependencies)
    .set({ keptVersionId })
    .where(
      and(
        eq(relatedDependencies.relatedId, dependency.id),
        inArray(relatedDependencies.dependencyId, others),
      ),
    )
    .run();
}

/** Returns the id of the kept version; undefined if it was never compiled. */
function keepVersion(db: Db, used: UsedDependency, made: Map<bigint, bigint>): bigint | undefined {
  const found = used.kept?.id ?? made.get(used.id);
  if (found !== undefined || used.artifactHash === null) return found;
  const { name, artifactHash, launchCommand, launchSeconds, environment, libraryPath } = used;
  // The owner may have changed the prefix since the compile.
  const prefix = findArtifact(db, artifactHash)?.prefix ?? used.prefix;
  const versionId = db.newId();
  made.set(used.id, versionId);
  db.orm
    .insert(keptVersions)
    .values({
      id: versionId,
      dependencyId: used.id,
      name,
      prefix,
      artifactHash,
      launchCommand,
      launchSeconds,
      environment,
      libraryPath,
      createdAt: db.now(),
    })
    .run();
  for (const [position, related] of listRelatedVersions(db, used).entries()) {
    const relatedId = keepVersion(db, related, made);
    if (relatedId !== undefined)
      db.orm.insert(keptRelations).values({ versionId, relatedId, position }).run();
  }
  return versionId;
}

/** Everybody who uses the dependency directly gets its current version again. */
export function followCurrentVersion(db: Db, { id }: Dependency): void {
  const keptVersionId = null;
  db.orm.update(suiteDependencies).set({ keptVersionId }).where(eq(suiteDependencies.dependencyId, id)).run();
  db.orm
    .update(relatedDependencies)
    .set({ keptVersionId })
    .where(eq(relatedDependencies.relatedId, id))
    .run();
}

/** The kept versions that suites and dependencies use, and those that these relate to. */
const usedVersions = sql`(
  WITH RECURSIVE used (id) AS (
    SELECT kept_version_id FROM suite_dependencies WHERE kept_version_id IS NOT NULL
    UNION
    SELECT kept_version_id FROM related_dependencies WHERE kept_version_id IS NOT NULL
    UNION
    SELECT r.related_id FROM kept_relations r JOIN used ON r.version_id = used.id
  )
  SELECT id FROM used
)`;

/** Whether somebody keeps a version of the dependency. */
export function isVersionKept(db: Db, dependencyId: bigint): boolean {
  const found = db.orm
    .select({ id: keptVersions.id })
    .from(keptVersions)
    .where(and(eq(keptVersions.dependencyId, dependencyId), sql`${keptVersions.id} IN ${usedVersions}`))
    .limit(1)
    .get();
  return found !== undefined;
}

export function deleteUnusedVersions(db: Db): void {
  const isUnused = sql`${keptVersions.id} NOT IN ${usedVersions}`;
  // The sweep calls it often, and a transaction that changes nothing still costs a sync.
  if (db.orm.select({ id: keptVersions.id }).from(keptVersions).where(isUnused).limit(1).get())
    db.write(() => db.orm.delete(keptVersions).where(isUnused).run());
}
