// What waits and what runs, asked by the queue. Each question reads an index of just such rows, however many others there
// are: the literals below are those of the indexes.

import { and, asc, eq, sql } from 'drizzle-orm';
import type { Waiting } from '../domain/fair-queue.ts';
import type { Db } from './db.ts';
import { accounts, buildRequests, builds, dependencies, deploys, projects } from './schema.ts';
import type { Build, BuildRequest, Dependency, Deploy } from './transition.ts';

/** What takes a slot. */
export type ContainerJob = { kind: 'build' | 'dependency'; id: bigint };

const waiting = sql`build_state = 'enqueued'`;
const unfinishedDependency = sql`compile_state IN ('enqueued_for_compile', 'compiling')`;
const unfinishedDeploy = sql`state IN ('enqueued', 'deploying')`;

/** The projects that have such rows in `table`, by leaps through the index: not one step for each row. */
function projectsIn(
  db: Db,
  table: 'builds' | 'build_requests' | 'deploys',
  such: ReturnType<typeof sql>,
): bigint[] {
  const name = sql.raw(table);
  return db.orm
    .all<{ id: bigint | null }>(
      sql`WITH RECURSIVE leaps (id) AS (
            SELECT min(project_id) FROM ${name} WHERE ${such}
            UNION ALL
            SELECT (SELECT min(project_id) FROM ${name} WHERE ${such} AND project_id > leaps.id) FROM leaps
            WHERE leaps.id IS NOT NULL
          )
          SELECT id FROM leaps WHERE id IS NOT NULL`,
    )
    .map(row => row.id as bigint);
}

/** The first build of each project that waits. */
export function listFirstWaitingBuilds(db: Db): Waiting<ContainerJob>[] {
  return projectsIn(db, 'builds', waiting).flatMap(projectId => {
    const first = db.orm
      .select({ id: builds.id })
      .from(builds)
      .where(and(eq(builds.projectId, projectId), waiting))
      .orderBy(asc(builds.id))
      .limit(1)
      .get();
    return first
      ? [{ who: `project ${projectId}`, job: { kind: 'build', id: first.id }, enqueuedAt: first.id }]
      : [];
  });
}

/** The first compile of each account that waits. */
export function listFirstWaitingCompiles(db: Db): Waiting<ContainerJob>[] {
  const rows = db.orm
    .select({ id: dependencies.id, ownerId: dependencies.ownerId, enqueuedAt: dependencies.enqueuedAt })
    .from(dependencies)
    .where(and(unfinishedDependency, eq(dependencies.compileState, 'enqueued_for_compile')))
    .orderBy(asc(dependencies.enqueuedAt))
    .all();
  const first = new Map<bigint, Waiting<ContainerJob>>();
  for (const row of rows)
    if (!first.has(row.ownerId))
      first.set(row.ownerId, {
        who: `account ${row.ownerId}`,
        job: { kind: 'dependency', id: row.id },
        enqueuedAt: row.id,
      });
  return [...first.values()];
}

export function listRunningBuilds(db: Db): Build[] {
  return db.orm.select().from(builds).where(sql`build_state = 'running'`).all();
}

export function listCompiling(db: Db): Dependency[] {
  return db.orm
    .select()
    .from(dependencies)
    .where(and(unfinishedDependency, eq(dependencies.compileState, 'compiling')))
    .all();
}

/** Compiles that run or wait, of all accounts, the longest waiting first. */
export function listUnfinishedCompiles(
  db: Db,
  limit: number,
): { dependency: Dependency; ownerEmail: string }[] {
  return db.orm
    .select({ dependency: dependencies, ownerEmail: accounts.email })
    .from(dependencies)
    .innerJoin(accounts, eq(accounts.id, dependencies.ownerId))
    .where(unfinishedDependency)
    .orderBy(asc(dependencies.enqueuedAt))
    .limit(limit)
    .all();
}

export function listFetching(db: Db): BuildRequest[] {
  return db.orm.select().from(buildRequests).where(sql`build_state = 'fetching'`).all();
}

/** The projects with requests that wait to be fetched. */
export function listProjectsToFetch(db: Db): Waiting<bigint>[] {
  return projectsIn(db, 'build_requests', waiting).flatMap(projectId =>
    listWaitingRequests(db, projectId, 1).map(({ id }) => ({
      who: `fetch ${projectId}`,
      job: projectId,
      enqueuedAt: id,
    })),
  );
}

export function listWaitingRequests(db: Db, projectId: bigint, limit: number): BuildRequest[] {
  return db.orm
    .select()
    .from(buildRequests)
    .where(and(eq(buildRequests.projectId, projectId), waiting))
    .orderBy(asc(buildRequests.id))
    .limit(limit)
    .all();
}

/** The oldest unfinished deploy of each project: one at a time, in order of creation. */
export function listFirstDeploys(db: Db): Waiting<Deploy>[] {
  return projectsIn(db, 'deploys', unfinishedDeploy).flatMap(projectId => {
    const first = db.orm
      .select()
      .from(deploys)
      .where(and(eq(deploys.projectId, projectId), unfinishedDeploy))
      .orderBy(asc(deploys.id))
      .limit(1)
      .get();
    return first ? [{ who: `deploy ${projectId}`, job: first, enqueuedAt: first.id }] : [];
  });
}

const POSITION_HORIZON = 1000;

/** Its place among all that wait when everyone is served in turn; beyond the horizon, at least that far. */
export function positionOf(db: Db, build: Pick<Build, 'id' | 'projectId'>): number {
  const count = (projectId: bigint, limit: number, upTo?: bigint) =>
    Number(
      db.orm.get<{ count: bigint }>(
        sql`SELECT count(*) AS count FROM (
              SELECT 1 FROM builds WHERE project_id = ${projectId} AND ${waiting}
              ${upTo === undefined ? sql`` : sql`AND id <= ${upTo}`} LIMIT ${limit})`,
      )?.count ?? 0n,
    );
  const own = count(build.projectId, POSITION_HORIZON, build.id);
  return projectsIn(db, 'builds', waiting)
    .filter(projectId => projectId !== build.projectId)
    .reduce((sum, projectId) => sum + count(projectId, own), own);
}

// By itself SQLite would go through every build there ever was, since that gives the order for nothing.
const firstUnfinished = (limit: number) =>
  sql`(SELECT id FROM builds INDEXED BY builds_unfinished
       WHERE build_state IN ('enqueued', 'running') ORDER BY id LIMIT ${limit})`;

/** What runs and what waits, of all projects, the longest waiting first. */
export function listUnfinishedBuilds(db: Db, limit: number): { build: Build; projectName: string }[] {
  return db.orm
    .select({ build: builds, projectName: projects.name })
    .from(builds)
    .innerJoin(projects, eq(projects.id, builds.projectId))
    .where(sql`${builds.id} IN ${firstUnfinished(limit)}`)
    .orderBy(asc(builds.id))
    .all();
}
