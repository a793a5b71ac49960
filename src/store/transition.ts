// The only file that writes state columns. A transition is one conditional UPDATE. The same transaction records the event
// and updates the derived states of the request, commit and project.

import { and, desc, eq, sql } from 'drizzle-orm';
import { buildEventOf } from '../contract/events.ts';
import { presentBuild, presentBuildRequest } from '../contract/records/build.ts';
import { presentDeploy } from '../contract/records/deploy.ts';
import { presentTrigger } from '../contract/records/trigger.ts';
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
import type { TriggerState } from '../domain/trigger/trigger.ts';
import { type Db, prepared, readRowOf, updateIn } from './database/db.ts';
import { dependencies } from './database/dependency-schema.ts';
import { buildRequests, builds, commits, deployStrategies, deploys, triggers } from './database/schema.ts';
import { unfinished } from './database/unfinished.ts';
import {
  canCompileAgain,
  type Dependency,
  dependencyRecord,
  listDependents,
  listProjectsUsing,
  listRelated,
} from './dependency-use.ts';
import { recordEvent } from './events.ts';
import { listNewestBuilds } from './newest-builds.ts';
import { deleteUnusedRelations, recordCompiledRelated } from './related-dependencies.ts';

export type Build = typeof builds.$inferSelect;
export type BuildRequest = typeof buildRequests.$inferSelect;
export type Deploy = typeof deploys.$inferSelect;

type Changes<Row> = Partial<Omit<Row, 'id' | 'buildState' | 'compileState' | 'state'>>;

const findBuildRow = readRowOf(builds);
const findRequestRow = readRowOf(buildRequests);
const updateBuild = updateIn(builds, 'buildState');
const updateRequest = updateIn(buildRequests, 'buildState');

/**
 * Applies an event to a build. Undefined if its state does not allow the event, which is normal after a lost race. A build
 * with a pending cancel is canceled instead of requeued.
 */
export function moveBuild(
  db: Db,
  id: bigint,
  wanted: BuildEvent,
  changes: Changes<Build> = {},
): Build | undefined {
  return db.write(() => {
    const build = findBuildRow(db, id);
    const event = wanted === 'requeue' && build?.cancelBecause != null ? 'cancel' : wanted;
    const next = build && nextState(buildMachine, build.buildState, event);
    if (!next) return undefined;
    const moved = updateBuild(db, build, {
      ...(event === 'start' && { startedAt: db.now() }),
      ...(event === 'requeue' && {
        startedAt: null,
        nonce: null,
        node: null,
        spentMs: spentWith(build, db.now()),
      }),
      ...(isFinishedBuild(next) && { finishedAt: db.now(), nonce: null }),
      ...changes,
      buildState: next,
    }) as Build;
    announceBuild(db, moved);
    if (isFinishedBuild(next)) finishRequest(db, moved.buildRequestId);
    else if (updateCommitState(db, moved.commitId, event === 'start' ? moved.buildRequestId : undefined))
      updateProjectState(db, moved.projectId);
    return moved;
  });
}

/** Includes the attempt that ends now. If the clock was set back, that attempt counts as 0. */
function spentWith({ spentMs, startedAt }: Pick<Build, 'spentMs' | 'startedAt'>, now: number): number {
  return spentMs + Math.max(0, now - (startedAt ?? now));
}

export function announceBuild(db: Db, build: Build): void {
  recordEvent(
    db,
    build.projectId,
    buildEventOf(build.buildState),
    build.id,
    { kind: 'build', record: presentBuild(build) },
    build.local ? 'streams' : 'all',
  );
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
    const request = findRequestRow(db, id);
    const next = request && nextState(buildRequestMachine, request.buildState, event);
    if (!next) return undefined;
    const moved = updateRequest(db, request, {
      ...(isFinishedRequest(next) ? { finishedAt: db.now() } : { finishedAt: null }),
      ...changes,
      buildState: next,
    }) as BuildRequest;
    if (moved.commitId !== null) updateCommitState(db, moved.commitId);
    updateProjectState(db, moved.projectId);
    // Last, because the event contains the updated project.
    announceRequest(db, moved);
    if (next === 'passed') deployAutomatically(db, moved);
    return moved;
  });
}

/** Records an event for a new or a finished request. Its builds have events for the states between. */
export function announceRequest(db: Db, request: BuildRequest): void {
  const finished = isFinishedRequest(request.buildState);
  if (finished || request.buildState === 'enqueued')
    recordEvent(
      db,
      request.projectId,
      finished ? 'build_request.finished' : 'build_request.enqueued',
      request.id,
      { kind: 'build_request', record: presentBuildRequest(request) },
      request.local ? 'streams' : 'all',
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
       WHERE build_request_id = ? AND ${unfinished.build} AND NOT EXISTS (
         SELECT 1 FROM builds AS newer
         WHERE newer.build_request_id = build.build_request_id AND newer.suite_id = build.suite_id AND newer.id > build.id
       ) LIMIT 1`,
    )
    .pluck(),
);

/** Finishes a request once all builds exist and have ended. The newest build of each suite determines the result. */
function finishRequest(db: Db, id: bigint): void {
  if (unfinishedBuild(db).get(id, id) !== undefined) return;
  const event = foldBuilds(listNewestBuilds(db, id).map(({ state }) => state));
  if (event) moveRequest(db, id, event);
}

const commitStatements = prepared(({ sqlite }) => ({
  newestRequest: sqlite.prepare<[bigint], Pick<BuildRequest, 'id' | 'buildState'>>(
    'SELECT id, build_state AS buildState FROM build_requests WHERE commit_id = ? ORDER BY id DESC LIMIT 1',
  ),
  startedBuild: sqlite
    .prepare<[bigint]>('SELECT 1 FROM builds WHERE build_request_id = ? AND started_at IS NOT NULL LIMIT 1')
    .pluck(),
  update: sqlite.prepare<[string, bigint, string]>(
    'UPDATE commits SET build_state = ? WHERE id = ? AND build_state <> ?',
  ),
}));

/**
 * A commit has the state of its newest request. `startedRequestId` is a request whose build has just started. False if
 * the commit keeps its state.
 */
export function updateCommitState(db: Db, id: bigint, startedRequestId?: bigint): boolean {
  const statements = commitStatements(db);
  const request = statements.newestRequest.get(id);
  if (!request) return false;
  const hasStarted = () => request.id === startedRequestId || statements.startedBuild.get(request.id) === 1n;
  const state = commitState(request.buildState, request.buildState === 'building' && hasStarted());
  return statements.update.run(state, id, state).changes > 0;
}

const projectStatements = prepared(({ orm, sqlite }) => ({
  unfinishedRequest: orm
    .select({ id: buildRequests.id })
    .from(buildRequests)
    .where(
      and(
        eq(buildRequests.projectId, sql.placeholder('id')),
        eq(buildRequests.local, false),
        sql.raw(unfinished.request),
      ),
    )
    .limit(1)
    .prepare(),
  newestRequest: orm
    .select({ commitId: buildRequests.commitId, state: buildRequests.buildState })
    .from(buildRequests)
    .where(and(eq(buildRequests.projectId, sql.placeholder('id')), eq(buildRequests.local, false)))
    .orderBy(desc(buildRequests.id))
    .limit(1)
    .prepare(),
  newestCommit: orm
    .select({ state: commits.buildState })
    .from(commits)
    .where(and(eq(commits.projectId, sql.placeholder('id')), eq(commits.local, false)))
    .orderBy(desc(commits.id))
    .limit(1)
    .prepare(),
  update: sqlite.prepare<[string, bigint, string]>(
    'UPDATE projects SET build_state = ? WHERE id = ? AND build_state <> ?',
  ),
}));

/** Local runs do not count. */
export function updateProjectState(db: Db, id: bigint): void {
  const statements = projectStatements(db);
  const unfinishedRequest = statements.unfinishedRequest.get({ id });
  const newestRequest = statements.newestRequest.get({ id });
  const newestCommit = statements.newestCommit.get({ id });
  const state = projectState({
    unfinishedRequest: unfinishedRequest !== undefined,
    newestRequestWithoutCommit: newestRequest?.commitId === null ? newestRequest.state : undefined,
    newestCommit: newestCommit?.state,
  });
  statements.update.run(state, id, state);
  db.touch(`project:${id}`);
}

/** Enqueues a deploy with a copy of its strategy. */
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

/** Deploys a passed commit once with each automatic strategy of its branches. An amended commit is deployed again. */
function deployAutomatically(db: Db, request: BuildRequest): void {
  if (request.pullRequest !== null || request.local) return;
  // Skip a commit whose hash has changed since: the new one has not passed.
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

function announceDeploy(db: Db, deploy: Deploy): void {
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

/**
 * Applies an event to a dependency. One with a pending cancel is canceled instead of requeued. `compiledWith` are the related
 * dependencies that a successful compile used; by default, those it relates to now.
 */
export function moveDependency(
  db: Db,
  id: bigint,
  wanted: CompileEvent,
  changes: Changes<Dependency> = {},
  compiledWith?: readonly bigint[],
): Dependency | undefined {
  return db.write(() => {
    const dependency = db.orm.select().from(dependencies).where(eq(dependencies.id, id)).get();
    const isCanceled = wanted === 'requeue' && dependency?.cancelRequested === true;
    const event = isCanceled ? 'cancel' : wanted;
    const next = dependency && nextState(compileMachine, dependency.compileState, event);
    if (!next) return undefined;
    const finished = next === 'compiled' || next === 'compile_failed';
    const moved = db.orm
      .update(dependencies)
      .set({
        ...(next === 'enqueued_for_compile' && {
          enqueuedAt: db.now(),
          startedAt: null,
          stepsBegun: null,
          nonce: null,
          node: null,
          finishedAt: null,
          error: null,
          spentMs: event === 'requeue' ? spentWith(dependency, db.now()) : 0,
          ...(event !== 'requeue' && { attempts: 0, cancelRequested: false }),
        }),
        ...(event === 'start' && { startedAt: db.now() }),
        ...(finished && { finishedAt: db.now(), nonce: null, forced: false }),
        ...changes,
        ...(isCanceled && { error: COMPILE_CANCELED }),
        compileState: next,
      })
      .where(and(eq(dependencies.id, id), eq(dependencies.compileState, dependency.compileState)))
      .returning()
      .get() as Dependency;
    if (next === 'compiled')
      recordCompiledRelated(db, id, compiledWith ?? listRelated(db, id).map(related => related.id));
    else if (finished) deleteUnusedRelations(db, id);
    announceDependency(
      db,
      moved,
      finished ? 'dependency.finished' : event === 'start' ? 'dependency.started' : 'dependency.enqueued',
    );
    if (event === 'compile') {
      // An artifact that it was compiled with may have changed meanwhile.
      recompileAutomatically(db, [moved]);
      if (moved.artifactHash !== dependency.artifactHash)
        recompileAutomatically(db, listDependents(db, moved.id));
    }
    return moved;
  });
}

/** Enqueues the dependencies that ask for it (`recompile`) and are outdated. */
export function recompileAutomatically(db: Db, affected: readonly Dependency[]): void {
  for (const one of affected)
    if (one.recompile && canCompileAgain(db, one)) moveDependency(db, one.id, 'recompile');
}

/** Records the event for every project that uses the dependency. */
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

/** Sets the state of a trigger. Events report when its looks begin to fail, and when one succeeds again. */
export function moveTrigger(
  db: Db,
  id: bigint,
  state: TriggerState,
  changes: { failures: number; error: string | null },
): void {
  db.write(() => {
    const trigger = db.orm.select().from(triggers).where(eq(triggers.id, id)).get();
    if (!trigger) return;
    const moved = { ...trigger, ...changes, state };
    db.orm
      .update(triggers)
      .set({ ...changes, state })
      .where(eq(triggers.id, id))
      .run();
    for (const topic of [`trigger:${id}`, `project:${moved.projectId}`]) db.touch(topic);
    if (state === trigger.state || ![state, trigger.state].includes('failing')) return;
    const type = state === 'failing' ? 'trigger.failing' : 'trigger.recovered';
    recordEvent(db, moved.projectId, type, id, {
      kind: 'trigger',
      record: presentTrigger(moved, { isLate: false }),
    });
  });
}
