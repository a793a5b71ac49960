// Reads which suites, projects and dependencies use a dependency, directly or transitively, and builds its record.

import { and, asc, count, desc, eq, isNotNull, ne, type SQL, sql } from 'drizzle-orm';
import { presentDependency } from '../contract/records/dependency.ts';
import { orderDependencies } from '../domain/container/artifact-mounts.ts';
import { orderByRelation, UNFINISHED_COMPILES } from '../domain/dependency.ts';
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

export type Dependency = typeof dependencies.$inferSelect;
type KeptVersion = typeof keptVersions.$inferSelect;

/** A dependency as one of its users gets it. `kept` is null if that is the current version. */
export type UsedDependency = Dependency & { kept: KeptVersion | null };

/** Replaces what the owner may have changed since by the version that the user keeps, if there is one. */
export function asUsed({
  dependency,
  kept,
}: {
  dependency: Dependency;
  kept: KeptVersion | null;
}): UsedDependency {
  if (!kept) return { ...dependency, kept };
  const { name, prefix, artifactHash, launchCommand, launchSeconds, environment, libraryPath } = kept;
  const version = { name, prefix, artifactHash, launchCommand, launchSeconds, environment, libraryPath };
  return { ...dependency, ...version, compileState: 'compiled', error: null, kept };
}

/** The dependencies it relates to, in the order given. Its next compile uses them. */
export const listRelated = (db: Db, id: bigint): UsedDependency[] =>
  listRelations(db, id, eq(relatedDependencies.removed, false), relatedDependencies.position);

const listRelations = (
  db: Db,
  id: bigint,
  condition: SQL,
  order: typeof relatedDependencies.position | typeof relatedDependencies.compiledPosition,
): UsedDependency[] =>
  db.orm
    .select({ dependency: dependencies, kept: keptVersions })
    .from(relatedDependencies)
    .innerJoin(dependencies, eq(dependencies.id, relatedDependencies.relatedId))
    .leftJoin(keptVersions, eq(keptVersions.id, relatedDependencies.keptVersionId))
    .where(and(eq(relatedDependencies.dependencyId, id), condition))
    .orderBy(asc(order))
    .all()
    .map(asUsed);

/**
 * The dependencies that a version of a dependency was compiled with, in order. Whoever uses its artifact needs them too.
 * Those of a kept version are kept too.
 */
export function listRelatedVersions(db: Db, { id, kept }: UsedDependency): UsedDependency[] {
  const { compiledPosition } = relatedDependencies;
  if (!kept) return listRelations(db, id, isNotNull(compiledPosition), compiledPosition);
  return db.orm
    .select({ dependency: dependencies, kept: keptVersions })
    .from(keptRelations)
    .innerJoin(keptVersions, eq(keptVersions.id, keptRelations.relatedId))
    .innerJoin(dependencies, eq(dependencies.id, keptVersions.dependencyId))
    .where(eq(keptRelations.versionId, kept.id))
    .orderBy(asc(keptRelations.position))
    .all()
    .map(asUsed);
}

/** The dependencies that relate to it or were compiled with it, newest first. */
export function listRelating(db: Db, id: bigint): Dependency[] {
  return db.orm
    .select({ dependency: dependencies })
    .from(relatedDependencies)
    .innerJoin(dependencies, eq(dependencies.id, relatedDependencies.dependencyId))
    .where(eq(relatedDependencies.relatedId, id))
    .orderBy(desc(dependencies.id))
    .all()
    .map(row => row.dependency);
}

type SuiteUse = { projectId: bigint; projectName: string; suiteId: bigint; suiteName: string };

/** The suites of all accounts that it is attached to. */
export function listSuitesUsing(db: Db, id: bigint): SuiteUse[] {
  return db.orm
    .select({
      projectId: projects.id,
      projectName: projects.name,
      suiteId: suites.id,
      suiteName: suites.name,
    })
    .from(suiteDependencies)
    .innerJoin(suites, eq(suites.id, suiteDependencies.suiteId))
    .innerJoin(projects, eq(projects.id, suites.projectId))
    .where(eq(suiteDependencies.dependencyId, id))
    .orderBy(asc(projects.name), asc(suites.name))
    .all();
}

/** How many suites and dependencies of other accounts use it directly. */
export function countUsesByOthers(
  db: Db,
  { id, ownerId }: Dependency,
): { suites: number; dependencies: number } {
  const [suiteUses] = db.orm
    .select({ count: count() })
    .from(suiteDependencies)
    .innerJoin(suites, eq(suites.id, suiteDependencies.suiteId))
    .innerJoin(projects, eq(projects.id, suites.projectId))
    .where(and(eq(suiteDependencies.dependencyId, id), ne(projects.ownerId, ownerId)))
    .all();
  const [relations] = db.orm
    .select({ count: count() })
    .from(relatedDependencies)
    .innerJoin(dependencies, eq(dependencies.id, relatedDependencies.dependencyId))
    .where(and(eq(relatedDependencies.relatedId, id), ne(dependencies.ownerId, ownerId)))
    .all();
  return { suites: Number(suiteUses?.count ?? 0), dependencies: Number(relations?.count ?? 0) };
}

export function dependencyRecord(
  db: Db,
  dependency: Dependency,
  waiting?: { position: number; reason: string },
) {
  const related = listRelated(db, dependency.id);
  const { artifactHash } = dependency;
  return presentDependency(dependency, related, {
    artifact: artifactHash === null ? undefined : findArtifact(db, artifactHash),
    waiting,
    outdated: isOutdated(db, dependency, related),
  });
}

/** Whether its artifact was compiled with other artifacts of related dependencies than there are now. */
export function isOutdated(
  db: Db,
  { id, artifactHash, relatedArtifacts }: Dependency,
  related: readonly UsedDependency[] = listRelated(db, id),
): boolean {
  if (artifactHash === null || relatedArtifacts === null) return false;
  const { search } = orderDependencies(related, one => listRelatedVersions(db, one));
  return JSON.stringify(search.map(one => one.artifactHash)) !== relatedArtifacts;
}

/** What it relates to, directly or transitively, whose artifact is not one that it was compiled with. */
export function listChangedRelated(db: Db, { id, relatedArtifacts }: Dependency): Dependency[] {
  const compiledWith = JSON.parse(relatedArtifacts ?? '[]') as string[];
  const { search } = orderDependencies(listRelated(db, id), one => listRelatedVersions(db, one));
  return search.filter(({ artifactHash }) => artifactHash === null || !compiledWith.includes(artifactHash));
}

/**
 * The dependencies that relate to it, directly or transitively, each after those that it relates to. Those that keep a
 * version of it do not count, because it does not change any more.
 */
export function listDependents(db: Db, id: bigint): Dependency[] {
  const dependents = db.orm
    .select()
    .from(dependencies)
    .where(
      sql`${dependencies.id} IN (
        WITH RECURSIVE users (id) AS (
          SELECT dependency_id FROM related_dependencies WHERE related_id = ${id} AND kept_version_id IS NULL
          UNION
          SELECT r.dependency_id FROM related_dependencies r JOIN users ON r.related_id = users.id
          WHERE kept_version_id IS NULL
        )
        SELECT id FROM users)`,
    )
    .orderBy(asc(dependencies.id))
    .all();
  const ids = new Set(dependents.map(one => one.id));
  return orderByRelation<Dependency>(dependents, one => listRelated(db, one.id)).filter(one =>
    ids.has(one.id),
  );
}

/** Whether a compile could change the artifact: it is outdated, or its only compiles failed. */
export function canCompileAgain(db: Db, dependency: Dependency): boolean {
  if (dependency.archiveHash === null || UNFINISHED_COMPILES.includes(dependency.compileState)) return false;
  return dependency.artifactHash === null || isOutdated(db, dependency);
}

/** The projects whose suites use the current version of the dependency, directly or transitively. */
export function listProjectsUsing(db: Db, id: bigint): bigint[] {
  return db.orm
    .all<{ project_id: bigint }>(
      sql`WITH RECURSIVE users (id) AS (
            SELECT ${id}
            UNION
            SELECT r.dependency_id FROM related_dependencies r JOIN users ON r.related_id = users.id
            WHERE r.kept_version_id IS NULL
          )
          SELECT DISTINCT s.project_id
          FROM users
          JOIN suite_dependencies sd ON sd.dependency_id = users.id AND sd.kept_version_id IS NULL
          JOIN suites s ON s.id = sd.suite_id
          ORDER BY s.project_id`,
    )
    .map(row => row.project_id);
}

/** Whether `from` relates to `to`, directly or transitively. Used to prevent cycles. */
export function relatesTo(db: Db, from: bigint, to: bigint): boolean {
  const found = db.orm.all<{ found: bigint }>(
    sql`WITH RECURSIVE reached (id) AS (
          SELECT ${from}
          UNION
          SELECT r.related_id FROM related_dependencies r
          JOIN reached ON r.dependency_id = reached.id AND r.removed = 0
        )
        SELECT 1 AS found FROM reached WHERE id = ${to} LIMIT 1`,
  );
  return found.length > 0;
}
