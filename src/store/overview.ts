// Summaries of many rows for pages, each in one or two queries however many rows there are.

import { and, desc, eq, getTableColumns, inArray, sql } from 'drizzle-orm';
import { type BuildRequestState, type BuildState, UNFINISHED_BUILDS } from '../domain/build.ts';
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

// One statement for all projects, without drizzle, and one text for all runs of a project.
const latestRuns = prepared(({ sqlite }) =>
  sqlite
    .prepare<{ ids: string; runs: number }, [bigint, string | null]>(
      `SELECT project.value, (
         SELECT group_concat(run ORDER BY id) FROM (
           SELECT id, build_state || ' ' || (finished_at - created_at) AS run FROM build_requests
           WHERE project_id = project.value AND local = 0 ORDER BY id DESC LIMIT @runs
         )
       ) FROM json_each(@ids) AS project`,
    )
    .raw(),
);

const newestCommits = prepared(({ orm }) =>
  orm
    .select(headFields)
    .from(commits)
    .where(
      sql`${commits.id} IN (SELECT (SELECT id FROM commits WHERE project_id = project.value AND local = 0 ORDER BY id DESC LIMIT 1) FROM json_each(${sql.placeholder('ids')}) AS project)`,
    )
    .prepare(),
);

/** The newest commit of each project, and the durations of its latest requests, oldest first. Without local runs. */
export function summarizeProjects(
  db: Db,
  projectIds: readonly bigint[],
  runs: number,
): Map<bigint, ProjectSummary> {
  const ids = jsonOf(projectIds);
  const newest = new Map(
    newestCommits(db)
      .all({ ids })
      .map(commit => [commit.projectId, commit]),
  );
  return new Map(
    latestRuns(db)
      .all({ ids, runs })
      .map(([id, text]) => [id, { commit: newest.get(id), runs: text === null ? [] : parseRuns(text) }]),
  );
}

function parseRuns(text: string): Run[] {
  return text.split(',').map(run => {
    const [state, ms] = run.split(' ');
    return { ms: Number(ms), state: state as BuildRequestState };
  });
}

/** The fields of a build that overviews show. */
export type BuildHead = Pick<
  Build,
  'id' | 'suiteId' | 'suiteName' | 'buildState' | 'startedAt' | 'finishedAt'
>;

type HeadRow = [bigint, bigint, string, BuildState, bigint | null, bigint | null];

/** A letter for each state: short texts of many states are read faster. */
const stateCodes: Record<BuildState, string> = {
  passed: 'p',
  failed: 'f',
  errored: 'e',
  timed_out: 't',
  running: 'r',
  enqueued: 'q',
  canceled: 'c',
};
const unfinishedCodes = new RegExp(`[${UNFINISHED_BUILDS.map(state => stateCodes[state]).join('')}]`);
const stateOfCode = new Map(Object.entries(stateCodes).map(([state, code]) => [code, state as BuildState]));
const codeCases = Object.entries(stateCodes)
  .map(([state, code]) => `WHEN '${state}' THEN '${code}'`)
  .join(' ');

const latestBuilds = prepared(({ sqlite }) => {
  const columns = 'suite_id, suite_name, build_state, started_at, finished_at';
  return {
    // With max(), SQLite takes the other columns from the row that has the maximum.
    all: sqlite
      .prepare<[bigint], HeadRow>(
        `SELECT max(id), ${columns} FROM builds WHERE commit_id = ? GROUP BY suite_id`,
      )
      .raw(),
    ofSuites: sqlite
      .prepare<[string, bigint], HeadRow>(
        `SELECT build.id, ${columns} FROM json_each(?) AS one CROSS JOIN builds AS build
         ON build.id = (SELECT max(id) FROM builds WHERE commit_id = ? AND suite_id = one.value)`,
      )
      .raw(),
    // All columns are in the index.
    version: sqlite
      .prepare<[bigint], [count: bigint, newest: bigint | null]>(
        'SELECT count(*), max(id) FROM builds INDEXED BY builds_commit WHERE commit_id = ?',
      )
      .raw(),
    // The order of the index puts the newest build of a suite last. One text for all suites: that is faster than many rows.
    states: sqlite
      .prepare<[bigint], [string | null, string | null]>(
        `SELECT group_concat(suite_id), group_concat(CASE build_state ${codeCases} END, '')
         FROM builds INDEXED BY builds_commit WHERE commit_id = ?`,
      )
      .raw(),
  };
});

/** The states of the latest builds of a commit's suites. Ids are text, because a page reads thousands and shows few. */
export type LatestStates = {
  /** Commits with builds of the same suites have the same list. */
  suites: readonly string[];
  /** Undefined if the suite did not run. */
  stateOf(suite: string): BuildState | undefined;
  counts: ReadonlyMap<BuildState, number>;
  notPassed: readonly string[];
};

/** The suites of all builds of a commit. `latest` has the place of the latest build of each. */
type BuiltSuites = { text: string; suites: readonly string[]; latest: ReadonlyMap<string, number> };

const COMMITS_CACHED = 1_000;
/** Of each commit: the page of a project shows no more, unless all suites are requested. */
const BUILDS_CACHED = 20;
const noStates: LatestStates = { suites: [], stateOf: () => undefined, counts: new Map(), notPassed: [] };

/** What was read of a commit whose builds have all finished. They do not change, so it is valid until one is added or deleted. */
type FinishedCommit = {
  count: bigint;
  newest: bigint;
  /** Of the database when the two fields above were last compared. */
  generation: number;
  states: LatestStates;
  /** By suite. Undefined if the suite did not run. */
  builds: Map<bigint, BuildHead | undefined>;
};

const finishedCommits = prepared(() => ({
  built: { text: '', suites: [], latest: new Map() } as BuiltSuites,
  commits: new Map<bigint, FinishedCommit>(),
}));

/** The state of the latest build of each suite of a commit. A rerun replaces the build it repeats. */
export function readLatestStates(db: Db, commitId: bigint): LatestStates {
  return findFinished(db, commitId)?.states ?? readStates(db, commitId);
}

/** From the cache, if it is there and still valid. */
function findFinished(db: Db, commitId: bigint): FinishedCommit | undefined {
  const { commits: known } = finishedCommits(db);
  const found = known.get(commitId);
  if (!found) return undefined;
  const generation = db.generation();
  if (found.generation === generation && !db.writing) return found;
  const [count, newest] = latestBuilds(db).version.get(commitId) ?? [];
  if (found.count !== count || found.newest !== newest) {
    known.delete(commitId);
    return undefined;
  }
  if (!db.writing) found.generation = generation;
  return found;
}

function readStates(db: Db, commitId: bigint): LatestStates {
  const cache = finishedCommits(db);
  const { version, states: statement } = latestBuilds(db);
  // Before the rows: another process may change them meanwhile.
  const generation = db.generation();
  const [count, newest] = version.get(commitId) ?? [0n, null];
  if (newest === null) return noStates;
  const [text, codes] = statement.get(commitId) as [string, string];
  // Most commits of a project have builds of the same suites.
  if (text !== cache.built.text) {
    const latest = new Map(text.split(',').map((suite, at) => [suite, at]));
    cache.built = { text, suites: [...latest.keys()], latest };
  }
  const states = decodeStates(cache.built, codes);
  if (!unfinishedCodes.test(codes) && !db.writing) {
    if (cache.commits.size >= COMMITS_CACHED) cache.commits.clear();
    cache.commits.set(commitId, { count, newest, generation, states, builds: new Map() });
  }
  return states;
}

function decodeStates({ suites, latest }: BuiltSuites, codes: string): LatestStates {
  const counts = new Map<BuildState, number>();
  const notPassed: string[] = [];
  const stateAt = (at: number) => stateOfCode.get(codes.charAt(at)) as BuildState;
  const stateOf = (suite: string) => {
    const at = latest.get(suite);
    return at === undefined ? undefined : stateAt(at);
  };
  for (const [suite, at] of latest) {
    const state = stateAt(at);
    counts.set(state, (counts.get(state) ?? 0) + 1);
    if (state !== 'passed') notPassed.push(suite);
  }
  return { suites, stateOf, counts, notPassed };
}

/** The latest build of each suite of a commit, by suite. */
export function listLatestBuilds(db: Db, commitId: bigint): Map<bigint, BuildHead> {
  return headsOf(latestBuilds(db).all.all(commitId));
}

/**
 * The same for some suites, and possibly others. Those of finished commits are cached, because the page of a project shows
 * hundreds of them.
 */
export function listLatestBuildsOfSuites(
  db: Db,
  commitId: bigint,
  suiteIds: readonly bigint[],
): ReadonlyMap<bigint, BuildHead | undefined> {
  const read = (ids: readonly bigint[]) => headsOf(latestBuilds(db).ofSuites.all(jsonOf(ids), commitId));
  const finished = findFinished(db, commitId);
  if (!finished || suiteIds.length > BUILDS_CACHED) return read(suiteIds);
  const { builds } = finished;
  const listMissing = () => suiteIds.filter(id => !builds.has(id));
  if (builds.size + listMissing().length > BUILDS_CACHED) builds.clear();
  const missing = listMissing();
  if (missing.length > 0) {
    const found = read(missing);
    for (const id of missing) builds.set(id, found.get(id));
  }
  return builds;
}

function headsOf(rows: readonly HeadRow[]): Map<bigint, BuildHead> {
  const time = (ms: bigint | null) => (ms === null ? null : Number(ms));
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
