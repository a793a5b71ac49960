// The latest runs of suites and projects, for charts and figures: finished builds and build requests with their durations and
// test counts. Canceled ones and local runs are left out, because they say nothing about the suite.

import { COMPLETED_BUILDS } from '../../domain/build.ts';
import { idAt } from '../../domain/id.ts';
import { type BuildSteps, type HistoryRun, median } from '../../domain/result/history.ts';
import type { TestCounts } from '../../domain/result/test-result.ts';
import { type Db, jsonOf, prepared } from '../database/db.ts';
import { createPace } from './pace.ts';

export type Run = HistoryRun & {
  id: bigint;
  commitRef: string;
  createdAt: number;
  tests: TestCounts | null;
};

/** How many builds are searched for those of a branch. */
const MAX_SEARCHED = 2_000;
/** How many builds or requests are searched for the names of branches. Others can be typed. */
const MAX_NAMED = 100;
const MAX_BRANCHES = 50;
/** How many of the latest builds of a project give the order of its suites. */
const MAX_RANKED = 600;
/** How many builds of a week are enough for its median. */
const MAX_OF_WEEK = 200;
const WEEK_MS = 7 * 86_400_000;

const completed = COMPLETED_BUILDS.map(state => `'${state}'`).join(', ');
// Builds of a fork's pull request are on no branch of the repository.
const branchOf = "CASE WHEN request.pull_request IS NULL THEN request.branch ELSE '' END";

type BriefRow = [bigint, string, bigint | null, bigint | null];
type BranchedRow = [...BriefRow, string];
type RunRow = [...BranchedRow, bigint, string, string | null];

const runStatements = prepared(({ sqlite }) => {
  // All of these are in the index builds_suite.
  const columns = 'build.id, build.build_state, build.started_at, build.finished_at';
  const latest = (condition: string) =>
    `${condition} AND build.build_state IN (${completed}) ORDER BY build.id DESC LIMIT ?`;
  const select = (condition: string, more = '') =>
    `SELECT ${columns}, ${branchOf}${more}
     FROM builds AS build CROSS JOIN build_requests AS request ON request.id = build.build_request_id
     WHERE ${latest(condition)}`;
  const details = ', build.created_at, build.commit_ref, build.tests';
  const ofSuite = 'build.suite_id = ? AND build.local = 0';
  return {
    brief: sqlite
      .prepare<[bigint, number], BriefRow>(`SELECT ${columns} FROM builds AS build WHERE ${latest(ofSuite)}`)
      .raw(),
    branched: sqlite.prepare<[bigint, number], BranchedRow>(select(ofSuite)).raw(),
    all: sqlite.prepare<[bigint, number], RunRow>(select(ofSuite, details)).raw(),
    ofBranch: sqlite
      .prepare<[bigint, string, number], RunRow>(
        select(
          `build.id IN (SELECT id FROM builds WHERE suite_id = ? AND local = 0 ORDER BY id DESC LIMIT ${MAX_SEARCHED}) AND request.branch = ? AND request.pull_request IS NULL`,
          details,
        ),
      )
      .raw(),
  };
});

const time = (ms: bigint | null) => (ms === null ? null : Number(ms));

const toBriefRun = ([id, state, startedAt, finishedAt]: readonly [...BriefRow, ...unknown[]]): BriefRun => ({
  id,
  state,
  startedAt: time(startedAt),
  finishedAt: time(finishedAt),
});
const toBranchedRun = (row: BranchedRow | RunRow): BranchedRun => ({ ...toBriefRun(row), branch: row[4] });

/** The latest runs of a suite, oldest first; of `branch` if given. */
export function listRuns(
  db: Db,
  suiteId: bigint,
  { branch, limit }: { branch: string | undefined; limit: number },
): Run[] {
  const { all, ofBranch } = runStatements(db);
  const rows = branch === undefined ? all.all(suiteId, limit) : ofBranch.all(suiteId, branch, limit);
  return rows
    .map(row => {
      const [, , , , , createdAt, commitRef, tests] = row;
      return {
        ...toBranchedRun(row),
        createdAt: Number(createdAt),
        commitRef,
        tests: tests === null ? null : (JSON.parse(tests) as TestCounts),
      };
    })
    .reverse();
}

const stepsOfBuilds = prepared(({ sqlite }) =>
  sqlite
    .prepare<[string], string>(
      'SELECT steps FROM builds WHERE id IN (SELECT value FROM json_each(?)) AND steps IS NOT NULL',
    )
    .pluck(),
);

/** How long the steps of these builds took. Those of which it is not known are missing. */
export const listSteps = (db: Db, buildIds: readonly bigint[]): BuildSteps[] =>
  stepsOfBuilds(db)
    .all(jsonOf(buildIds))
    .map(steps => JSON.parse(steps) as BuildSteps);

const suiteBranches = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint], string>(
      `SELECT request.branch FROM builds AS build CROSS JOIN build_requests AS request ON request.id = build.build_request_id
       WHERE build.id IN (SELECT id FROM builds WHERE suite_id = ? AND local = 0 ORDER BY id DESC LIMIT ${MAX_NAMED})
         AND request.branch <> '' AND request.pull_request IS NULL
       GROUP BY request.branch ORDER BY max(build.id) DESC LIMIT ${MAX_BRANCHES}`,
    )
    .pluck(),
);

/** The branches of the latest builds of a suite, the one built last first. */
export const listBranches = (db: Db, suiteId: bigint): string[] => suiteBranches(db).all(suiteId);

const weekStatements = prepared(({ sqlite }) => {
  // The index builds_passed has the same condition and all columns of the builds.
  const passed =
    "build.suite_id = ? AND build.build_state = 'passed' AND build.local = 0 AND build.id >= ? AND build.id < ?";
  return {
    all: sqlite
      .prepare<[bigint, bigint, bigint], bigint>(
        `SELECT build.finished_at - build.started_at FROM builds AS build INDEXED BY builds_passed WHERE ${passed} ORDER BY build.id DESC LIMIT ${MAX_OF_WEEK}`,
      )
      .pluck(),
    ofBranch: sqlite
      .prepare<[string, bigint, bigint, bigint], bigint>(
        `SELECT build.finished_at - build.started_at FROM builds AS build
         CROSS JOIN build_requests AS request ON request.id = build.build_request_id AND request.branch = ? AND request.pull_request IS NULL
         WHERE build.id IN (SELECT build.id FROM builds AS build INDEXED BY builds_passed WHERE ${passed} ORDER BY build.id DESC LIMIT ${MAX_OF_WEEK})`,
      )
      .pluck(),
  };
});

type Week = { builds: number; medianMs: number };

/** The durations of the builds that passed in the last seven days, and in the seven days before. Undefined if there were none. */
export function compareWeeks(
  db: Db,
  suiteId: bigint,
  branch: string | undefined,
): [thisWeek: Week | undefined, lastWeek: Week | undefined] {
  const { all, ofBranch } = weekStatements(db);
  const weekBefore = (ms: number) => {
    const [from, to] = [idAt(ms - WEEK_MS), idAt(ms)];
    const found = branch === undefined ? all.all(suiteId, from, to) : ofBranch.all(branch, suiteId, from, to);
    const medianMs = median(found.map(Number));
    return medianMs === undefined ? undefined : { builds: found.length, medianMs };
  };
  return [weekBefore(db.now() + 1), weekBefore(db.now() - WEEK_MS)];
}

export type RequestRun = HistoryRun & { id: bigint; commitRef: string; commitId: bigint };

type RequestRow = [bigint, string, bigint, string, bigint, bigint | null, string];

const requestStatements = prepared(({ sqlite }) => {
  const select = (condition: string) => {
    const searched = `project_id = @project AND ${condition} AND local = 0`;
    return sqlite
      .prepare<{ project: bigint; branch?: string; limit: number }, RequestRow>(
        `SELECT request.id, request.commit_ref, request.commit_id, request.build_state, request.created_at, request.finished_at, ${branchOf}
         FROM build_requests AS request
         WHERE ${searched} AND request.build_state IN ('passed', 'failed', 'errored') AND request.commit_id IS NOT NULL
           -- The oldest one that is searched.
           AND request.id >= coalesce((SELECT id FROM build_requests WHERE ${searched} ORDER BY id DESC LIMIT 1 OFFSET ${MAX_SEARCHED - 1}), 0)
         ORDER BY request.id DESC LIMIT @limit`,
      )
      .raw();
  };
  return { all: select('1'), ofBranch: select('branch = @branch AND pull_request IS NULL') };
});

/** The latest finished build requests of a project, oldest first; of `branch` if given. They start when they are created. */
export function listRequestRuns(
  db: Db,
  projectId: bigint,
  { branch, limit }: { branch: string | undefined; limit: number },
): RequestRun[] {
  const { all, ofBranch } = requestStatements(db);
  const options = { project: projectId, limit };
  const rows = branch === undefined ? all.all(options) : ofBranch.all({ ...options, branch });
  return rows
    .map(([id, commitRef, commitId, state, createdAt, finishedAt, onBranch]) => ({
      id,
      commitRef,
      commitId,
      state,
      startedAt: Number(createdAt),
      finishedAt: time(finishedAt),
      branch: onBranch,
    }))
    .reverse();
}

const projectBranches = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint], string>(
      `SELECT branch FROM build_requests
       WHERE id IN (SELECT id FROM build_requests WHERE project_id = ? AND local = 0 ORDER BY id DESC LIMIT ${MAX_NAMED})
         AND branch <> '' AND pull_request IS NULL
       GROUP BY branch ORDER BY max(id) DESC LIMIT ${MAX_BRANCHES}`,
    )
    .pluck(),
);

/** The branches of the latest build requests of a project, the one built last first. */
export const listProjectBranches = (db: Db, projectId: bigint): string[] =>
  projectBranches(db).all(projectId);

export const suiteOrders = ['failing', 'slowest'] as const;
export type SuiteOrder = (typeof suiteOrders)[number];

const rankStatements = prepared(({ sqlite }) => {
  // By way of requests, of which an index has those that are not local.
  const rank = (order: string) =>
    sqlite.prepare<[bigint, bigint, number, number], { id: bigint; name: string }>(
      `WITH recent AS MATERIALIZED (
         SELECT build.suite_id, build.id, build.build_state AS state, build.finished_at - build.started_at AS ms
         FROM build_requests AS request CROSS JOIN builds AS build ON build.build_request_id = request.id
         WHERE request.project_id = ? AND request.local = 0 ORDER BY request.id DESC LIMIT ${MAX_RANKED}
       ), ranked AS MATERIALIZED (
         -- With max(), SQLite takes the other column from the row that has the maximum.
         SELECT suite_id, max(id), state <> 'passed' AS failing, sum(state <> 'passed') AS failures, avg(ms) AS ms
         FROM recent WHERE state IN (${completed}) GROUP BY suite_id
       )
       SELECT suite.id AS id, suite.name AS name FROM suites AS suite LEFT JOIN ranked ON ranked.suite_id = suite.id
       WHERE suite.project_id = ? ORDER BY ${order} NULLS LAST, suite.id LIMIT ? OFFSET ?`,
    );
  return {
    failing: rank('ranked.failing DESC NULLS LAST, ranked.failures DESC'),
    slowest: rank('ranked.ms DESC'),
  } satisfies Record<SuiteOrder, unknown>;
});

/**
 * The suites of a project by its latest builds: those that fail now first and then by failures, or the slowest first. Those
 * that have not run for long come last.
 */
export const rankSuites = (
  db: Db,
  projectId: bigint,
  options: { order: SuiteOrder; limit: number; offset: number },
): { id: bigint; name: string }[] =>
  rankStatements(db)[options.order].all(projectId, projectId, options.limit, options.offset);

/** What a list of suites shows of a run. */
export type BriefRun = Omit<BranchedRun, 'branch'>;
export type BranchedRun = Pick<Run, 'id' | 'state' | 'startedAt' | 'finishedAt' | 'branch'>;
type Named = { id: bigint; name: string };
export type SuiteRuns<T = BranchedRun> = Named & { runs: T[] };

/** The latest runs of each suite, oldest first. Leaves time for other requests. */
export const listSuiteRuns = (
  db: Db,
  suites: readonly Named[],
  limit: number,
): Promise<SuiteRuns<BriefRun>[]> =>
  readRuns(suites, id => runStatements(db).brief.all(id, limit).map(toBriefRun));

/** The same with branches, which takes longer. */
export const listBranchedRuns = (db: Db, suites: readonly Named[], limit: number): Promise<SuiteRuns[]> =>
  readRuns(suites, id => runStatements(db).branched.all(id, limit).map(toBranchedRun));

async function readRuns<T>(
  suites: readonly Named[],
  newestFirst: (id: bigint) => T[],
): Promise<SuiteRuns<T>[]> {
  const pace = createPace();
  const listed: SuiteRuns<T>[] = [];
  for (const { id, name } of suites) {
    listed.push({ id, name, runs: newestFirst(id).reverse() });
    if (pace.isDue()) await pace.wait();
  }
  return listed;
}
