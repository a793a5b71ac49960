// What the sweep asks before it takes something away.

import { and, asc, eq, gt, inArray, lt } from 'drizzle-orm';
import { parseId } from '../../domain/id.ts';
import type { Db } from '../database/db.ts';
import { builds, dependencies, deploys } from '../database/schema.ts';
import { findStoredValue, storeValue } from '../database/settings.ts';
import { findProject } from '../projects.ts';

/** Whether the job that a container or a directory was made for has not ended. */
export function isJobRunning(db: Db, kind: string, idText: string): boolean {
  const id = parseId(idText);
  if (id === undefined) return false;
  if (kind === 'build')
    return (
      db.orm
        .select({ id: builds.id })
        .from(builds)
        .where(and(eq(builds.id, id), eq(builds.buildState, 'running')))
        .get() !== undefined
    );
  return (
    db.orm
      .select({ id: dependencies.id })
      .from(dependencies)
      .where(and(eq(dependencies.id, id), eq(dependencies.compileState, 'compiling')))
      .get() !== undefined
  );
}

/** Whether a build of the project runs that started before then. */
export function isBuildRunningSince(db: Db, projectId: bigint, before: number): boolean {
  return (
    db.orm
      .select({ id: builds.id })
      .from(builds)
      .where(
        and(eq(builds.buildState, 'running'), eq(builds.projectId, projectId), lt(builds.startedAt, before)),
      )
      .limit(1)
      .get() !== undefined
  );
}

/** Whether it runs or will run: an attempt that ended may be followed by another. */
export function isJobUnfinished(db: Db, kind: string, idText: string): boolean {
  const id = parseId(idText);
  if (id === undefined) return false;
  const { table, state } =
    kind === 'build'
      ? { table: builds, state: inArray(builds.buildState, ['enqueued', 'running']) }
      : {
          table: dependencies,
          state: inArray(dependencies.compileState, ['enqueued_for_compile', 'compiling']),
        };
  return (
    db.orm
      .select({ id: table.id })
      .from(table)
      .where(and(eq(table.id, id), state))
      .get() !== undefined
  );
}

const logged = { build: builds, deploy: deploys, dependency: dependencies };
export type LogKind = keyof typeof logged;

/** Whether what a log was written for is still on record. */
export function recordExists(db: Db, kind: LogKind, id: bigint): boolean {
  const table = logged[kind];
  return db.orm.select({ id: table.id }).from(table).where(eq(table.id, id)).get() !== undefined;
}

export function projectExists(db: Db, id: bigint): boolean {
  return findProject(db, id) !== undefined;
}

export function isArchiveUsed(db: Db, hash: string): boolean {
  return (
    db.orm
      .select({ id: dependencies.id })
      .from(dependencies)
      .where(eq(dependencies.archiveHash, hash))
      .limit(1)
      .get() !== undefined
  );
}

const LOGS_GONE = 'logs_gone_before';

/** Builds whose logs are past retention and have not been taken away yet: the oldest ones, up to the first that is not. */
export function listExpiredBuilds(db: Db, before: number, limit: number): bigint[] {
  const done = BigInt(findStoredValue(db, LOGS_GONE) ?? '0');
  const rows = db.orm
    .select({ id: builds.id, finishedAt: builds.finishedAt })
    .from(builds)
    .where(gt(builds.id, done))
    .orderBy(asc(builds.id))
    .limit(limit)
    .all();
  const kept = rows.findIndex(({ finishedAt }) => finishedAt === null || finishedAt >= before);
  return (kept < 0 ? rows : rows.slice(0, kept)).map(({ id }) => id);
}

/** Ids grow with time, so one mark tells how far the retention has come. */
export function markLogsDeleted(db: Db, id: bigint): void {
  storeValue(db, LOGS_GONE, id.toString());
}
