// Pages of a project's commits, newest first, filtered by branch, author, state and text. Branches have an index. For
// the other filters a bounded number of commits is examined in slices, so that other requests run in between.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { and, asc, desc, eq, gt, inArray, lt, type SQL, sql } from 'drizzle-orm';
import type { CommitState } from '../domain/build.ts';
import type { Db } from './database/db.ts';
import { buildRequests, commits } from './database/schema.ts';
import { type CommitHead, headFields } from './overview.ts';

/** How many commits one page examines at most. */
const EXAMINED = 10_000;
const SLICE = 200;
/** How much of a message is searched. */
const MESSAGE_SEARCHED = 1_000;

/** What is empty does not filter. */
export type CommitFilter = { branch: string; author: string; text: string; states: readonly CommitState[] };

/** Where a page begins: it has the commits before or after a position of an earlier page. */
export type CommitStart = { before?: bigint | undefined; after?: bigint | undefined };

/** `position` is the id that pages are ordered by, `branch` the branch or tag that was built last. */
export type CommitRow = CommitHead & { position: bigint; branch: string };

export type CommitPage = {
  rows: CommitRow[];
  /** Where the next pages start; undefined if there are none. */
  newer: bigint | undefined;
  older: bigint | undefined;
  /** Whether the search ended before it had found enough; it goes on with the next page. */
  isPartial: boolean;
};

export async function findCommitPage(
  db: Db,
  projectId: bigint,
  filter: CommitFilter,
  start: CommitStart,
  limit: number,
): Promise<CommitPage> {
  const isForward = start.after !== undefined;
  const list = filter.branch === '' ? listPositions : listPositionsOfBranch;
  const isFiltered = filter.author !== '' || filter.text !== '' || filter.states.length > 0;
  const found: CommitRow[] = [];
  let position = start.after ?? start.before;
  let isPartial = false;
  for (let examined = 0, size = limit + 1; found.length <= limit; ) {
    const slice = list(db, projectId, filter.branch, { position, isForward, limit: size });
    found.push(...readMatches(db, slice, filter, isFiltered));
    position = slice.at(-1)?.position;
    examined += slice.length;
    if (slice.length < size) break;
    isPartial = examined >= EXAMINED && found.length <= limit;
    if (isPartial) break;
    // Twice as many as would be enough if as many of them match as before.
    const wanted = (2 * (limit + 1 - found.length) * examined) / Math.max(found.length, 1);
    size = Math.min(Math.ceil(wanted), SLICE);
    await nextTurn();
  }
  const hasMore = found.length > limit;
  const rows = found.slice(0, limit);
  if (!isForward) {
    const older = hasMore ? rows.at(-1)?.position : isPartial ? position : undefined;
    return { rows, older, newer: start.before && rows[0]?.position, isPartial };
  }
  // The newest page is complete, even if there are fewer newer ones.
  if (!hasMore && !isPartial) return findCommitPage(db, projectId, filter, {}, limit);
  const newer = hasMore ? rows.at(-1)?.position : position;
  rows.reverse();
  return { rows, older: rows.at(-1)?.position ?? start.after, newer, isPartial };
}

type Position = { position: bigint; commitId: bigint | null };
type Slice = { position: bigint | undefined; isForward: boolean; limit: number };

const beyond = (column: typeof commits.id | typeof buildRequests.id, { position, isForward }: Slice) =>
  position === undefined ? undefined : isForward ? gt(column, position) : lt(column, position);

function listPositions(db: Db, projectId: bigint, _branch: string, slice: Slice): Position[] {
  return db.orm
    .select({ position: commits.id, commitId: commits.id })
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.local, false), beyond(commits.id, slice)))
    .orderBy((slice.isForward ? asc : desc)(commits.id))
    .limit(slice.limit)
    .all();
}

/** By the requests of the branch. A commit counts where its newest one is, so that it is on one page only. */
function listPositionsOfBranch(db: Db, projectId: bigint, branch: string, slice: Slice): Position[] {
  const newest = sql<bigint>`(SELECT max(id) FROM build_requests AS same WHERE same.commit_id = ${buildRequests}.commit_id AND same.branch = ${branch})`;
  return db.orm
    .select({ position: buildRequests.id, commitId: buildRequests.commitId, newest })
    .from(buildRequests)
    .where(
      and(
        eq(buildRequests.projectId, projectId),
        eq(buildRequests.branch, branch),
        eq(buildRequests.local, false),
        beyond(buildRequests.id, slice),
      ),
    )
    .orderBy((slice.isForward ? asc : desc)(buildRequests.id))
    .limit(slice.limit)
    .all()
    .map(({ position, commitId, newest }) => ({ position, commitId: newest === position ? commitId : null }));
}

/** The commits at these positions that pass the filter, in the same order. */
function readMatches(
  db: Db,
  positions: readonly Position[],
  filter: CommitFilter,
  isFiltered: boolean,
): CommitRow[] {
  const ids = positions.flatMap(({ commitId }) => commitId ?? []);
  if (ids.length === 0) return [];
  const built = sql<string>`coalesce((SELECT coalesce(nullif(branch, ''), nullif(tag, '')) FROM build_requests WHERE commit_id = ${commits}.id ORDER BY id DESC LIMIT 1), json_extract(${commits.branches}, '$[0]'), '')`;
  const rows = db.orm
    .select({ ...headFields, branch: built })
    .from(commits)
    .where(and(inArray(commits.id, ids), isFiltered ? matches(filter) : undefined))
    .all();
  const byId = new Map(rows.map(row => [row.id, row]));
  return positions.flatMap(({ position, commitId }) => {
    const row = commitId === null ? undefined : byId.get(commitId);
    return row ? [{ ...row, position, branch: filter.branch || row.branch }] : [];
  });
}

const contains = (text: SQL, part: string) =>
  sql`${text} LIKE ${`%${part.replaceAll(/[\\%_]/g, '\\$&')}%`} ESCAPE '\\'`;

const matches = ({ author, text, states }: CommitFilter) =>
  and(
    states.length > 0 ? inArray(commits.buildState, [...states]) : undefined,
    author === ''
      ? undefined
      : sql`(${contains(sql`${commits.authorName}`, author)} OR ${contains(sql`${commits.authorEmail}`, author)})`,
    text === ''
      ? undefined
      : sql`(${contains(sql`substr(${commits.message}, 1, ${MESSAGE_SEARCHED})`, text)} OR ${commits.ref} LIKE ${`${text.replaceAll(/[\\%_]/g, '\\$&')}%`} ESCAPE '\\')`,
  );
