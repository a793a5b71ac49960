// Searches the logs of builds for a text, newest build first. A search ends after a while with what it has found, and the
// next one continues there. Few searches run at once; others wait.

import type { BuildState } from '../../domain/build.ts';
import { idAt } from '../../domain/id.ts';
import { refusal } from '../../domain/refusal.ts';
import { compileQuery } from '../../domain/result/log-query.ts';
import { lastBuildWithoutLog } from '../cleanup/sweep.ts';
import { buildLogPath } from '../data/paths.ts';
import { type Db, prepared } from '../database/db.ts';
import { createSearchBuffer, type LogMatch, searchLog } from './log-filter.ts';
import { createPace } from './pace.ts';

const LINES_PER_BUILD = 5;
const SEARCH_MS = 2_000;
const ROWS_AT_ONCE = 200;
const MAX_RUNNING = 4;
const MAX_RUNNING_PER_ACCOUNT = 2;
const MAX_WAITING = 32;

export type SearchedBuild = {
  id: bigint;
  projectId: bigint;
  suiteId: bigint;
  suiteName: string;
  commitId: bigint;
  commitRef: string;
  buildState: BuildState;
  createdAt: number;
  branch: string;
  local: boolean;
};

export type BuildSearch = {
  text: string;
  isCaseSensitive: boolean;
  /** Which projects to search; `mayRead` decides for each build if it is undefined. */
  projectId: bigint | undefined;
  suiteId?: bigint | undefined;
  branch?: string | undefined;
  state?: BuildState | undefined;
  /** Only builds that were created since. */
  since?: number | undefined;
  /** Only builds older than this id. */
  before?: bigint | undefined;
  /** The number of lines. */
  limit: number;
  mayRead(projectId: bigint): boolean;
  /** Ends the search when the client has gone. */
  signal: AbortSignal;
};

export type SearchResult = {
  found: { build: SearchedBuild; matches: LogMatch[] }[];
  /** Where to continue; undefined if all builds were searched. */
  next: bigint | undefined;
  searchedBuilds: number;
  /** When the last build that was searched was created. */
  searchedSince: number | undefined;
};

export type LogSearch = {
  /** Refuses when too many searches wait already. */
  search(accountId: bigint, options: BuildSearch): Promise<SearchResult>;
};

type Options = { db: Db; dataDirectory: string /** How long a search may take. */; searchMs?: number };

export function createLogSearch({ db, dataDirectory, searchMs = SEARCH_MS }: Options): LogSearch {
  const slots = createSlots();
  return {
    async search(accountId, options) {
      const leave = await slots.enter(accountId);
      try {
        return await searchBuilds(db, dataDirectory, options, searchMs);
      } finally {
        leave();
      }
    },
  };
}

function createSlots(): { enter(accountId: bigint): Promise<() => void> } {
  const running: bigint[] = [];
  const waiting: { accountId: bigint; start: () => void }[] = [];
  const mayStart = (accountId: bigint) =>
    running.length < MAX_RUNNING && running.filter(one => one === accountId).length < MAX_RUNNING_PER_ACCOUNT;
  const leave = (accountId: bigint) => {
    running.splice(running.indexOf(accountId), 1);
    const next = waiting.findIndex(one => mayStart(one.accountId));
    if (next >= 0) waiting.splice(next, 1)[0]?.start();
  };
  return {
    async enter(accountId) {
      if (!mayStart(accountId)) {
        if (waiting.length >= MAX_WAITING) throw refusal('resource_temporary_unavailable');
        await new Promise<void>(start => {
          const enter = () => {
            running.push(accountId);
            start();
          };
          waiting.push({ accountId, start: enter });
        });
      } else running.push(accountId);
      return () => leave(accountId);
    },
  };
}

async function searchBuilds(
  db: Db,
  dataDirectory: string,
  options: BuildSearch,
  searchMs: number,
): Promise<SearchResult> {
  const query = compileQuery(options.text, options.isCaseSensitive);
  const endsAt = performance.now() + searchMs;
  const pace = createPace();
  const buffer = createSearchBuffer();
  const oldest = oldestOf(db, options);
  const result: SearchResult = { found: [], next: undefined, searchedBuilds: 0, searchedSince: undefined };
  let left = options.limit;
  for (let before = options.before; ; ) {
    const rows = listBuilds(db, options, oldest, before);
    for (const build of rows) {
      if (isWanted(build, options)) {
        const limit = Math.min(LINES_PER_BUILD, options.limit);
        const matches = await searchLog(buildLogPath(dataDirectory, build.id), query, { limit, buffer });
        // The lines of a build are never split over two pages.
        if (matches.length > left) return { ...result, next: before };
        if (matches.length > 0) result.found.push({ build, matches });
        left -= matches.length;
        result.searchedBuilds += 1;
        result.searchedSince = build.createdAt;
      }
      before = build.id;
      if (left === 0 || performance.now() >= endsAt || options.signal.aborted)
        return { ...result, next: before };
      if (pace.isDue()) await pace.wait();
    }
    if (rows.length < ROWS_AT_ONCE) return result;
    if (pace.isDue()) await pace.wait();
  }
}

const isWanted = (build: SearchedBuild, { branch, state, mayRead }: BuildSearch) =>
  // A local run is on no branch.
  (branch === undefined || (build.branch === branch && !build.local)) &&
  (state === undefined || build.buildState === state) &&
  mayRead(build.projectId);

/** The lowest id of builds to search: older ones are not wanted, or have no logs any more. */
function oldestOf(db: Db, { since }: BuildSearch): bigint {
  const withoutLog = lastBuildWithoutLog(db);
  const first = since === undefined ? 0n : idAt(since);
  return first > withoutLog ? first : withoutLog + 1n;
}

const MAX_ID = 2n ** 63n - 1n;

const listing = prepared(({ sqlite }) => {
  const rows = (condition: string) =>
    `SELECT builds.id, builds.project_id AS projectId, builds.suite_id AS suiteId, builds.suite_name AS suiteName,
         builds.commit_id AS commitId, builds.commit_ref AS commitRef, builds.build_state AS buildState,
         builds.created_at AS createdAt, build_requests.branch, builds.local
       FROM builds JOIN build_requests ON build_requests.id = builds.build_request_id
       WHERE ${condition} builds.id < @before AND builds.id >= @oldest`;
  const newest = (select: string) =>
    sqlite.prepare<[Record<string, bigint>], Record<keyof SearchedBuild, unknown>>(
      `${select} ORDER BY 1 DESC LIMIT ${ROWS_AT_ONCE}`,
    );
  const ofSuite = (local: 0 | 1) =>
    rows(`builds.suite_id = @suiteId AND builds.local = ${local} AND +builds.project_id = @projectId AND`);
  return {
    all: newest(rows('')),
    ofProject: newest(rows('builds.project_id = @projectId AND')),
    // The index of a suite's builds has those that are local apart. The plus keeps SQLite from using another one.
    ofSuite: newest(`${ofSuite(0)} UNION ALL ${ofSuite(1)}`),
  };
});

function listBuilds(
  db: Db,
  { projectId, suiteId }: BuildSearch,
  oldest: bigint,
  before = MAX_ID,
): SearchedBuild[] {
  const { all, ofProject, ofSuite } = listing(db);
  const rows =
    projectId === undefined
      ? all.all({ before, oldest })
      : suiteId === undefined
        ? ofProject.all({ projectId, before, oldest })
        : ofSuite.all({ suiteId, projectId, before, oldest });
  return rows.map(row => ({
    ...(row as SearchedBuild),
    createdAt: Number(row.createdAt),
    local: row.local !== 0n,
  }));
}
