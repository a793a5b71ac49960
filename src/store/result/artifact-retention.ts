// How long the artifacts of builds are kept: keep and unkeep, deletion, and which have expired.

import { rm } from 'node:fs/promises';
import { and, asc, desc, eq, getTableColumns, gt, isNull, lt, sql } from 'drizzle-orm';
import { isFinishedBuild } from '../../domain/build.ts';
import { idAt } from '../../domain/id.ts';
import { buildFilesPath } from '../data/paths.ts';
import type { Db } from '../database/db.ts';
import { buildRequests, builds, suites } from '../database/schema.ts';
import type { Build } from '../transition.ts';
import { deleteBuildArtifacts } from './build-artifacts.ts';

const change = (db: Db, { id, projectId }: Build, fields: Partial<Build>): Build | undefined =>
  db.write(() => {
    for (const topic of [`build:${id}`, `project:${projectId}`]) db.touch(topic);
    return db.orm.update(builds).set(fields).where(eq(builds.id, id)).returning().get();
  });

/** Undefined if the build was deleted. */
export function keepArtifacts(db: Db, build: Build, keep: boolean): Build | undefined {
  return change(db, build, { keep });
}

/** They are invisible at once. If the removal is interrupted, the sweep continues it. */
export async function deleteArtifacts(db: Db, dataDirectory: string, build: Build): Promise<void> {
  change(db, build, { artifacts: 0, artifactsBytes: 0, artifactsTruncated: false, keep: false });
  await removeArtifacts(db, dataDirectory, build.id);
}

/** Removes the index before the file, so that the file shows what is left to do. */
export async function removeArtifacts(db: Db, dataDirectory: string, buildId: bigint): Promise<void> {
  await deleteBuildArtifacts(db, buildId);
  await rm(buildFilesPath(dataDirectory, buildId), { force: true });
}

/** Whether the ZIP of a build has no use: it was deleted, or it is a leftover of a killed server. */
export function isArtifactFileUnused(db: Db, buildId: bigint): boolean {
  const build = db.orm
    .select({ state: builds.buildState, artifacts: builds.artifacts })
    .from(builds)
    .where(eq(builds.id, buildId))
    .get();
  // A build that is not finished may be about to count its files.
  return !build || (build.artifacts === 0 && isFinishedBuild(build.state));
}

/**
 * The newest build of the suite that passed, on `branch` if given: that of the newest request, so that a rerun of an older
 * commit is not newer. Builds of pull requests and local runs are on no branch of the repository.
 */
export function findNewestPassedBuild(
  db: Db,
  suite: { id: bigint; projectId: bigint },
  branch?: string,
): Build | undefined {
  return (
    db.orm
      .select(getTableColumns(builds))
      .from(buildRequests)
      // Keeps SQLite from reading all builds of the suite: the newest request usually has one that passed.
      .crossJoin(builds)
      .where(
        and(
          eq(builds.buildRequestId, buildRequests.id),
          eq(buildRequests.projectId, suite.projectId),
          branch === undefined ? undefined : eq(buildRequests.branch, branch),
          isNull(buildRequests.pullRequest),
          eq(buildRequests.local, false),
          eq(builds.suiteId, suite.id),
          eq(builds.buildState, 'passed'),
        ),
      )
      .orderBy(desc(buildRequests.id), desc(builds.id))
      .limit(1)
      .get()
  );
}

/**
 * Builds after `afterId`, oldest first, whose artifacts have expired: they finished before `before`, are not kept, and are not
 * the newest passed ones of a suite on a branch. `lastId` is where to continue; undefined if there are no more.
 */
export function listExpiredArtifacts(
  db: Db,
  before: number,
  afterId: bigint,
  limit: number,
): { expired: Build[]; lastId: bigint | undefined } {
  const rows = db.orm
    .select()
    .from(builds)
    .where(
      and(
        sql`${builds.artifacts} > 0`,
        gt(builds.id, afterId),
        // Ids increase with time. Without this, a search that finds nothing would read all builds.
        lt(builds.id, idAt(before)),
        eq(builds.keep, false),
        lt(builds.finishedAt, before),
      ),
    )
    .orderBy(asc(builds.id))
    .limit(limit)
    .all();
  return {
    expired: rows.filter(build => !isNewestOfBranch(db, build)),
    lastId: rows.length < limit ? undefined : rows.at(-1)?.id,
  };
}

/** Whether it is the newest passed build of a suite on a branch. Its artifacts do not expire. */
export function isNewestOfBranch(db: Db, build: Build): boolean {
  if (build.buildState !== 'passed' || build.local) return false;
  const found = db.orm
    .select({ branch: buildRequests.branch, pullRequest: buildRequests.pullRequest })
    .from(buildRequests)
    .innerJoin(suites, eq(suites.id, build.suiteId))
    .where(eq(buildRequests.id, build.buildRequestId))
    .get();
  if (!found || found.branch === '' || found.pullRequest !== null) return false;
  const suite = { id: build.suiteId, projectId: build.projectId };
  return findNewestPassedBuild(db, suite, found.branch)?.id === build.id;
}
