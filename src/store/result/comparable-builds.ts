// Finds the builds of a suite that a build can be compared with: any but local runs.

import { desc, eq, inArray } from 'drizzle-orm';
import { COMPLETED_BUILDS } from '../../domain/build.ts';
import { type Db, prepared } from '../database/db.ts';
import { buildRequests, builds } from '../database/schema.ts';
import type { Build } from '../transition.ts';

/** How many builds of the suite are searched. */
const HORIZON = 2_000;
const LATEST = 2n ** 63n - 1n;

export type ComparableBuild = { build: Build; branch: string };

type Search = { suiteId: bigint; from: bigint };

const statements = prepared(({ sqlite }) => {
  // Up to the horizon only an index is read. The search itself ends as soon as enough builds are found.
  const recent = `build.suite_id = @suiteId AND build.local = 0 AND build.id < @from AND build.id > coalesce((
    SELECT id FROM builds WHERE suite_id = @suiteId AND local = 0 AND id < @from ORDER BY id DESC LIMIT 1 OFFSET ${HORIZON}), 0)`;
  const completed = COMPLETED_BUILDS.map(state => `'${state}'`).join(', ');
  return {
    passedBefore: sqlite
      .prepare<[Search & { branch: string }], bigint>(
        `SELECT build.id FROM builds AS build CROSS JOIN build_requests AS request ON request.id = build.build_request_id
         WHERE ${recent} AND build.build_state = 'passed' AND request.branch = @branch AND request.pull_request IS NULL
         ORDER BY build.id DESC LIMIT 1`,
      )
      .pluck(),
    passedAt: sqlite
      .prepare<[{ hashes: string; projectId: bigint; suiteId: bigint; except: bigint }], bigint>(
        `SELECT build.id FROM json_each(@hashes) AS hash
         CROSS JOIN commits AS "commit" ON "commit".project_id = @projectId AND "commit".ref = hash.value AND "commit".local = 0
         CROSS JOIN builds AS build ON build.commit_id = "commit".id AND build.suite_id = @suiteId
         WHERE build.build_state = 'passed' AND build.local = 0 AND build.id <> @except
         ORDER BY hash.key, build.id DESC LIMIT 1`,
      )
      .pluck(),
    completed: sqlite
      .prepare<[Search & { except: bigint; limit: number }], bigint>(
        `SELECT build.id FROM builds AS build
         WHERE ${recent} AND build.build_state IN (${completed}) AND build.id <> @except
         ORDER BY build.id DESC LIMIT @limit`,
      )
      .pluck(),
  };
});

const findById = (db: Db, id: bigint | undefined): Build | undefined =>
  id === undefined ? undefined : db.orm.select().from(builds).where(eq(builds.id, id)).get();

/** The newest passed build of the suite on the branch, before this one. */
export function findPassedBefore(db: Db, { id, suiteId }: Build, branch: string): Build | undefined {
  return findById(db, statements(db).passedBefore.get({ suiteId, from: id, branch }));
}

/** The newest passed build of the suite at the first of these commits that has one. */
export function findPassedAt(
  db: Db,
  { id, projectId, suiteId }: Build,
  hashes: readonly string[],
): Build | undefined {
  const found = statements(db).passedAt.get({
    hashes: JSON.stringify(hashes),
    projectId,
    suiteId,
    except: id,
  });
  return findById(db, found);
}

/** The newest finished builds of the suite, for a choice. */
export function listComparable(db: Db, { id, suiteId }: Build, limit: number): ComparableBuild[] {
  const ids = statements(db).completed.all({ suiteId, from: LATEST, except: id, limit });
  return db.orm
    .select({ build: builds, branch: buildRequests.branch })
    .from(builds)
    .innerJoin(buildRequests, eq(buildRequests.id, builds.buildRequestId))
    .where(inArray(builds.id, ids))
    .orderBy(desc(builds.id))
    .all();
}
