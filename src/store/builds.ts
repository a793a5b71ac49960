// Build requests and builds. transition.ts changes their states.

import { randomBytes } from 'node:crypto';
import { and, desc, eq, lt, sql } from 'drizzle-orm';
import type { BuildRequestState } from '../domain/build.ts';
import { DETACHED } from '../domain/names.ts';
import { BUILDS_PER_BATCH, cancelBuild, findCancel } from './cancels.ts';
import type { Commit } from './commits.ts';
import { type Db, insertInto, jsonOf, prepared } from './database/db.ts';
import { findIn, limitWithNext, listPage, olderThan, type Page } from './database/page.ts';
import { buildRequests, builds, requestDecisions, snapshots } from './database/schema.ts';
import { unfinished } from './database/unfinished.ts';
import { type Decision, recordDecisions, unpackDecisions } from './decisions.ts';
import type { Project } from './projects.ts';
import {
  announceBuild,
  announceRequest,
  type Build,
  type BuildRequest,
  moveBuild,
  moveRequest,
  updateCommitState,
  updateProjectState,
} from './transition.ts';

export {
  type Commit,
  type CommitFields,
  countTestsOfCommit,
  findCommit,
  findNewestFinishedCommit,
  findNewestRequest,
  findPushedCommit,
  listCommitRefs,
  listCommits,
  overwriteCommit,
  recordCommit,
} from './commits.ts';
export { type Decision, listSuiteDecisions } from './decisions.ts';
export type { Build, BuildRequest } from './transition.ts';

/** What a trigger knows about the request that it makes. */
type Started = Partial<
  Pick<
    BuildRequest,
    | 'trigger'
    | 'triggerId'
    | 'triggerName'
    | 'pinned'
    | 'pinnedRef'
    | 'pushedBy'
    | 'pullRequest'
    | 'withoutVariables'
    | 'snapshotId'
    | 'suites'
  >
>;

const insertRequest = insertInto(buildRequests);

export function createBuildRequest(
  db: Db,
  project: Project,
  commitRef: string,
  createdBy: string,
  started: Started = {},
): BuildRequest {
  return db.write(() => {
    const local = started.trigger === 'local';
    const request: BuildRequest = {
      id: db.newId(),
      projectId: project.id,
      commitRef,
      branch: '',
      tag: '',
      commitId: null,
      buildState: 'enqueued',
      error: null,
      createdBy,
      createdAt: db.now(),
      finishedAt: null,
      pinned: null,
      pinnedRef: null,
      trigger: null,
      triggerId: null,
      triggerName: null,
      pushedBy: null,
      pullRequest: null,
      withoutVariables: false,
      snapshotId: null,
      suites: null,
      ...started,
      local,
      ...(local && { withoutVariables: !mayUseVariables(db, project, started.snapshotId) }),
    };
    insertRequest(db, request);
    updateProjectState(db, project.id);
    announceRequest(db, request);
    return request;
  });
}

/**
 * Whether a local run gets the variables of suites, which are secrets: a working tree may be any code. That of the owner
 * does, that of a collaborator only if the project allows it.
 */
function mayUseVariables(db: Db, project: Project, snapshotId: bigint | null | undefined): boolean {
  if (project.localVariables) return true;
  const snapshot = db.orm
    .select({ accountId: snapshots.accountId })
    .from(snapshots)
    .where(and(eq(snapshots.id, snapshotId ?? 0n), eq(snapshots.projectId, project.id)))
    .get();
  return snapshot?.accountId === project.ownerId;
}

export const findBuildRequest = findIn(buildRequests, buildRequests.projectId);

/** The branch whose builds a build of the request is compared with. That of a local run is the one of its working tree. */
export const comparedBranch = ({ local, branch, commitRef }: BuildRequest): string =>
  local && commitRef !== DETACHED ? commitRef : branch;

/** Local runs are on no branch. */
export function listBuildRequests(
  db: Db,
  projectId: bigint,
  page: Page,
  filter: {
    branch?: string | undefined;
    state?: BuildRequestState | undefined;
    local?: boolean | undefined;
  } = {},
): BuildRequest[] {
  const { branch, state } = filter;
  const local = branch === undefined ? filter.local : false;
  const condition = and(
    eq(buildRequests.projectId, projectId),
    local === undefined ? undefined : eq(buildRequests.local, local),
    state === undefined ? undefined : eq(buildRequests.buildState, state),
  );
  if (branch === undefined) return listPage(db, buildRequests, condition, page);
  const { branch: ofBranch, tag, commitRef, id } = buildRequests;
  // Two queries, because the index has an order by id for one branch only.
  const ids = [
    eq(ofBranch, branch),
    // Before the fetch, only commit_ref says which branch it is for.
    and(eq(ofBranch, ''), eq(tag, ''), eq(commitRef, branch)),
  ].flatMap(one =>
    db.orm
      .select({ id })
      .from(buildRequests)
      .where(and(condition, one, olderThan(id, page)))
      .orderBy(desc(id))
      .limit(limitWithNext(page))
      .all(),
  );
  const isFound = sql`${id} IN (SELECT value FROM json_each(${jsonOf(ids.map(row => row.id))}))`;
  return listPage(db, buildRequests, isFound, page);
}

/** Unfinished older requests for the same ref. Local runs neither supersede others nor are superseded. */
export function listSupersededRequests(db: Db, request: BuildRequest): bigint[] {
  if (request.local) return [];
  return db.orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(
      and(
        eq(buildRequests.projectId, request.projectId),
        lt(buildRequests.id, request.id),
        eq(buildRequests.commitRef, request.commitRef),
        eq(buildRequests.local, false),
        sql.raw(unfinished.request),
      ),
    )
    .all()
    .map(row => row.id);
}

/** Ids of builds that do not exist yet, by suite. */
export type ReservedIds = ReadonlyMap<bigint, bigint>;

/**
 * Ends a fetch: enqueues a build for each suite that runs, or skips the request if there is none. The first builds are
 * created at once, the others in batches by `enqueueSomeBuilds`.
 */
export function enqueueBuilds(
  db: Db,
  requestId: bigint,
  commit: Commit,
  branch: string,
  decisions: readonly Decision[],
  others: Partial<Pick<BuildRequest, 'tag' | 'error'>> = {},
  reservedIds: ReservedIds = new Map(),
): BuildRequest | undefined {
  return db.write(() => {
    const running = decisions.filter(decision => decision.runs);
    const moved = moveRequest(db, requestId, running.length > 0 ? 'build' : 'skip', {
      commitId: commit.id,
      branch,
      ...others,
    });
    if (!moved) return undefined;
    recordDecisions(db, requestId, decisions);
    enqueueBatch(db, moved, commit, running, 0, reservedIds);
    updateCommitState(db, commit.id);
    updateProjectState(db, moved.projectId);
    return moved;
  });
}

function enqueueBatch(
  db: Db,
  request: BuildRequest,
  commit: { id: bigint; ref: string },
  running: readonly Decision[],
  begun: number,
  reservedIds: ReservedIds = new Map(),
): void {
  const end = begun + BUILDS_PER_BATCH;
  const batch = running
    .slice(begun, end)
    .map(decision => createBuild(db, request, commit, decision, reservedIds.get(decision.suiteId)));
  const isMore = end < running.length;
  db.orm
    .update(requestDecisions)
    .set({ begun: isMore ? end : null })
    .where(eq(requestDecisions.buildRequestId, request.id))
    .run();
  if (isMore) db.touch('batches');
  const cancel = findCancel(db, request.id);
  if (cancel) for (const { id } of batch) cancelBuild(db, id, cancel.because);
}

/** Creates the next batch of builds of a request with many suites. False if no request has any left. */
export function enqueueSomeBuilds(db: Db): boolean {
  return db.write(() => {
    const found = db.orm
      .select({ request: buildRequests, row: requestDecisions, commitRef: builds.commitRef })
      .from(requestDecisions)
      .innerJoin(buildRequests, eq(buildRequests.id, requestDecisions.buildRequestId))
      .innerJoin(builds, eq(builds.buildRequestId, requestDecisions.buildRequestId))
      .where(sql`begun IS NOT NULL`)
      .limit(1)
      .get();
    if (!found) return false;
    const { request, row, commitRef } = found;
    const running = unpackDecisions(row.decisions).filter(({ runs }) => runs);
    // Use the hash of the earlier builds: the commit's own may have changed since.
    enqueueBatch(
      db,
      request,
      { id: request.commitId as bigint, ref: commitRef },
      running,
      row.begun as number,
    );
    return true;
  });
}

const insertBuild = insertInto(builds);

function createBuild(
  db: Db,
  request: Pick<BuildRequest, 'id' | 'projectId' | 'local'>,
  commit: { id: bigint; ref: string },
  suite: { suiteId: bigint; suiteName: string },
  id = db.newId(),
): Build {
  const build: Build = {
    id,
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
    spentMs: 0,
    nonce: null,
    cancelBecause: null,
    createdAt: db.now(),
    startedAt: null,
    finishedAt: null,
    keep: false,
    artifacts: 0,
    artifactsBytes: 0,
    artifactsTruncated: false,
    tests: null,
    local: request.local,
    steps: null,
    node: null,
  };
  insertBuild(db, build);
  announceBuild(db, build);
  return build;
}

/** Creates a build of the suite's current version for the same commit and request. */
export function rerunBuild(db: Db, build: Build, suite: { id: bigint; name: string }): Build {
  return db.write(() => {
    moveRequest(db, build.buildRequestId, 'rerun');
    const rerun = createBuild(
      db,
      { id: build.buildRequestId, projectId: build.projectId, local: build.local },
      { id: build.commitId, ref: build.commitRef },
      { suiteId: suite.id, suiteName: suite.name },
    );
    updateCommitState(db, build.commitId);
    updateProjectState(db, build.projectId);
    return rerun;
  });
}

export const findBuild = findIn(builds, builds.projectId);

export function listBuildsOfCommit(db: Db, commitId: bigint, page: Page): Build[] {
  return listPage(db, builds, eq(builds.commitId, commitId), page);
}

export function listPageOfRequest(db: Db, requestId: bigint, page: Page): Build[] {
  return listPage(db, builds, eq(builds.buildRequestId, requestId), page);
}

/** What links to a build need. */
export type BuildLink = Pick<Build, 'id' | 'projectId' | 'suiteId' | 'suiteName' | 'buildState'>;

// Without drizzle, because a request may have hundreds.
const buildLinks = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint], BuildLink>(
    `SELECT id, project_id AS projectId, suite_id AS suiteId, suite_name AS suiteName, build_state AS buildState
     FROM builds WHERE build_request_id = ? ORDER BY id`,
  ),
);

/** Oldest first. */
export const listBuildLinks = (db: Db, requestId: bigint): BuildLink[] => buildLinks(db).all(requestId);

const claimable = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint], { attempts: bigint; requestId: bigint }>(
    'SELECT attempts, build_request_id AS requestId FROM builds WHERE id = ?',
  ),
);

/** Records on which node the container of a running build was placed. Does nothing for a build that does not run. */
export function recordNode(db: Db, id: bigint, node: string): void {
  db.write(() => {
    const changed = db.orm
      .update(builds)
      .set({ node })
      .where(and(eq(builds.id, id), eq(builds.buildState, 'running'), sql`${builds.node} IS NOT ${node}`))
      .returning({ projectId: builds.projectId })
      .get();
    if (!changed) return;
    for (const topic of [`build:${id}`, `project:${changed.projectId}`, 'queue']) db.touch(topic);
  });
}

/** Starts the build for its runner. Undefined if it was claimed or canceled meanwhile. */
export function claimBuild(db: Db, id: bigint): Build | undefined {
  return db.write(() => {
    const build = claimable(db).get(id);
    if (!build) return undefined;
    const cancel = findCancel(db, build.requestId);
    if (cancel && id <= cancel.upToBuildId) {
      cancelBuild(db, id, cancel.because);
      return undefined;
    }
    return moveBuild(db, id, 'start', {
      nonce: randomBytes(16).toString('hex'),
      attempts: Number(build.attempts) + 1,
      cancelBecause: null,
      error: null,
    });
  });
}
