// Commits: those of the repository, and those of local runs, which are kept apart.

import { and, desc, eq, sql } from 'drizzle-orm';
import { addCounts, type TestCounts } from '../domain/result/test-result.ts';
import { cached, type Db } from './database/db.ts';
import { findIn, limitWithNext, olderThan, type Page } from './database/page.ts';
import { buildRequests, commits } from './database/schema.ts';
import { listNewestBuilds } from './newest-builds.ts';
import type { BuildRequest } from './transition.ts';

export type Commit = typeof commits.$inferSelect;
type CommitItem = Pick<Commit, 'id' | 'version' | 'ref' | 'buildState'>;

export function listCommits(db: Db, projectId: bigint, page: Page): CommitItem[] {
  return db.orm
    .select({ id: commits.id, version: commits.version, ref: commits.ref, buildState: commits.buildState })
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.local, false), olderThan(commits.id, page)))
    .orderBy(desc(commits.id))
    .limit(limitWithNext(page))
    .all();
}

export const findCommit = findIn(commits, commits.projectId);

/** A commit of the repository, rather than of a local run: only these can be deployed. */
export function findPushedCommit(db: Db, projectId: bigint, id: bigint): Commit | undefined {
  const commit = findCommit(db, projectId, id);
  return commit?.local ? undefined : commit;
}

function findCommitByRef(db: Db, projectId: bigint, ref: string, local: boolean): Commit | undefined {
  return db.orm
    .select()
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.ref, ref), eq(commits.local, local)))
    .get();
}

/** Without those of local runs, which no branch ever had. */
export function listCommitRefs(db: Db, projectId: bigint): { id: bigint; ref: string }[] {
  return db.orm
    .select({ id: commits.id, ref: commits.ref })
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.local, false)))
    .all();
}

/** Anyone may request a badge, even of a branch that does not exist, so the search is limited to this many commits. */
const BADGE_HORIZON = 1_000;

/** The newest commit whose builds have finished, on `branch` if given. A badge shows its state. */
export function findNewestFinishedCommit(db: Db, projectId: bigint, branch?: string): CommitItem | undefined {
  const recent = db.orm
    .select()
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.local, false)))
    .orderBy(desc(commits.id))
    .limit(BADGE_HORIZON)
    .as('recent');
  return db.orm
    .select({ id: recent.id, version: recent.version, ref: recent.ref, buildState: recent.buildState })
    .from(recent)
    .where(
      and(
        sql`${recent.buildState} NOT IN ('waiting_for_builds', 'building')`,
        branch === undefined
          ? undefined
          : sql`EXISTS (SELECT 1 FROM json_each(${recent.branches}) WHERE value = ${branch})`,
      ),
    )
    .orderBy(desc(recent.id))
    .limit(1)
    .get();
}

/** The tests of the commit's newest request, in its newest build of each suite. Anyone may request them. */
export const countTestsOfCommit = cached(
  (commitId: bigint) => commitId,
  (db, commitId): TestCounts | undefined => {
    const request = findNewestRequest(db, commitId);
    return request && addCounts(listNewestBuilds(db, request.id).map(({ tests }) => tests));
  },
);

export type CommitFields = Omit<typeof commits.$inferInsert, 'id' | 'projectId' | 'version' | 'buildState'>;

/** Creates the commit, or updates the branches, tags and files of a known one. */
export function recordCommit(db: Db, projectId: bigint, fields: CommitFields): Commit {
  return db.write(() => {
    const known = findCommitByRef(db, projectId, fields.ref, fields.local ?? false);
    if (known)
      return db.orm
        .update(commits)
        .set({
          branches: fields.branches,
          tags: fields.tags,
          files: fields.files,
          filesOmitted: fields.filesOmitted,
        })
        .where(eq(commits.id, known.id))
        .returning()
        .get() as Commit;
    return db.orm
      .insert(commits)
      .values({ ...fields, id: db.newId(), projectId, version: 1, buildState: 'waiting_for_builds' })
      .returning()
      .get();
  });
}

/** After a forced push: the record gets the new hash and a higher version. */
export function overwriteCommit(db: Db, id: bigint, fields: CommitFields): void {
  db.write(() =>
    db.orm
      .update(commits)
      .set({ ...fields, version: sql`${commits.version} + 1` })
      .where(eq(commits.id, id))
      .run(),
  );
}

/** The request that determines the state of the commit. */
export function findNewestRequest(db: Db, commitId: bigint): BuildRequest | undefined {
  return db.orm
    .select()
    .from(buildRequests)
    .where(eq(buildRequests.commitId, commitId))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .get();
}
