// Build requests, commits and builds: the rows. Their states move in transition.ts.

import { randomBytes } from 'node:crypto';
import { and, asc, desc, eq, inArray, lt, ne, sql } from 'drizzle-orm';
import { isFinishedBuild, isFinishedRequest } from '../domain/build.ts';
import { type Db, insertInto } from './db.ts';
import { beyond, olderThan, type Page } from './page.ts';
import type { Project } from './projects.ts';
import { buildRequests, builds, commits, suiteDecisions } from './schema.ts';
import {
  announceBuild,
  announceRequest,
  type Build,
  type BuildRequest,
  moveBuild,
  moveRequest,
  settleCommit,
  settleProject,
} from './transition.ts';

export type { Build, BuildRequest } from './transition.ts';
export type Commit = typeof commits.$inferSelect;
export type CommitItem = Pick<Commit, 'id' | 'version' | 'ref' | 'buildState'>;

export function createBuildRequest(
  db: Db,
  project: Project,
  commitRef: string,
  createdBy: string,
): BuildRequest {
  return db.write(() => {
    const request = db.orm
      .insert(buildRequests)
      .values({
        id: db.newId(),
        projectId: project.id,
        commitRef,
        branch: '',
        buildState: 'enqueued',
        createdBy,
        createdAt: db.now(),
      })
      .returning()
      .get();
    settleProject(db, project.id);
    announceRequest(db, request);
    return request;
  });
}

export function findBuildRequest(db: Db, projectId: bigint, id: bigint): BuildRequest | undefined {
  return db.orm
    .select()
    .from(buildRequests)
    .where(and(eq(buildRequests.id, id), eq(buildRequests.projectId, projectId)))
    .get();
}

export function listBuildRequests(db: Db, projectId: bigint, page: Page): BuildRequest[] {
  return db.orm
    .select()
    .from(buildRequests)
    .where(and(eq(buildRequests.projectId, projectId), olderThan(buildRequests.id, page)))
    .orderBy(desc(buildRequests.id))
    .limit(beyond(page))
    .all();
}

/** Cancels a request and whatever of it has not ended; a running build ends once its container has. */
export function cancelBuildRequest(db: Db, id: bigint, because: string): void {
  db.write(() => {
    const request = db.orm.select().from(buildRequests).where(eq(buildRequests.id, id)).get();
    if (!request || isFinishedRequest(request.buildState)) return;
    const unfinished = db.orm
      .select({ id: builds.id })
      .from(builds)
      .where(and(eq(builds.buildRequestId, id), inArray(builds.buildState, ['enqueued', 'running'])))
      .orderBy(asc(builds.id))
      .all();
    for (const build of unfinished) cancelBuild(db, build.id, because);
    if (unfinished.length === 0) moveRequest(db, id, 'cancel');
  });
}

/** The older requests of a branch that a newer one makes superfluous. */
export function listSupersededRequests(db: Db, request: BuildRequest): bigint[] {
  return db.orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(
      and(
        eq(buildRequests.projectId, request.projectId),
        lt(buildRequests.id, request.id),
        eq(buildRequests.commitRef, request.commitRef),
        sql`build_state IN ('enqueued', 'fetching', 'building')`,
      ),
    )
    .all()
    .map(row => row.id);
}

export function listCommits(db: Db, projectId: bigint, page: Page): CommitItem[] {
  return db.orm
    .select({ id: commits.id, version: commits.version, ref: commits.ref, buildState: commits.buildState })
    .from(commits)
    .where(and(eq(commits.projectId, projectId), olderThan(commits.id, page)))
    .orderBy(desc(commits.id))
    .limit(beyond(page))
    .all();
}

export function findCommit(db: Db, projectId: bigint, id: bigint): Commit | undefined {
  return db.orm
    .select()
    .from(commits)
    .where(and(eq(commits.id, id), eq(commits.projectId, projectId)))
    .get();
}

export function findCommitByRef(db: Db, projectId: bigint, ref: string): Commit | undefined {
  return db.orm
    .select()
    .from(commits)
    .where(and(eq(commits.projectId, projectId), eq(commits.ref, ref)))
    .get();
}

export function listCommitRefs(db: Db, projectId: bigint): { id: bigint; ref: string }[] {
  return db.orm
    .select({ id: commits.id, ref: commits.ref })
    .from(commits)
    .where(eq(commits.projectId, projectId))
    .all();
}

/** Anyone may ask for a badge, and for one of a branch that is not there: so many commits are looked at, not all. */
const BADGE_HORIZON = 1_000;

/** The newest commit whose builds have ended, on `branch` where one is given: what a badge shows. */
export function findNewestFinishedCommit(db: Db, projectId: bigint, branch?: string): CommitItem | undefined {
  const recent = db.orm
    .select()
    .from(commits)
    .where(eq(commits.projectId, projectId))
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

export type CommitFields = Omit<typeof commits.$inferInsert, 'id' | 'projectId' | 'version' | 'buildState'>;

/** Records a commit as the repository has it now; one seen before keeps its id. */
export function recordCommit(db: Db, projectId: bigint, fields: CommitFields): Commit {
  return db.write(() => {
    const known = findCommitByRef(db, projectId, fields.ref);
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

/** A commit that was forcefully overwritten: its record takes the new hash and its version goes up. */
export function overwriteCommit(db: Db, id: bigint, fields: CommitFields): void {
  db.write(() =>
    db.orm
      .update(commits)
      .set({ ...fields, version: sql`${commits.version} + 1` })
      .where(eq(commits.id, id))
      .run(),
  );
}

export type Decision = { suiteId: bigint; suiteName: string; runs: boolean; rules: unknown[] };

/** The end of a fetch: the commit is known, and a build is enqueued for each suite that runs; none makes it skipped. */
export function beginBuilds(
  db: Db,
  requestId: bigint,
  commit: Commit,
  branch: string,
  decisions: readonly Decision[],
): BuildRequest | undefined {
  return db.write(() => {
    const running = decisions.filter(decision => decision.runs);
    const moved = moveRequest(db, requestId, running.length > 0 ? 'build' : 'skip', {
      commitId: commit.id,
      branch,
    });
    if (!moved) return undefined;
    for (const decision of decisions)
      insertDecision(db, { ...decision, buildRequestId: requestId, rules: JSON.stringify(decision.rules) });
    for (const decision of running) createBuild(db, moved, commit, decision);
    settleCommit(db, commit.id);
    settleProject(db, moved.projectId);
    return moved;
  });
}

const insertDecision = insertInto(suiteDecisions);
const insertBuild = insertInto(builds);

function createBuild(
  db: Db,
  request: Pick<BuildRequest, 'id' | 'projectId'>,
  commit: { id: bigint; ref: string },
  suite: { suiteId: bigint; suiteName: string },
): Build {
  const build: Build = {
    id: db.newId(),
    projectId: request.projectId,
    buildRequestId: request.id,
    commitId: commit.id,
    commitRef: commit.ref,
    suiteId: suite.suiteId,
    suiteName: suite.suiteName,
    buildState: 'enqueued',
    exitCode: null,
    error: null,
    attempts: 0,
    nonce: null,
    cancelBecause: null,
    createdAt: db.now(),
    startedAt: null,
    finishedAt: null,
  };
  insertBuild(db, build);
  announceBuild(db, build);
  return build;
}

/** The suite as it is now, on the same commit, as a new build of the same request. */
export function rerunBuild(db: Db, build: Build, suite: { id: bigint; name: string }): Build {
  return db.write(() => {
    moveRequest(db, build.buildRequestId, 'rerun');
    const again = createBuild(
      db,
      { id: build.buildRequestId, projectId: build.projectId },
      { id: build.commitId, ref: build.commitRef },
      { suiteId: suite.id, suiteName: suite.name },
    );
    settleCommit(db, build.commitId);
    settleProject(db, build.projectId);
    return again;
  });
}

export function findBuild(db: Db, projectId: bigint, id: bigint): Build | undefined {
  return db.orm
    .select()
    .from(builds)
    .where(and(eq(builds.id, id), eq(builds.projectId, projectId)))
    .get();
}

export function listBuildsOfCommit(db: Db, commitId: bigint, page: Page): Build[] {
  return db.orm
    .select()
    .from(builds)
    .where(and(eq(builds.commitId, commitId), olderThan(builds.id, page)))
    .orderBy(desc(builds.id))
    .limit(beyond(page))
    .all();
}

export function listBuildsOfRequest(db: Db, requestId: bigint): Build[] {
  return db.orm
    .select()
    .from(builds)
    .where(eq(builds.buildRequestId, requestId))
    .orderBy(desc(builds.id))
    .all();
}

/** Claims the build for whoever runs it; undefined where it was canceled or claimed meanwhile. */
export function claimBuild(db: Db, id: bigint): Build | undefined {
  return db.write(() => {
    const build = db.orm.select({ attempts: builds.attempts }).from(builds).where(eq(builds.id, id)).get();
    if (!build) return undefined;
    return moveBuild(db, id, 'start', {
      nonce: randomBytes(16).toString('hex'),
      attempts: build.attempts + 1,
      cancelBecause: null,
      error: null,
    });
  });
}

/** Cancels a build `because` ("by somebody", "because of something"): at once while it waits, else by asking whoever runs it. Nothing changes when it has ended. */
export function cancelBuild(db: Db, id: bigint, because: string): void {
  db.write(() => {
    const build = db.orm.select().from(builds).where(eq(builds.id, id)).get();
    if (!build || isFinishedBuild(build.buildState)) return;
    if (build.buildState === 'enqueued') {
      moveBuild(db, id, 'cancel', { cancelBecause: because });
      return;
    }
    // Who asked first is who ended it.
    if (build.cancelBecause !== null) return;
    db.orm.update(builds).set({ cancelBecause: because }).where(eq(builds.id, id)).run();
    db.touch(`build:${id}`);
    db.touch('queue');
  });
}

/** What was decided for the commit's newest request that got as far. */
export function listSuiteDecisions(db: Db, commitId: bigint): (typeof suiteDecisions.$inferSelect)[] {
  const newest = db.orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(and(eq(buildRequests.commitId, commitId), ne(buildRequests.buildState, 'fetching')))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .get();
  if (!newest) return [];
  return db.orm
    .select()
    .from(suiteDecisions)
    .where(eq(suiteDecisions.buildRequestId, newest.id))
    .orderBy(desc(suiteDecisions.suiteId))
    .all();
}
