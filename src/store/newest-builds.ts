// The newest build of each suite of a request: they determine its result.

import { eq, inArray, sql } from 'drizzle-orm';
import type { BuildState } from '../domain/build.ts';
import type { Db } from './database/db.ts';
import { builds } from './database/schema.ts';

export function listNewestBuilds(db: Db, requestId: bigint): { suiteName: string; state: BuildState }[] {
  const newest = db.orm
    .select({ id: sql<bigint>`max(${builds.id})` })
    .from(builds)
    .where(eq(builds.buildRequestId, requestId))
    .groupBy(builds.suiteId);
  return db.orm
    .select({ suiteName: builds.suiteName, state: builds.buildState })
    .from(builds)
    .where(inArray(builds.id, newest))
    .orderBy(builds.id)
    .all();
}
