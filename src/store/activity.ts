// The build requests of all projects that an account sees: those that run, those that wait, and those that ended.
// Every query reads an index and is limited, however many projects and build requests there are.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { eq, inArray, sql } from 'drizzle-orm';
import { type BuildRequestState, type BuildState, isFinishedRequest } from '../domain/build.ts';
import { type Db, jsonOf, prepared } from './database/db.ts';
import { buildRequests, builds } from './database/schema.ts';
import { finishedRequest, unfinished } from './database/unfinished.ts';
import { type CommitHead, findCommitHeads } from './overview.ts';
import {
  findProjectHeads,
  hasPart,
  listAllVisibleIds,
  listNamedIds,
  type ProjectHead,
  selectVisible,
  type Viewer,
} from './project-ranking.ts';
import type { Build, BuildRequest } from './transition.ts';

const SLICE = 100;
/** How many build requests one page looks at to find those that match its filters. */
const WINDOW = 2_000;
/** How many build requests of one project are read to find those that wait. */
const WAITING_OF_PROJECT = 50;
const SUITES_SHOWN = 12;

type Direction = 'older' | 'newer';
const directions = {
  older: { than: '<', order: 'DESC', first: 'max', start: 2n ** 63n - 1n },
  newer: { than: '>', order: 'ASC', first: 'min', start: 0n },
} as const;

const allSlices = prepared(({ sqlite }) => {
  const prepare = (table: string, condition: string, branch: string) => (direction: Direction) => {
    const { than, order } = directions[direction];
    return sqlite
      .prepare<unknown[], [id: bigint, projectId: bigint, branch: string | null]>(
        `SELECT id, project_id, ${branch} FROM ${table} WHERE ${condition} AND id ${than} @from ORDER BY id ${order} LIMIT ${SLICE}`,
      )
      .raw();
  };
  const all = prepare('build_requests', '1', 'iif(local = 0, branch, NULL)');
  const ended = prepare(
    'build_requests INDEXED BY build_requests_ended',
    `${finishedRequest} AND build_state = @state`,
    'NULL',
  );
  return {
    all: { older: all('older'), newer: all('newer') },
    ended: { older: ended('older'), newer: ended('newer') },
  };
});

type SliceStatements = {
  heads: { all(...parameters: unknown[]): unknown[] };
  rows: { all(...parameters: unknown[]): unknown[] };
};

const projectSlices = prepared(({ sqlite }) => {
  const prepare = (direction: Direction, condition: string): SliceStatements => {
    const { than, order, first } = directions[direction];
    const next = `FROM build_requests WHERE project_id = project.value AND ${condition} AND id ${than} @from`;
    // Requests further away than this are not among the next ones.
    const near = `id ${order === 'DESC' ? '>=' : '<='} @farthest`;
    return {
      heads: sqlite
        .prepare(`SELECT project.value, (SELECT ${first}(id) ${next}) FROM json_each(@projects) AS project`)
        .raw(),
      rows: sqlite
        .prepare(
          `SELECT request.id FROM json_each(@projects) AS project CROSS JOIN build_requests AS request
           ON request.id IN (SELECT id ${next} AND ${near} ORDER BY id ${order} LIMIT ${SLICE})
           ORDER BY request.id ${order} LIMIT ${SLICE}`,
        )
        .pluck(),
    };
  };
  const both = (condition: string) => ({
    older: prepare('older', condition),
    newer: prepare('newer', condition),
  });
  // Each condition has an index.
  return {
    all: both('1'),
    branch: both('branch = @branch AND local = 0'),
    state: both('build_state = @state'),
  };
});

/**
 * The ids of the next build requests of some projects. Finds the first one of each project, because no other project than
 * those with the newest of them can have one of the newest requests.
 */
function sliceOfProjects(
  db: Db,
  projectIds: readonly bigint[],
  { branch, state }: Pick<ActivityFilter, 'branch' | 'state'>,
  direction: Direction,
  from: bigint,
): bigint[] {
  const which = branch !== undefined ? 'branch' : state !== undefined ? 'state' : 'all';
  const slices = projectSlices(db)[which][direction];
  const parameters = (ids: readonly bigint[]) => ({
    projects: jsonOf(ids),
    from,
    ...(which === 'branch' && { branch }),
    ...(which === 'state' && { state }),
  });
  const sign = direction === 'older' ? 1 : -1;
  const heads = (slices.heads.all(parameters(projectIds)) as [bigint, bigint | null][]).flatMap(
    ([projectId, id]) => (id === null ? [] : [{ projectId, id }]),
  );
  heads.sort((a, b) => sign * Number(b.id - a.id));
  const first = heads.slice(0, SLICE);
  const farthest =
    first.length === SLICE
      ? (first.at(-1) as { id: bigint }).id
      : directions[direction === 'older' ? 'newer' : 'older'].start;
  return slices.rows.all({ ...parameters(first.map(head => head.projectId)), farthest }) as bigint[];
}

/** The next build requests in the scope, and where to continue. */
function nextSlice(
  db: Db,
  { ids: projectIds, filter }: Scope,
  direction: Direction,
  from = directions[direction].start,
): { ids: bigint[]; last: bigint | undefined; isEnd: boolean } {
  const { branch, state } = filter;
  if (!projectIds || branch === undefined || state === undefined) {
    const rows =
      state === undefined
        ? allSlices(db).all[direction].all({ from })
        : allSlices(db).ended[direction].all({ from, state });
    const visible = projectIds && new Set(projectIds);
    const isInScope = (projectId: bigint) => visible?.has(projectId) ?? true;
    const isOnBranch = (of: string | null) => !projectIds || branch === undefined || branch === of;
    const ids = rows.filter(row => isInScope(row[1]) && isOnBranch(row[2])).map(([id]) => id);
    // Who sees few of the projects, or few requests of a branch, would look at many others.
    if (!projectIds || 2 * ids.length >= rows.length)
      return { ids, last: rows.at(-1)?.[0], isEnd: rows.length < SLICE };
  }
  const ids = sliceOfProjects(db, projectIds, filter, direction, from);
  return { ids, last: ids.at(-1), isEnd: ids.length < SLICE };
}

export type ActivityFilter = {
  /** Requests that this account started, and commits that have its email as the author's. */
  mine: boolean;
  email: string;
  state: 'running' | 'waiting' | BuildRequestState | undefined;
  branch: string | undefined;
  /** A part of a project's name. */
  project: string | undefined;
};

type Light = {
  id: bigint;
  projectId: bigint;
  state: BuildRequestState;
  branch: string;
  local: boolean;
  createdBy: string;
  authorEmail: string | null;
};

const lightRows = prepared(({ sqlite }) =>
  sqlite
    .prepare<[string], [bigint, bigint, BuildRequestState, string, bigint, string, string | null]>(
      `SELECT request.id, request.project_id, request.build_state, request.branch, request.local,
         request.created_by, author_email
       FROM json_each(?) AS one CROSS JOIN build_requests AS request ON request.id = one.value
       LEFT JOIN commits ON commits.id = request.commit_id`,
    )
    .raw(),
);

const readLight = (db: Db, ids: readonly bigint[]): Light[] =>
  lightRows(db)
    .all(jsonOf(ids))
    .map(([id, projectId, state, branch, local, createdBy, authorEmail]) => ({
      id,
      projectId,
      state,
      branch,
      local: local === 1n,
      createdBy,
      authorEmail,
    }));

/** The viewer's projects that a filter selects. Undefined if there are too many to list: each row is checked then. */
type Scope = { viewer: Viewer; ids: readonly bigint[] | undefined; filter: ActivityFilter };

export function scopeOf(db: Db, viewer: Viewer, filter: ActivityFilter): Scope {
  const { project: part } = filter;
  const ids = part === undefined ? listAllVisibleIds(db, viewer) : listNamedIds(db, { viewer, part });
  return { viewer, ids, filter };
}

/** The rows that the viewer sees and that match the filter, in the same order. */
function selectMatching(db: Db, { viewer, ids, filter }: Scope, rows: readonly Light[]): Light[] {
  const projectIds = rows.map(({ projectId }) => projectId);
  const visible = ids ? undefined : selectVisible(db, viewer, projectIds);
  const heads =
    ids || filter.project === undefined ? undefined : findProjectHeads(db, [...new Set(projectIds)]);
  return rows.filter(
    ({ projectId, branch, local, createdBy, authorEmail }) =>
      (visible?.has(projectId) ?? true) &&
      (heads === undefined || hasPart(heads.get(projectId)?.name ?? '', filter.project ?? '')) &&
      (filter.branch === undefined || (branch === filter.branch && !local)) &&
      (!filter.mine || createdBy === filter.email || authorEmail?.toLowerCase() === filter.email),
  );
}

export type ActivityPage = {
  ids: bigint[];
  /** Whether there may be more in each direction. */
  hasOlder: boolean;
  hasNewer: boolean;
  /** Where to continue if the page is not full because too many requests do not match. */
  continueBefore: bigint | undefined;
};

/** Finished build requests, newest first: the next older or newer ones than `from`. */
export async function listRecent(
  db: Db,
  scope: Scope,
  page: { limit: number; from: bigint | undefined; direction: Direction },
): Promise<ActivityPage> {
  const { direction, limit } = page;
  const { state } = scope.filter;
  const found: bigint[] = [];
  let { from } = page;
  let isEnd = false;
  for (let looked = 0; looked < WINDOW && found.length <= limit && !isEnd; looked += SLICE) {
    if (looked > 0) await nextTurn();
    const slice = nextSlice(db, scope, direction, from);
    for (const row of selectMatching(db, scope, readLight(db, slice.ids)))
      if (isFinishedRequest(row.state) && (state === undefined || row.state === state)) found.push(row.id);
    from = slice.last;
    isEnd = slice.isEnd;
  }
  const ids = found.slice(0, limit);
  const hasMore = found.length > limit || !isEnd;
  const isCut = found.length <= limit && !isEnd;
  if (direction === 'newer') ids.reverse();
  return {
    ids,
    hasOlder: direction === 'newer' || (hasMore && !isCut),
    hasNewer: direction === 'newer' ? hasMore : page.from !== undefined,
    continueBefore: direction === 'older' && isCut ? from : undefined,
  };
}

const unfinishedIds = prepared(({ sqlite }) => ({
  running: sqlite
    .prepare<[], bigint>(
      `SELECT build_request_id FROM builds INDEXED BY builds_running WHERE build_state = 'running'
       UNION SELECT id FROM build_requests INDEXED BY build_requests_fetching WHERE build_state = 'fetching'`,
    )
    .pluck(),
  ofProjects: sqlite
    .prepare<[string], bigint>(
      `SELECT request.id FROM json_each(?) AS project CROSS JOIN build_requests AS request
       ON request.id IN (SELECT id FROM build_requests INDEXED BY build_requests_unfinished
         WHERE project_id = project.value AND ${unfinished.request} LIMIT ${WAITING_OF_PROJECT})
       ORDER BY request.id`,
    )
    .pluck(),
  ofAll: sqlite
    .prepare<[], bigint>(
      `SELECT id FROM build_requests INDEXED BY build_requests_unfinished WHERE ${unfinished.request} LIMIT ${WINDOW}`,
    )
    .pluck(),
}));

/**
 * Unfinished build requests. Running ones are fetched now or have a running build, newest first; waiting ones have
 * neither, oldest first.
 */
export function listUnfinished(db: Db, scope: Scope): { running: bigint[]; waiting: bigint[] } {
  const statements = unfinishedIds(db);
  const inScope = scope.ids && new Set(scope.ids);
  const select = (ids: readonly bigint[]) =>
    selectMatching(
      db,
      scope,
      readLight(db, ids).filter(({ projectId }) => inScope?.has(projectId) ?? true),
    ).map(({ id }) => id);
  const allRunning = statements.running.all().sort((a, b) => Number(b - a));
  const isRunning = new Set(allRunning);
  // There are few of them as a rule, however many projects there are.
  const ofAll = statements.ofAll.all();
  const unfinishedOnes =
    scope.ids && ofAll.length === WINDOW ? statements.ofProjects.all(jsonOf(scope.ids)) : ofAll;
  const waiting = unfinishedOnes.filter(id => !isRunning.has(id)).sort((a, b) => Number(a - b));
  return { running: select(allRunning), waiting: select(waiting) };
}

export type SuiteBuild = Pick<Build, 'id' | 'suiteId' | 'suiteName' | 'buildState' | 'startedAt'>;

/** A build request with the newest builds of its suites: those that did not pass first, at most a dozen. */
export type ActivityRequest = {
  request: BuildRequest;
  project: ProjectHead;
  commit: CommitHead | undefined;
  builds: SuiteBuild[];
  suites: number;
  finishedSuites: number;
};

type SuiteRow = [bigint, bigint, string, BuildState, bigint | null, bigint, bigint];

// With max(), SQLite takes the other columns from the row that has the maximum.
const suiteRows = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint], SuiteRow>(
      `WITH newest AS (
         SELECT max(id) AS id, suite_id, suite_name, build_state, started_at FROM builds
         WHERE build_request_id = ? GROUP BY suite_id)
       SELECT id, suite_id, suite_name, build_state, started_at, count(*) OVER (),
         sum(build_state NOT IN ('enqueued', 'running')) OVER ()
       FROM newest ORDER BY CASE build_state WHEN 'failed' THEN 0 WHEN 'errored' THEN 1 WHEN 'timed_out' THEN 1
         WHEN 'running' THEN 2 WHEN 'canceled' THEN 3 WHEN 'enqueued' THEN 4 ELSE 5 END, id LIMIT ${SUITES_SHOWN}`,
    )
    .raw(),
);

export function describeRequests(db: Db, ids: readonly bigint[]): ActivityRequest[] {
  const rows = db.orm
    .select()
    .from(buildRequests)
    .where(inArray(buildRequests.id, [...ids]))
    .all();
  const byId = new Map(rows.map(row => [row.id, row]));
  const heads = findProjectHeads(db, [...new Set(rows.map(({ projectId }) => projectId))]);
  const commits = findCommitHeads(
    db,
    rows.flatMap(({ commitId }) => commitId ?? []),
  );
  return ids.flatMap(id => {
    const request = byId.get(id);
    const project = request && heads.get(request.projectId);
    if (!request || !project) return [];
    const suites = suiteRows(db).all(id);
    return [
      {
        request,
        project,
        commit: request.commitId === null ? undefined : commits.get(request.commitId),
        builds: suites.map(([id, suiteId, suiteName, buildState, startedAt]) => ({
          id,
          suiteId,
          suiteName,
          buildState,
          startedAt: startedAt === null ? null : Number(startedAt),
        })),
        suites: Number(suites[0]?.[5] ?? 0),
        finishedSuites: Number(suites[0]?.[6] ?? 0),
      },
    ];
  });
}

/** The first build of a request that waits for a slot. */
export function findWaitingBuild(db: Db, requestId: bigint): Build | undefined {
  return db.orm
    .select()
    .from(builds)
    .where(
      sql`${eq(builds.buildRequestId, requestId)} AND ${sql.raw(unfinished.build)} AND build_state = 'enqueued'`,
    )
    .orderBy(builds.id)
    .limit(1)
    .get();
}
