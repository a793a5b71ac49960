// Commit statuses: which contexts an event changes, recorded as deliveries in the transaction of the change, and what each
// delivery reports when it is sent. Of one context, only the newest delivery is sent.

import { and, desc, eq, isNotNull, sql } from 'drizzle-orm';
import type { EventType } from '../contract/events.ts';
import { type BuildState, isFinishedBuild, isFinishedRequest } from '../domain/build.ts';
import {
  type CommitStatus,
  contextKey,
  describeBuild,
  describeRequest,
  descriptionOf,
  isNewState,
  ROLLUP_CONTEXT,
  type StatusOptions,
  type StatusReport,
  type StatusState,
  suiteContext,
} from '../domain/commit-status.ts';
import { type Db, insertInto, prepared } from './database/db.ts';
import { buildRequests, builds, commits, deliveries } from './database/schema.ts';
import { listNewestBuilds } from './newest-builds.ts';

type Request = typeof buildRequests.$inferSelect;
type Delivery = typeof deliveries.$inferSelect;

const insertDelivery = insertInto(deliveries);

// Prepared, because they run for every event of a request with many suites.
const requestById = prepared(db =>
  db.orm
    .select()
    .from(buildRequests)
    .where(eq(buildRequests.id, sql.placeholder('id')))
    .prepare(),
);
const buildById = prepared(db =>
  db.orm
    .select()
    .from(builds)
    .where(eq(builds.id, sql.placeholder('id')))
    .prepare(),
);
const newerBuild = prepared(db =>
  db.sqlite
    .prepare<[bigint, bigint, string], bigint>(
      'SELECT 1 FROM builds WHERE suite_id = ? AND local = 0 AND id > ? AND commit_ref = ? LIMIT 1',
    )
    .pluck(),
);
const newestRequest = prepared(db =>
  db.sqlite
    .prepare<[bigint, string, string], bigint>(`
      SELECT build_request_id FROM builds
      WHERE commit_id = (SELECT id FROM commits WHERE project_id = ? AND ref = ? AND local = 0) AND commit_ref = ?
      ORDER BY id DESC LIMIT 1`)
    .pluck(),
);
const newestDelivery = prepared(db =>
  db.orm
    .select()
    .from(deliveries)
    .where(
      and(
        eq(deliveries.notificationId, sql.placeholder('notificationId')),
        eq(deliveries.resourceId, sql.placeholder('resourceId')),
        isNotNull(deliveries.status),
      ),
    )
    .orderBy(desc(deliveries.id))
    .limit(1)
    .prepare(),
);

/** What the build or the request of an event reports now. A ping reports the newest one, other events nothing. */
export function reportsOf(db: Db, projectId: bigint, type: EventType, resourceId: bigint): StatusReport[] {
  if (type === 'ping') return newestReports(db, projectId);
  if (type.startsWith('build.')) return buildReports(db, resourceId);
  return type.startsWith('build_request.') ? requestReports(db, resourceId) : [];
}

function newestReports(db: Db, projectId: bigint): StatusReport[] {
  const newest = db.orm
    .select({ id: builds.id, requestId: builds.buildRequestId })
    .from(buildRequests)
    // Keeps SQLite from reading all builds of the project to order them.
    .crossJoin(builds)
    .where(
      and(
        eq(builds.buildRequestId, buildRequests.id),
        eq(buildRequests.projectId, projectId),
        eq(buildRequests.local, false),
      ),
    )
    .orderBy(desc(buildRequests.id), desc(builds.id))
    .limit(1)
    .get();
  if (!newest) return [];
  return [
    ...requestReports(db, newest.requestId),
    ...buildReports(db, newest.id).filter(({ buildId }) => buildId !== undefined),
  ];
}

function buildReports(db: Db, id: bigint): StatusReport[] {
  const build = buildById(db).get({ id });
  const request = build && findRequest(db, build.buildRequestId);
  if (!build || !request) return [];
  const { commitRef: commit, buildState } = build;
  const isNewest = newerBuild(db).get(build.suiteId, id, commit) === undefined;
  const isRollupChanged =
    !isFinishedBuild(buildState) && decidingRequest(db, request, commit).id === request.id;
  return [
    ...(isRollupChanged ? [rollup(request, commit, stateOfBuild(buildState))] : []),
    ...(isNewest
      ? [
          {
            context: suiteContext(build.suiteName),
            commit,
            state: stateOfBuild(buildState),
            requestId: `${request.id}`,
            buildId: `${id}`,
          },
        ]
      : []),
  ];
}

function requestReports(db: Db, id: bigint): StatusReport[] {
  const request = findRequest(db, id);
  const commit = request && commitOf(db, request);
  // Without a hash there is nothing to report on.
  if (!commit) return [];
  const deciding = decidingRequest(db, request, commit);
  // A request that is still running reports its own end.
  if (deciding.id !== id && !isFinishedRequest(deciding.buildState)) return [];
  return [rollup(deciding, commit, stateOfRequest(deciding))];
}

const rollup = (request: Request, commit: string, state: StatusState): StatusReport => ({
  context: ROLLUP_CONTEXT,
  commit,
  state,
  requestId: `${request.id}`,
});

const stateOfBuild = (state: BuildState): StatusState => (state === 'enqueued' ? 'pending' : state);

const stateOfRequest = ({ buildState }: Request): StatusState =>
  buildState === 'enqueued' || buildState === 'fetching' || buildState === 'building'
    ? 'pending'
    : buildState;

const findRequest = (db: Db, id: bigint): Request | undefined => requestById(db).get({ id });

/** The hash that the request builds. Undefined while it is not known. */
function commitOf(db: Db, request: Request): string | undefined {
  const build = db.orm
    .select({ ref: builds.commitRef })
    .from(builds)
    .where(eq(builds.buildRequestId, request.id))
    .limit(1)
    .get();
  if (build) return build.ref;
  // The hash of a tag may be that of a tag object.
  const isTag = request.pinnedRef?.startsWith('refs/tags/');
  if (request.commitId === null) return isTag ? undefined : (request.pinned ?? undefined);
  return db.orm.select({ ref: commits.ref }).from(commits).where(eq(commits.id, request.commitId)).get()?.ref;
}

/**
 * Several requests may build the same hash. The newest with builds decides, so that one without suites to run, on another
 * branch, does not hide a failure.
 */
function decidingRequest(db: Db, request: Request, commit: string): Request {
  const newestId = newestRequest(db).get(request.projectId, commit, commit);
  const isOwn = newestId === undefined || (request.buildState !== 'skipped' && request.id >= newestId);
  return (isOwn ? undefined : findRequest(db, newestId)) ?? request;
}

const supersede = prepared(db =>
  db.sqlite.prepare<[bigint, bigint]>(`
    UPDATE deliveries SET state = 'superseded', next_attempt_at = NULL
    WHERE state = 'pending' AND notification_id = ? AND resource_id = ?`),
);

const DISABLED_ERROR = 'not sent: the notification is disabled';

/**
 * Records a delivery for each report that is new to the receiver. A disabled receiver gets failed ones, which are sent
 * when it is enabled.
 */
export function recordReports(
  db: Db,
  receiver: { id: bigint; enabled: boolean; options: StatusOptions },
  event: { id: bigint; type: EventType; createdAt: number },
  reports: readonly StatusReport[],
): void {
  const { contexts } = receiver.options;
  for (const status of reports) {
    const choice = status.buildId === undefined ? 'rollup' : 'suites';
    const resourceId = contextKey(status);
    const isNew =
      event.type === 'ping' ||
      isNewState(findNewest(db, receiver.id, resourceId)?.status?.state, status.state);
    if (!isNew || (contexts !== 'both' && contexts !== choice)) continue;
    supersede(db).run(receiver.id, resourceId);
    insertDelivery(db, {
      id: db.newId(),
      notificationId: receiver.id,
      eventId: event.id,
      eventType: event.type,
      resourceId,
      state: receiver.enabled ? 'pending' : 'failed',
      attempts: 0,
      responseStatus: null,
      responseMs: null,
      responseExcerpt: null,
      lastError: receiver.enabled ? null : DISABLED_ERROR,
      nextAttemptAt: receiver.enabled ? event.createdAt : null,
      createdAt: event.createdAt,
      status,
      resentAt: null,
    });
  }
}

/** The newest delivery of a context, which says what the forge shows or will show. */
export function findNewest(db: Db, notificationId: bigint, resourceId: bigint): Delivery | undefined {
  return newestDelivery(db).get({ notificationId, resourceId });
}

const CONTEXTS_RESENT = 1_000;

/** Schedules the newest deliveries of the contexts that failed. Called when a notification is enabled or changed. */
export function resendFailed(db: Db, notificationId: bigint): void {
  db.sqlite
    .prepare(`
      UPDATE deliveries SET state = 'pending', attempts = 0, next_attempt_at = ?, last_error = NULL
      WHERE state = 'failed' AND id IN (
        SELECT max(id) FROM deliveries WHERE notification_id = ? AND status IS NOT NULL
        GROUP BY resource_id ORDER BY max(id) DESC LIMIT ${CONTEXTS_RESENT}
      )`)
    .run(BigInt(db.now()), notificationId);
  db.touch('deliveries');
}

/** The status that a delivery sends. Undefined if its request or build was deleted meanwhile. */
export function findStatus(db: Db, deliveryId: bigint, baseUrl: string): CommitStatus | undefined {
  const delivery = db.orm.select().from(deliveries).where(eq(deliveries.id, deliveryId)).get();
  const report = delivery?.status;
  const request = report && findRequest(db, BigInt(report.requestId));
  if (!request) return undefined;
  const project = `${baseUrl}/ui/projects/${request.projectId}`;
  const { context, commit, state } = report;
  const shared = { context, commit, state, ref: refOf(request) };
  if (report.buildId !== undefined) {
    const build = buildById(db).get({ id: BigInt(report.buildId) });
    if (!build) return undefined;
    const durationMs = durationOf(build.startedAt, build.finishedAt);
    return {
      ...shared,
      description: descriptionOf(describeBuild({ ...build, state: buildStateOf(state), durationMs })),
      url: `${project}/builds/${build.id}`,
      number: `${build.id}`,
      durationMs,
    };
  }
  const durationMs = durationOf(request.createdAt, request.finishedAt);
  return {
    ...shared,
    description: descriptionOf(
      describeRequest(
        { state: request.buildState, error: request.error, durationMs },
        listNewestBuilds(db, request.id),
      ),
    ),
    url: request.commitId === null ? project : `${project}/commits/${request.commitId}`,
    number: `${request.id}`,
    durationMs,
  };
}

/** Before the fetch, the ref at which a trigger saw the commit. */
function refOf({ branch, tag, pinnedRef }: Request): string | undefined {
  if (branch !== '') return `refs/heads/${branch}`;
  if (tag !== '') return `refs/tags/${tag}`;
  return pinnedRef?.startsWith('refs/heads/') ? pinnedRef : undefined;
}

/** A build may have changed since the report, which the next delivery reports. */
const buildStateOf = (state: StatusState): BuildState =>
  state === 'pending' || state === 'skipped' ? 'enqueued' : state;

const durationOf = (startedAt: number | null, finishedAt: number | null): number | undefined =>
  startedAt === null || finishedAt === null ? undefined : Math.max(0, finishedAt - startedAt);
