// Reads which suites, projects and dependencies use a dependency, directly or transitively, and builds its record.

import { asc, desc, eq, sql } from 'drizzle-orm';
import { presentDependency } from '../contract/records/dependency.ts';
import type { Db } from './database/db.ts';
import { dependencies, projects, relatedDependencies, suiteDependencies, suites } from './database/schema.ts';

export type Dependency = typeof dependencies.$inferSelect;

/** The dependencies it relates to, in the order given. */
export function listRelated(db: Db, id: bigint): Dependency[] {
  return db.orm
    .select({ dependency: dependencies })
    .from(relatedDependencies)
    .innerJoin(dependencies, eq(dependencies.id, relatedDependencies.relatedId))
    .where(eq(relatedDependencies.dependencyId, id))
    .orderBy(asc(relatedDependencies.position))
    .all()
    .map(row => row.dependency);
}

/** The dependencies that relate to it, newest first. */
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

export function dependencyRecord(db: Db, dependency: Dependency) {
  return presentDependency(dependency, listRelated(db, dependency.id));
}

/** The projects whose suites use the dependency, directly or transitively. */
export function listProjectsUsing(db: Db, id: bigint): bigint[] {
  return db.orm
    .all<{ project_id: bigint }>(
      sql`WITH RECURSIVE users (id) AS (
            SELECT ${id}
            UNION
            SELECT r.dependency_id FROM related_dependencies r JOIN users ON r.related_id = users.id
          )
          SELECT DISTINCT s.project_id
          FROM users
          JOIN suite_dependencies sd ON sd.dependency_id = users.id
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
          SELECT r.related_id FROM related_dependencies r JOIN reached ON r.dependency_id = reached.id
        )
        SELECT 1 AS found FROM reached WHERE id = ${to} LIMIT 1`,
  );
  return found.length > 0;
}
