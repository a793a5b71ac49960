// Summaries of many rows for pages, each in one or two queries however many rows there are.

import { and, desc, eq, getTableColumns, inArray, sql } from 'drizzle-orm';
import type { BuildRequestState, BuildState } from '../domain/build.ts';
import type { Commit } from './builds.ts';
import { type Db, jsonOf, prepared } from './database/db.ts';
import { suiteDependencies } from './database/dependency-schema.ts';
import { limitWithNext, olderThan, type Page } from './database/page.ts';
import { commits, environmentVariables, suiteRules, suites } from './database/schema.ts';
import type { Build } from './transition.ts';

/** A commit without its lists, which may be long. */
export type CommitHead = Omit<Commit, 'files' | 'branches' | 'tags'>;

const { files: _files, branches: _branches, tags: _tags, ...fields } = getTableColumns(commits);
export const headFields = fields;

export function listCommitHeads(db: Db, projectId: bigint, page: Page): CommitHead[] {
  return db.orm
    .select(headFields)
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.local, false), olderThan(commits.id, page)))
    .orderBy(desc(commits.id))
    .limit(limitWithNext(page))
    .all();
}

export function findCommitHeads(db: Db, ids: readonly bigint[]): Map<bigint, CommitHead> {
  const rows = db.orm
    .select(headFields)
    .from(commits)
    .where(inArray(commits.id, [...ids]))
    .all();
  return new Map(rows.map(row => [row.id, row]));
}

type Run = { ms: number; state: BuildRequestState };
export type ProjectSummary = { commit: CommitHead | undefined; runs: Run[] };

// Without drizzle, because a list of projects reads many.
const latestRequests = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint, number], [BuildRequestState, bigint, bigint | null]>(
      `SELECT build_state, created_at, finished_at FROM build_requests
       WHERE project_id = ? AND local = 0 ORDER BY id DESC LIMIT ?`,
    )
    .raw(),
);

function listLatestRuns(db: Db, projectId: bigint, limit: number): Run[] {
  return latestRequests(db)
    .all(projectId, limit)
    .flatMap(([state, createdAt, finishedAt]) =>
      finishedAt === null ? [] : [{ ms: Number(finishedAt - createdAt), state }],
    )
    .reverse();
}

/** The newest commit of each project, and the durations of its latest requests, oldest first. Without local runs. */
export function summarizeProjects(
  db: Db,
  projectIds: readonly bigint[],
  runs: number,
): Map<bigint, ProjectSummary> {
  const ids = jsonOf(projectIds);
  const summaries = new Map<bigint, ProjectSummary>(
    projectIds.map(id => [id, { commit: undefined, runs: listLatestRuns(db, id, runs) }]),
  );
  const newest = db.orm
    .select(headFields)
    .from(commits)
    .where(
      sql`${commits.id} IN (SELECT (SELECT id FROM commits WHERE project_id = project.value AND local = 0 ORDER BY id DESC LIMIT 1) FROM json_each(${ids}) AS project)`,
    )
    .all();
  for (const commit of newest) {
    const summary = summaries.get(commit.projectId);
    if (summary) summary.commit = commit;
  }
  return summaries;
}

/** The fields of a build that overviews show. */
export type BuildHead = Pick<
  Build,
  'id' | 'suiteId' | 'suiteName' | 'buildState' | 'startedAt' | 'finishedAt'
>;

type HeadRow = [bigint, bigint, string, BuildState, bigint | null, bigint | null];

// With max(), SQLite takes the other columns from the row that has the maximum.
const latestBuilds = prepared(({ sqlite }) => {
  const heads = (condition: string) =>
    `SELECT max(id), suite_id, suite_name, build_state, started_at, finished_at FROM builds
     WHERE commit_id = ? AND ${condition} GROUP BY suite_id`;
  return {
    all: sqlite.prepare<[bigint], HeadRow>(heads('1')).raw(),
    ofSuites: sqlite
      .prepare<[bigint, string], HeadRow>(heads('suite_id IN (SELECT value FROM json_each(?))'))
      .raw(),
    // All columns are in the index, whose order puts the newest build of a suite last. One text for all suites: that is
    // faster than many rows.
    states: sqlite
      .prepare<[bigint], string | null>(
        `SELECT group_concat(suite_id) || ' ' || group_concat(build_state) FROM builds INDEXED BY builds_commit
         WHERE commit_id = ?`,
      )
      .pluck(),
  };
});

/** The states of the latest builds of a commit's suites. Ids are text, because a page reads thousands and shows few. */
export type LatestStates = {
  bySuite: ReadonlyMap<string, BuildState>;
  counts: ReadonlyMap<BuildState, number>;
  notPassed: readonly string[];
};

/** The state of the latest build of each suite of a commit. A rerun replaces the build it repeats. */
export function readLatestStates(db: Db, commitId: bigint): LatestStates {
  const text = latestBuilds(db).states.get(commitId) ?? '';
  const [ids = [], states = []] = text === '' ? [] : text.split(' ').map(list => list.split(','));
  const bySuite = new Map<string, BuildState>();
  const counts = new Map<BuildState, number>();
  const notPassed: string[] = [];
  for (const [at, id] of ids.entries()) {
    if (ids[at + 1] === id) continue;
    const state = states[at] as BuildState;
    bySuite.set(id, state);
    counts.set(state, (counts.get(state) ?? 0) + 1);
    if (state !== 'passed') notPassed.push(id);
  }
  return { bySuite, counts, notPassed };
}

/** The latest build of each suite of a commit, by suite; of `suiteIds` if given. */
export function listLatestBuilds(
  db: Db,
  commitId: bigint,
  suiteIds?: readonly bigint[],
): Map<bigint, BuildHead> {
  const time = (ms: bigint | null) => (ms === null ? null : Number(ms));
  const { all, ofSuites } = latestBuilds(db);
  const rows = suiteIds ? ofSuites.all(commitId, jsonOf(suiteIds)) : all.all(commitId);
  return new Map(
    rows.map(([id, suiteId, suiteName, buildState, startedAt, finishedAt]) => [
      suiteId,
      { id, suiteId, suiteName, buildState, startedAt: time(startedAt), finishedAt: time(finishedAt) },
    ]),
  );
}

export type SuiteCounts = { rules: number; variables: number; dependencies: number };

/** How many rules, variables and dependencies each suite has. */
export function countSuiteItems(db: Db, suiteIds: readonly bigint[]): Map<bigint, SuiteCounts> {
  const count = (table: typeof suiteRules | typeof environmentVariables | typeof suiteDependencies) =>
    sql<bigint>`(SELECT count(*) FROM ${table} WHERE suite_id = ${suites}.id)`;
  const rows = db.orm
    .select({
      id: suites.id,
      rules: count(suiteRules),
      variables: count(environmentVariables),
      dependencies: count(suiteDependencies),
    })
    .from(suites)
    .where(inArray(suites.id, [...suiteIds]))
    .all();
  return new Map(
    rows.map(row => [
      row.id,
      {
        rules: Number(row.rules),
        variables: Number(row.variables),
        dependencies: Number(row.dependencies),
      },
    ]),
  );
}
