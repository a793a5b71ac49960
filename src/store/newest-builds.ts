// The newest build of each suite of a request: they determine its result.

import { eq, inArray, sql } from 'drizzle-orm';
import type { BuildState } from '../domain/build.ts';
import type { TestCounts } from '../domain/result/test-result.ts';
import type { Db } from './database/db.ts';
import { builds } from './database/schema.ts';

type NewestBuild = { suiteName: string; state: BuildState; tests: TestCounts | null };

export function listNewestBuilds(db: Db, requestId: bigint): NewestBuild[] {
  const newest = db.orm
    .select({ id: sql<bigint>`max(${builds.id})` })
    .from(builds)
    .where(eq(builds.buildRequestId, requestId))
    .groupBy(builds.suiteId);
  return db.orm
    .select({ suiteName: builds.suiteName, state: builds.buildState, tests: builds.tests })
    .from(builds)
    .where(inArray(builds.id, newest))
    .orderBy(builds.id)
    .all();
}
