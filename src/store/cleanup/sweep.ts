// The queries by which the sweep decides what it may remove: containers, directories, logs, archives and mirrors.

import { and, asc, eq, gt, inArray, lt } from 'drizzle-orm';
import { UNFINISHED_BUILDS } from '../../domain/build.ts';
import { UNFINISHED_COMPILES } from '../../domain/dependency.ts';
import { parseId } from '../../domain/id.ts';
import type { Db } from '../database/db.ts';
import { dependencies } from '../database/dependency-schema.ts';
import { builds, deploys } from '../database/schema.ts';
import { findStoredValue, storeValue } from '../database/stored-values.ts';
import { findProject } from '../projects.ts';

/** Whether the job of a container or a directory is running. */
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

/** Whether a running build of the project started before `before`. */
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

/** Whether the job is running or waiting. A failed attempt may be followed by another. */
export function isJobUnfinished(db: Db, kind: string, idText: string): boolean {
  const id = parseId(idText);
  if (id === undefined) return false;
  const { table, state } =
    kind === 'build'
      ? { table: builds, state: inArray(builds.buildState, UNFINISHED_BUILDS) }
      : {
          table: dependencies,
          state: inArray(dependencies.compileState, UNFINISHED_COMPILES),
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

/** Whether the build, deploy or dependency of a log still exists. */
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

const LOGS_DELETED_BEFORE = 'logs_gone_before';

/** Builds up to this id have no log any more. */
export const lastBuildWithoutLog = (db: Db): bigint =>
  BigInt(findStoredValue(db, LOGS_DELETED_BEFORE) ?? '0');

/** Builds whose logs have expired and are not deleted yet, oldest first, up to the first one to keep. */
export function listExpiredBuilds(db: Db, before: number, limit: number): bigint[] {
  const done = lastBuildWithoutLog(db);
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

/** Ids increase with time, so one id records how far the deletion has progressed. */
export function markLogsDeleted(db: Db, id: bigint): void {
  storeValue(db, LOGS_DELETED_BEFORE, id.toString());
}
