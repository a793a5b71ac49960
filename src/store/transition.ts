// The only place that writes a state column. A move is one guarded UPDATE; in its transaction the event is recorded and
// what is derived from it (request, commit, project) follows.

import { and, desc, eq, inArray, sql } from 'drizzle-orm';
import { buildEventOf } from '../contract/events.ts';
import { presentBuild, presentBuildRequest, presentDeploy } from '../contract/records.ts';
import {
  type BuildEvent,
  type BuildRequestEvent,
  buildMachine,
  buildRequestMachine,
  commitState,
  foldBuilds,
  isFinishedBuild,
  isFinishedRequest,
  projectState,
} from '../domain/build.ts';
import { COMPILE_CANCELED, type CompileEvent, compileMachine } from '../domain/dependency.ts';
import { type DeployEvent, deployMachine } from '../domain/deploy.ts';
import { nextState } from '../domain/machine.ts';
import { type Db, prepared } from './database/db.ts';
import {
  buildRequests,
  builds,
  commits,
  dependencies,
  deployStrategies,
  deploys,
  projects,
} from './database/schema.ts';
import { dependencyRecord, listProjectsUsing } from './dependency-use.ts';
import { recordEvent } from './events.ts';

export type Build = typeof builds.$inferSelect;
export type BuildRequest = typeof buildRequests.$inferSelect;
export type Deploy = typeof deploys.$inferSelect;
export type Dependency = typeof dependencies.$inferSelect;

type Changes<Row> = Partial<Omit<Row, 'id' | 'buildState' | 'compileState' | 'state'>>;

/**
 * Moves a build; undefined where its state has no such edge any more, which is a normal thing to lose. A cancel that was
 * answered is kept: what would run again is canceled instead.
 */
export function moveBuild(
  db: Db,
  id: bigint,
  wanted: BuildEvent,
  changes: Changes<Build> = {},
): Build | undefined {
  return db.write(() => {
    const build = db.orm.select().from(builds).where(eq(builds.id, id)).get();
    const event = wanted === 'requeue' && build?.cancelBecause != null ? 'cancel' : wanted;
    const next = build && nextState(buildMachine, build.buildState, event);
    if (!next) return undefined;
    const moved = db.orm
      .update(builds)
      .set({
        ...(event === 'start' && { startedAt: db.now() }),
        ...(event === 'requeue' && { startedAt: null, nonce: null, spentMs: spentWith(build, db.now()) }),
        ...(isFinishedBuild(next) && { finishedAt: db.now(), nonce: null }),
        ...changes,
        buildState: next,
      })
      .where(and(eq(builds.id, id), eq(builds.buildState, build.buildState)))
      .returning()
      .get() as Build;
    announceBuild(db, moved);
    if (isFinishedBuild(next)) finishRequest(db, moved.buildRequestId);
    else {
      updateCommitState(db, moved.commitId, event === 'start' ? moved.buildRequestId : undefined);
      updateProjectState(db, moved.projectId);
    }
    return moved;
  });
}

/** With the attempt that ends now. A clock that was set back takes nothing off. */
function spentWith({ spentMs, startedAt }: Pick<Build, 'spentMs' | 'startedAt'>, now: number): number {
  return spentMs + Math.max(0, now - (startedAt ?? now));
}

export function announceBuild(db: Db, build: Build): void {
  recordEvent(db, build.projectId, buildEventOf(build.buildState), build.id, {
    kind: 'build',
    record: presentBuild(build),
  });
  db.touch(`build:${build.id}`);
  db.touch(`project:${build.projectId}`);
  db.touch('queue');
}

export function moveRequest(
  db: Db,
  id: bigint,
  event: BuildRequestEvent,
  changes: Changes<BuildRequest> = {},
): BuildRequest | undefined {
  return db.write(() => {
    const request = db.orm.select().from(buildRequests).where(eq(buildRequests.id, id)).get();
    const next = request && nextState(buildRequestMachine, request.buildState, event);
    if (!next) return undefined;
    const moved = db.orm
      .update(buildRequests)
      .set({
        ...(isFinishedRequest(next) ? { finishedAt: db.now() } : { finishedAt: null }),
        ...changes,
        buildState: next,
      })
      .where(and(eq(buildRequests.id, id), eq(buildRequests.buildState, request.buildState)))
      .returning()
      .get() as BuildRequest;
    if (moved.commitId !== null) updateCommitState(db, moved.commitId);
    updateProjectState(db, moved.projectId);
    // Told of last: the event shows the project as it is from now on.
    announceRequest(db, moved);
    if (next === 'passed') deployAutomatically(db, moved);
    return moved;
  });
}

/** Tells of a request that came or ended; the steps between are seen on its builds. */
export function announceRequest(db: Db, request: BuildRequest): void {
  const finished = isFinishedRequest(request.buildState);
  if (finished || request.buildState === 'enqueued')
    recordEvent(
      db,
      request.projectId,
      finished ? 'build_request.finished' : 'build_request.enqueued',
      request.id,
      {
        kind: 'build_request',
        record: presentBuildRequest(request),
      },
    );
  db.touch(`build_request:${request.id}`);
  db.touch(`project:${request.projectId}`);
  db.touch('queue');
}

const unfinishedBuild = prepared(db =>
  db.sqlite
    .prepare<[bigint, bigint], bigint>(
      `SELECT 1 FROM request_decisions WHERE build_request_id = ? AND begun IS NOT NULL
       UNION ALL
       SELECT 1 FROM builds AS build
       WHERE build_request_id = ? AND build_state IN ('enqueued', 'running') AND NOT EXISTS (
         SELECT 1 FROM builds AS newer
         WHERE newer.build_request_id = build.build_request_id AND newer.suite_id = build.suite_id AND newer.id > build.id
       ) LIMIT 1`,
    )
    .pluck(),
);

/**
 * Ends a request whose builds have all been made and have ended: of each suite the newest build counts. Only the last build to end costs a
 * look at all of them.
 */
function finishRequest(db: Db, id: bigint): void {
  if (unfinishedBuild(db).get(id, id) !== undefined) return;
  const newest = db.orm
    .select({ id: sql<bigint>`max(${builds.id})` })
    .from(builds)
    .where(eq(builds.buildRequestId, id))
    .groupBy(builds.suiteId);
  const states = db.orm
    .select({ state: builds.buildState })
    .from(builds)
    .where(inArray(builds.id, newest))
    .all()
    .map(row => row.state);
  const verdict = foldBuilds(states);
  if (verdict) moveRequest(db, id, verdict);
}

/** A commit has the state of its newest request. `startedRequestId` is one whose build has just started. */
export function updateCommitState(db: Db, id: bigint, startedRequestId?: bigint): void {
  const request = db.orm
    .select({ id: buildRequests.id, state: buildRequests.buildState })
    .from(buildRequests)
    .where(eq(buildRequests.commitId, id))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .get();
  if (!request) return;
  const state = commitState(
    request.state,
    request.state === 'building' && (request.id === startedRequestId || hasStarted(db, request.id)),
  );
  db.orm
    .update(commits)
    .set({ buildState: state })
    .where(and(eq(commits.id, id), sql`${commits.buildState} <> ${state}`))
    .run();
}

function hasStarted(db: Db, requestId: bigint): boolean {
  const started = db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(and(eq(builds.buildRequestId, requestId), sql`${builds.startedAt} IS NOT NULL`))
    .limit(1)
    .get();
  return started !== undefined;
}

export function updateProjectState(db: Db, id: bigint): void {
  const unfinished = db.orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(and(eq(buildRequests.projectId, id), sql`build_state IN ('enqueued', 'fetching', 'building')`))
    .limit(1)
    .get();
  const newestRequest = db.orm
    .select({ commitId: buildRequests.commitId, state: buildRequests.buildState })
    .from(buildRequests)
    .where(eq(buildRequests.projectId, id))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .get();
  const newestCommit = db.orm
    .select({ state: commits.buildState })
    .from(commits)
    .where(eq(commits.projectId, id))
    .orderBy(desc(commits.id))
    .limit(1)
    .get();
  const state = projectState({
    unfinishedRequest: unfinished !== undefined,
    newestRequestWithoutCommit: newestRequest?.commitId === null ? newestRequest.state : undefined,
    newestCommit: newestCommit?.state,
  });
  db.orm
    .update(projects)
    .set({ buildState: state })
    .where(and(eq(projects.id, id), sql`${projects.buildState} <> ${state}`))
    .run();
  db.touch(`project:${id}`);
}

/** Enqueues a deploy, which keeps what it is to do. */
export function insertDeploy(
  db: Db,
  strategy: typeof deployStrategies.$inferSelect,
  commit: { id: bigint; ref: string },
  createdBy: string,
): Deploy {
  return db.write(() => {
    const deploy = db.orm
      .insert(deploys)
      .values({
        id: db.newId(),
        projectId: strategy.projectId,
        deployStrategyId: strategy.id,
        strategyName: strategy.name,
        repositoryUrl: strategy.repositoryUrl,
        localBranch: strategy.localBranch,
        remoteBranch: strategy.remoteBranch,
        commitId: commit.id,
        commitRef: commit.ref,
        state: 'enqueued',
        createdBy,
        createdAt: db.now(),
      })
      .returning()
      .get();
    announceDeploy(db, deploy);
    return deploy;
  });
}

/** What passed is deployed by each automatic strategy of a branch that holds it, once: what an amend made of it is another. */
function deployAutomatically(db: Db, request: BuildRequest): void {
  // Not where the record has taken another hash since: that one has not passed.
  const commit = db.orm
    .select({ id: commits.id, ref: commits.ref, branches: commits.branches })
    .from(builds)
    .innerJoin(commits, and(eq(commits.id, builds.commitId), eq(commits.ref, builds.commitRef)))
    .where(eq(builds.buildRequestId, request.id))
    .get();
  if (!commit) return;
  const branches = JSON.parse(commit.branches) as string[];
  const strategies = db.orm
    .select()
    .from(deployStrategies)
    .where(and(eq(deployStrategies.projectId, request.projectId), eq(deployStrategies.automatic, true)))
    .orderBy(deployStrategies.id)
    .all();
  for (const strategy of strategies) {
    const before = db.orm
      .select({ id: deploys.id })
      .from(deploys)
      .where(and(eq(deploys.deployStrategyId, strategy.id), eq(deploys.commitRef, commit.ref)))
      .limit(1)
      .get();
    if (!before && branches.includes(strategy.localBranch))
      insertDeploy(db, strategy, commit, request.createdBy);
  }
}

export function moveDeploy(
  db: Db,
  id: bigint,
  event: DeployEvent,
  changes: Changes<Deploy> = {},
): Deploy | undefined {
  return db.write(() => {
    const deploy = db.orm.select().from(deploys).where(eq(deploys.id, id)).get();
    const next = deploy && nextState(deployMachine, deploy.state, event);
    if (!next) return undefined;
    const moved = db.orm
      .update(deploys)
      .set({
        ...(event === 'start' ? { startedAt: db.now() } : { finishedAt: db.now() }),
        ...changes,
        state: next,
      })
      .where(and(eq(deploys.id, id), eq(deploys.state, deploy.state)))
      .returning()
      .get() as Deploy;
    announceDeploy(db, moved);
    return moved;
  });
}

export function announceDeploy(db: Db, deploy: Deploy): void {
  const type =
    deploy.state === 'enqueued'
      ? 'deploy.enqueued'
      : deploy.state === 'deploying'
        ? 'deploy.started'
        : 'deploy.finished';
  recordEvent(db, deploy.projectId, type, deploy.id, { kind: 'deploy', record: presentDeploy(deploy) });
  db.touch(`deploy:${deploy.id}`);
  db.touch(`project:${deploy.projectId}`);
  db.touch('queue');
}

/** A cancel that was answered is kept: what would be compiled again is canceled instead. */
export function moveDependency(
  db: Db,
  id: bigint,
  wanted: CompileEvent,
  changes: Changes<Dependency> = {},
): Dependency | undefined {
  return db.write(() => {
    const dependency = db.orm.select().from(dependencies).where(eq(dependencies.id, id)).get();
    const isCalledOff = wanted === 'requeue' && dependency?.cancelRequested === true;
    const event = isCalledOff ? 'cancel' : wanted;
    const next = dependency && nextState(compileMachine, dependency.compileState, event);
    if (!next) return undefined;
    const finished = next === 'compiled' || next === 'compile_failed';
    const moved = db.orm
      .update(dependencies)
      .set({
        ...(next === 'enqueued_for_compile' && {
          enqueuedAt: db.now(),
          startedAt: null,
          nonce: null,
          finishedAt: null,
          error: null,
          spentMs: event === 'requeue' ? spentWith(dependency, db.now()) : 0,
        }),
        ...(event === 'start' && { startedAt: db.now() }),
        ...(finished && { finishedAt: db.now(), nonce: null }),
        ...changes,
        ...(isCalledOff && { error: COMPILE_CANCELED }),
        compileState: next,
      })
      .where(and(eq(dependencies.id, id), eq(dependencies.compileState, dependency.compileState)))
      .returning()
      .get() as Dependency;
    announceDependency(
      db,
      moved,
      finished ? 'dependency.finished' : event === 'start' ? 'dependency.started' : 'dependency.enqueued',
    );
    return moved;
  });
}

/** A dependency's events belong to every project that uses it. */
export function announceDependency(
  db: Db,
  dependency: Dependency,
  type: 'dependency.enqueued' | 'dependency.started' | 'dependency.finished' | 'dependency.shared',
): void {
  const record = dependencyRecord(db, dependency);
  for (const projectId of listProjectsUsing(db, dependency.id))
    recordEvent(db, projectId, type, dependency.id, { kind: 'dependency', record });
  db.touch(`dependency:${dependency.id}`);
  db.touch('queue');
}
