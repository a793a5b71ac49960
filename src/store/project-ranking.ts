// Which projects an account sees, ranked: those that fail first, then those that build, then the most recently active.
// Every query reads an index and is limited, however many projects and build requests there are.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Standing } from '../domain/access.ts';
import type { ProjectState } from '../domain/build.ts';
import { cached, type Db, jsonOf, prepared } from './database/db.ts';
import type { projects } from './database/schema.ts';

/** Whose projects: a `Caller`, or the account of a link to the wall screen. */
export type Viewer = { accountId: bigint; standing: Standing };

/** Up to this many projects are ranked. Those who see more get the projects of the latest build requests. */
export const PROJECTS_RANKED = 1_000;
const SLICE = 500;
const REQUESTS_SEARCHED = 5_000;
const VIEWERS_CACHED = 20;

const NOT_DELETED = 'NOT IN (SELECT id FROM projects WHERE deleted_at IS NOT NULL)';

/** Who owes payment cannot use what they own. */
const ownerOf = ({ accountId, standing }: Viewer) => (standing === 'payment_required' ? -1n : accountId);

const visibleIds = prepared(({ sqlite }) => ({
  own: sqlite
    .prepare<[bigint, number], bigint>(
      `SELECT id FROM projects WHERE owner_id = ? AND id ${NOT_DELETED} ORDER BY id DESC LIMIT ?`,
    )
    .pluck(),
  shared: sqlite
    .prepare<[bigint, number], bigint>(
      'SELECT project_id FROM collaborators WHERE account_id = ? ORDER BY project_id DESC LIMIT ?',
    )
    .pluck(),
  among: sqlite
    .prepare<[string, bigint, bigint], bigint>(
      `SELECT project.id FROM json_each(?) AS one CROSS JOIN projects AS project ON project.id = one.value
       WHERE project.deleted_at IS NULL AND (project.owner_id = ? OR EXISTS (
         SELECT 1 FROM collaborators WHERE project_id = project.id AND account_id = ?))`,
    )
    .pluck(),
}));

/** The ids of the projects that the viewer sees, at most `limit`. */
export function listVisibleIds(db: Db, viewer: Viewer, limit: number): bigint[] {
  const statements = visibleIds(db);
  const own = statements.own.all(ownerOf(viewer), limit);
  return [...own, ...statements.shared.all(viewer.accountId, limit)].slice(0, limit);
}

export function selectVisible(db: Db, viewer: Viewer, projectIds: readonly bigint[]): Set<bigint> {
  const among = visibleIds(db).among;
  return new Set(among.all(jsonOf([...new Set(projectIds)]), ownerOf(viewer), viewer.accountId));
}

const keyOf = ({ accountId, standing }: Viewer) => `${accountId} ${standing}`;

/** Undefined if there are more than can be ranked. */
export const listAllVisibleIds = cached(
  keyOf,
  (db, viewer: Viewer): readonly bigint[] | undefined => {
    const ids = listVisibleIds(db, viewer, PROJECTS_RANKED + 1);
    return ids.length > PROJECTS_RANKED ? undefined : ids;
  },
  VIEWERS_CACHED,
);

/** Topics of everything that changes what the viewer sees of the projects. */
export const listVisibleTopics = cached(
  keyOf,
  (db, viewer: Viewer): ReadonlySet<string> =>
    new Set(listAllVisibleIds(db, viewer)?.map(id => `project:${id}`) ?? ['queue']),
  VIEWERS_CACHED,
);

/** The ids of the visible projects whose name contains the text, in any case. Undefined if there are more than can be ranked. */
export const listNamedIds = cached(
  ({ viewer, part }: { viewer: Viewer; part: string }) => `${keyOf(viewer)} ${part}`,
  (db, { viewer, part }): readonly bigint[] | undefined => {
    const ids = listAllVisibleIds(db, viewer);
    const heads = ids && findProjectHeads(db, ids);
    return ids?.filter(id => hasPart(heads?.get(id)?.name ?? '', part));
  },
  VIEWERS_CACHED,
);

/** Whether the name contains the text, in any case. */
export const hasPart = (name: string, part: string) => name.toLowerCase().includes(part.toLowerCase());

export type RankedProject = { id: bigint; buildState: ProjectState; newestRequestId: bigint };

const rankedProjects = prepared(({ sqlite }) =>
  sqlite
    .prepare<[string], [bigint, ProjectState, bigint | null]>(
      `SELECT project.id, project.build_state,
         (SELECT max(id) FROM build_requests WHERE project_id = project.id AND local = 0)
       FROM json_each(?) AS one CROSS JOIN projects AS project ON project.id = one.value
       WHERE project.deleted_at IS NULL`,
    )
    .raw(),
);

export const isFailing = (state: ProjectState) => state === 'failed' || state === 'errored';
const rankOf = (state: ProjectState) => (isFailing(state) ? 0 : state === 'building' ? 1 : 2);

/** Failing projects first, then those that build, then the others; in each group the one with the newest request first. */
function rank(db: Db, ids: readonly bigint[]): RankedProject[] {
  const ranked = rankedProjects(db)
    .all(jsonOf(ids))
    .map(([id, buildState, newest]) => ({ id, buildState, newestRequestId: newest ?? 0n }));
  const newestFirst = (a: bigint, b: bigint) => (a < b ? 1 : a > b ? -1 : 0);
  return ranked.sort(
    (a, b) =>
      rankOf(a.buildState) - rankOf(b.buildState) ||
      newestFirst(a.newestRequestId, b.newestRequestId) ||
      newestFirst(a.id, b.id),
  );
}

/** Cached, because it reads a row of every project. Undefined if the viewer sees more than can be ranked. */
const rankVisible = cached(
  keyOf,
  (db, viewer): RankedProject[] | undefined => {
    const ids = listAllVisibleIds(db, viewer);
    return ids && rank(db, ids);
  },
  VIEWERS_CACHED,
);

/**
 * Failing projects first, then those that build, then the others; in each group the one with the newest build request
 * first. `isComplete` is false if the viewer sees more projects than can be ranked: then it has those that were active
 * last.
 */
export async function rankProjects(
  db: Db,
  viewer: Viewer,
): Promise<{ ranked: readonly RankedProject[]; isComplete: boolean }> {
  const all = rankVisible(db, viewer);
  return all
    ? { ranked: all, isComplete: true }
    : { ranked: rank(db, await listActiveProjects(db, viewer)), isComplete: false };
}

const latestRequests = prepared(({ sqlite }) =>
  sqlite
    .prepare<[bigint], [bigint, bigint]>(
      `SELECT id, project_id FROM build_requests WHERE id < ? ORDER BY id DESC LIMIT ${SLICE}`,
    )
    .raw(),
);

/** The projects of the latest build requests of all, as far as the viewer sees them. */
async function listActiveProjects(db: Db, viewer: Viewer): Promise<bigint[]> {
  const found = new Set<bigint>();
  let from = 2n ** 63n - 1n;
  for (let searched = 0; searched < REQUESTS_SEARCHED; searched += SLICE) {
    const rows = latestRequests(db).all(from);
    const visible = selectVisible(
      db,
      viewer,
      rows.map(([, projectId]) => projectId),
    );
    for (const id of visible) found.add(id);
    if (rows.length < SLICE) break;
    from = (rows.at(-1) as [bigint, bigint])[0];
    await nextTurn();
  }
  return [...found].slice(0, PROJECTS_RANKED);
}

export type ProjectHead = Pick<
  typeof projects.$inferSelect,
  'id' | 'ownerId' | 'name' | 'description' | 'repositoryUrl' | 'buildState'
>;

// Without drizzle, because a filter reads all projects of an account.
const headRows = prepared(({ sqlite }) =>
  sqlite.prepare<[string], ProjectHead>(
    `SELECT id, owner_id AS ownerId, name, description, repository_url AS repositoryUrl, build_state AS buildState
     FROM projects WHERE id IN (SELECT value FROM json_each(?))`,
  ),
);

export function findProjectHeads(db: Db, ids: readonly bigint[]): Map<bigint, ProjectHead> {
  return new Map(
    headRows(db)
      .all(jsonOf(ids))
      .map(row => [row.id, row]),
  );
}
