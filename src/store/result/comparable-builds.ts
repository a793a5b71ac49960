// Finds the builds of a suite that a build can be compared with: any but local runs.

import { and, desc, eq, inArray, isNull, lt, ne, sql } from 'drizzle-orm';
import { COMPLETED_BUILDS } from '../../domain/build.ts';
import type { Db } from '../database/db.ts';
import { buildRequests, builds } from '../database/schema.ts';
import type { Build } from '../transition.ts';

/** How many builds of the suite are searched. */
const HORIZON = 2_000;

export type ComparableBuild = { build: Build; branch: string };

const others = (db: Db, { suiteId, id }: Build) =>
  db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(and(eq(builds.suiteId, suiteId), eq(builds.local, false), ne(builds.id, id)))
    .orderBy(desc(builds.id))
    .limit(HORIZON);

/** The newest passed build of the suite on the branch, before this one. */
export function findPassedBefore(db: Db, build: Build, branch: string): Build | undefined {
  const earlier = db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(and(eq(builds.suiteId, build.suiteId), eq(builds.local, false), lt(builds.id, build.id)))
    .orderBy(desc(builds.id))
    .limit(HORIZON);
  return db.orm
    .select({ build: builds })
    .from(builds)
    .innerJoin(buildRequests, eq(buildRequests.id, builds.buildRequestId))
    .where(
      and(
        inArray(builds.id, earlier),
        eq(builds.buildState, 'passed'),
        eq(buildRequests.branch, branch),
        isNull(buildRequests.pullRequest),
      ),
    )
    .orderBy(desc(builds.id))
    .limit(1)
    .get()?.build;
}

/** The newest passed build of the suite at the first of these commits that has one. */
export function findPassedAt(db: Db, build: Build, hashes: readonly string[]): Build | undefined {
  const position = new Map(hashes.map((hash, at) => [hash, at]));
  const passed = db.orm
    .select()
    .from(builds)
    .where(
      and(
        inArray(builds.id, others(db, build)),
        eq(builds.buildState, 'passed'),
        sql`${builds.commitRef} IN (SELECT value FROM json_each(${JSON.stringify(hashes)}))`,
      ),
    )
    .orderBy(desc(builds.id))
    .all();
  const distance = ({ commitRef }: Build) => position.get(commitRef) as number;
  return passed.toSorted((a, b) => distance(a) - distance(b))[0];
}

/** The newest finished builds of the suite, for a choice. */
export function listComparable(db: Db, build: Build, limit: number): ComparableBuild[] {
  return db.orm
    .select({ build: builds, branch: buildRequests.branch })
    .from(builds)
    .innerJoin(buildRequests, eq(buildRequests.id, builds.buildRequestId))
    .where(and(inArray(builds.id, others(db, build)), inArray(builds.buildState, COMPLETED_BUILDS)))
    .orderBy(desc(builds.id))
    .limit(limit)
    .all();
}
