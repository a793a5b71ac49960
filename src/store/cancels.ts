// Canceling builds and requests. The cancel of a request with many builds is a row of its own until all of them have been
// canceled, batch by batch.

import { and, asc, desc, eq, isNull, lte, sql } from 'drizzle-orm';
import { isFinishedBuild, isFinishedRequest } from '../domain/build.ts';
import type { Db } from './database/db.ts';
import { buildRequests, builds, requestCancels, requestDecisions } from './database/schema.ts';
import { moveBuild, moveRequest } from './transition.ts';

/** So many builds are made or canceled in one transaction: what is more would keep others waiting. */
export const BUILDS_PER_BATCH = 10;

/**
 * Cancels a request and whatever of it has not ended; a running build ends once its container has. Of many builds only the
 * first are canceled at once: from now on none of the others starts, and `cancelSomeBuilds` goes on with them.
 */
export function cancelBuildRequest(db: Db, id: bigint, because: string): void {
  db.write(() => {
    markRequestCanceled(db, id, because);
    cancelBatch(db, id);
  });
}

/** Has a request canceled by `cancelSomeBuilds`: durable, and no build of it starts from now on. */
export function markRequestCanceled(db: Db, id: bigint, because: string): void {
  db.write(() => {
    const request = db.orm.select().from(buildRequests).where(eq(buildRequests.id, id)).get();
    if (!request || isFinishedRequest(request.buildState)) return;
    const newest = db.orm
      .select({ id: builds.id })
      .from(builds)
      .where(and(eq(builds.buildRequestId, id), unfinished))
      .orderBy(desc(builds.id))
      .limit(1)
      .get();
    if (!newest && !isBeginning(db, id)) {
      moveRequest(db, id, 'cancel');
      return;
    }
    const upToBuildId = newest?.id ?? 0n;
    db.orm
      .insert(requestCancels)
      .values({ buildRequestId: id, because, upToBuildId })
      // Who asked first is who ended it.
      .onConflictDoUpdate({ target: requestCancels.buildRequestId, set: { upToBuildId } })
      .run();
    db.touch('batches');
  });
}

/** Goes on canceling a request whose cancel was answered; true if there was one. */
export function cancelSomeBuilds(db: Db): boolean {
  return db.write(() => {
    const first = db.orm.select({ id: requestCancels.buildRequestId }).from(requestCancels).limit(1).get();
    if (first) cancelBatch(db, first.id);
    return first !== undefined;
  });
}

const unfinished = sql`build_state IN ('enqueued', 'running')`;

function cancelBatch(db: Db, requestId: bigint): void {
  const cancel = findCancel(db, requestId);
  if (!cancel) return;
  const batch = db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(
        eq(builds.buildRequestId, requestId),
        unfinished,
        lte(builds.id, cancel.upToBuildId),
        isNull(builds.cancelBecause),
      ),
    )
    .orderBy(asc(builds.id))
    .limit(BUILDS_PER_BATCH)
    .all();
  for (const { id } of batch) cancelBuild(db, id, cancel.because);
  if (batch.length < BUILDS_PER_BATCH && !isBeginning(db, requestId))
    db.orm.delete(requestCancels).where(eq(requestCancels.buildRequestId, requestId)).run();
}

/** Whether suites of the request run that have no build yet. */
function isBeginning(db: Db, requestId: bigint): boolean {
  const left = db.orm
    .select({ id: requestDecisions.buildRequestId })
    .from(requestDecisions)
    .where(and(eq(requestDecisions.buildRequestId, requestId), sql`begun IS NOT NULL`))
    .get();
  return left !== undefined;
}

export function findCancel(db: Db, requestId: bigint): typeof requestCancels.$inferSelect | undefined {
  return db.orm.select().from(requestCancels).where(eq(requestCancels.buildRequestId, requestId)).get();
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
