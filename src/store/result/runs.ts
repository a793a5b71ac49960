// The latest runs of suites, for charts: finished builds with their durations and test counts. Canceled builds and local runs
// are left out, because they say nothing about the suite.

import { and, desc, eq, inArray, ne, sql } from 'drizzle-orm';
import { type BuildState, COMPLETED_BUILDS } from '../../domain/build.ts';
import type { TestCounts } from '../../domain/result/test-result.ts';
import type { Db } from '../database/db.ts';
import { buildRequests, builds, suites } from '../database/schema.ts';

export type Run = {
  id: bigint;
  suiteId: bigint;
  commitRef: string;
  buildState: BuildState;
  startedAt: number | null;
  finishedAt: number | null;
  tests: TestCounts | null;
};

/** How many builds are searched for those of a branch. */
const MAX_SEARCHED = 2_000;
const MAX_BRANCHES = 50;

const columns = {
  id: builds.id,
  suiteId: builds.suiteId,
  commitRef: builds.commitRef,
  buildState: builds.buildState,
  startedAt: builds.startedAt,
  finishedAt: builds.finishedAt,
  tests: builds.tests,
};

const recentBuilds = (suiteId: bigint) =>
  sql`${builds.id} IN (SELECT id FROM builds WHERE suite_id = ${suiteId} AND local = 0 ORDER BY id DESC LIMIT ${MAX_SEARCHED})`;

// By way of requests, of which an index has those that are not local.
const recentBuildsOfProject = (projectId: bigint) =>
  sql`${builds.id} IN (SELECT build.id FROM build_requests AS request CROSS JOIN builds AS build ON build.build_request_id = request.id WHERE request.project_id = ${projectId} AND request.local = 0 ORDER BY request.id DESC LIMIT ${MAX_SEARCHED})`;

/** The latest runs of a suite, oldest first; of `branch` if given. */
export function listRuns(
  db: Db,
  suiteId: bigint,
  options: { branch: string | undefined; limit: number },
): Run[] {
  const { branch, limit } = options;
  return db.orm
    .select(columns)
    .from(builds)
    .innerJoin(buildRequests, eq(buildRequests.id, builds.buildRequestId))
    .where(
      and(
        eq(builds.suiteId, suiteId),
        eq(builds.local, false),
        inArray(builds.buildState, COMPLETED_BUILDS),
        branch === undefined ? undefined : and(recentBuilds(suiteId), eq(buildRequests.branch, branch)),
      ),
    )
    .orderBy(desc(builds.id))
    .limit(limit)
    .all()
    .reverse();
}

/** The branches of the latest builds of a suite, the one built last first. */
export function listBranches(db: Db, suiteId: bigint): string[] {
  return db.orm
    .select({ branch: buildRequests.branch })
    .from(builds)
    .innerJoin(buildRequests, eq(buildRequests.id, builds.buildRequestId))
    .where(and(recentBuilds(suiteId), ne(buildRequests.branch, '')))
    .groupBy(buildRequests.branch)
    .orderBy(sql`max(${builds.id}) DESC`)
    .limit(MAX_BRANCHES)
    .all()
    .map(({ branch }) => branch);
}

export type Trend = { id: bigint; name: string; runs: Run[] };

/** The latest runs of a project's suites, oldest suite first. If there are many, those that did not pass are preferred. */
export function listTrends(db: Db, projectId: bigint, limits: { suites: number; runs: number }): Trend[] {
  const chosen = db.orm
    .select({ id: suites.id, name: suites.name })
    .from(builds)
    .innerJoin(suites, eq(suites.id, builds.suiteId))
    .where(and(recentBuildsOfProject(projectId), inArray(builds.buildState, COMPLETED_BUILDS)))
    .groupBy(suites.id)
    // With max(), SQLite takes the state from the row that has the maximum.
    .orderBy(sql`${builds.buildState} = 'passed'`, sql`max(${builds.id}) DESC`)
    .limit(limits.suites)
    .all();
  return chosen
    .toSorted((a, b) => Number(a.id - b.id))
    .map(suite => ({ ...suite, runs: listRuns(db, suite.id, { branch: undefined, limit: limits.runs }) }));
}
