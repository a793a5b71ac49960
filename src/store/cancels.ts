// Cancels builds and build requests. The cancel of a request with many builds is stored as a row until all of them have
// been canceled in batches.

import { and, asc, desc, eq, isNull, lte, sql } from 'drizzle-orm';
import { isFinishedBuild, isFinishedRequest } from '../domain/build.ts';
import { type Db, prepared } from './database/db.ts';
import { buildRequests, builds, requestCancels, requestDecisions } from './database/schema.ts';
import { unfinished } from './database/unfinished.ts';
import { moveBuild, moveRequest } from './transition.ts';

/** How many builds one transaction creates or cancels, so that other requests do not wait for long. */
export const BUILDS_PER_BATCH = 10;

/**
 * Cancels a request and its unfinished builds; a running build ends once its container has. The first builds are canceled
 * at once. None of the others starts any more, and `cancelSomeBuilds` cancels them in batches.
 */
export function cancelBuildRequest(db: Db, id: bigint, because: string): void {
  db.write(() => {
    markRequestCanceled(db, id, because);
    cancelBatch(db, id);
  });
}

/** Stores the cancel, so that no build of the request starts. `cancelSomeBuilds` does the rest. */
export function markRequestCanceled(db: Db, id: bigint, because: string): void {
  db.write(() => {
    const request = db.orm.select().from(buildRequests).where(eq(buildRequests.id, id)).get();
    if (!request || isFinishedRequest(request.buildState)) return;
    const newest = db.orm
      .select({ id: builds.id })
      .from(builds)
      .where(and(eq(builds.buildRequestId, id), sql.raw(unfinished.build)))
      .orderBy(desc(builds.id))
      .limit(1)
      .get();
    if (!newest && !hasBuildsToEnqueue(db, id)) {
      moveRequest(db, id, 'cancel');
      return;
    }
    const upToBuildId = newest?.id ?? 0n;
    db.orm
      .insert(requestCancels)
      .values({ buildRequestId: id, because, upToBuildId })
      // The first cancel determines the reason.
      .onConflictDoUpdate({ target: requestCancels.buildRequestId, set: { upToBuildId } })
      .run();
    db.touch('batches');
  });
}

/** Cancels the next batch of builds of a canceled request. False if no such request is left. */
export function cancelSomeBuilds(db: Db): boolean {
  return db.write(() => {
    const first = db.orm.select({ id: requestCancels.buildRequestId }).from(requestCancels).limit(1).get();
    if (first) cancelBatch(db, first.id);
    return first !== undefined;
  });
}

function cancelBatch(db: Db, requestId: bigint): void {
  const cancel = findCancel(db, requestId);
  if (!cancel) return;
  const batch = db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(
        eq(builds.buildRequestId, requestId),
        sql.raw(unfinished.build),
        lte(builds.id, cancel.upToBuildId),
        isNull(builds.cancelBecause),
      ),
    )
    .orderBy(asc(builds.id))
    .limit(BUILDS_PER_BATCH)
    .all();
  for (const { id } of batch) cancelBuild(db, id, cancel.because);
  if (batch.length < BUILDS_PER_BATCH && !hasBuildsToEnqueue(db, requestId))
    db.orm.delete(requestCancels).where(eq(requestCancels.buildRequestId, requestId)).run();
}

/** Whether suites of the request still wait for their build to be created. */
function hasBuildsToEnqueue(db: Db, requestId: bigint): boolean {
  const left = db.orm
    .select({ id: requestDecisions.buildRequestId })
    .from(requestDecisions)
    .where(and(eq(requestDecisions.buildRequestId, requestId), sql`begun IS NOT NULL`))
    .get();
  return left !== undefined;
}

const cancelOfRequest = prepared(db =>
  db.orm
    .select()
    .from(requestCancels)
    .where(eq(requestCancels.buildRequestId, sql.placeholder('requestId')))
    .prepare(),
);

export function findCancel(db: Db, requestId: bigint): typeof requestCancels.$inferSelect | undefined {
  return cancelOfRequest(db).get({ requestId });
}

/** Cancels a waiting build at once, asks the runner of a running one to stop, and ignores a finished one. `because` ends a sentence. */
export function cancelBuild(db: Db, id: bigint, because: string): void {
  db.write(() => {
    const build = db.orm.select().from(builds).where(eq(builds.id, id)).get();
    if (!build || isFinishedBuild(build.buildState)) return;
    if (build.buildState === 'enqueued') {
      moveBuild(db, id, 'cancel', { cancelBecause: because });
      return;
    }
    // The first cancel determines the reason.
    if (build.cancelBecause !== null) return;
    db.orm.update(builds).set({ cancelBecause: because }).where(eq(builds.id, id)).run();
    db.touch(`build:${id}`);
    db.touch('queue');
  });
}
