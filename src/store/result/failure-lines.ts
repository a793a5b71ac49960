// The error lines of builds that did not pass. They show whether a failure was seen before.

import { closeSync, fstatSync, openSync } from 'node:fs';
import { eq } from 'drizzle-orm';
import type { BuildState } from '../../domain/build.ts';
import {
  createErrorLines,
  type ErrorLine,
  isErrorLine,
  MAX_ERROR_LINES,
  toErrorLine,
} from '../../domain/result/error-line.ts';
import { type Db, insertInto, prepared } from '../database/db.ts';
import { failureLines } from '../database/result-schema.ts';
import { builds } from '../database/schema.ts';
import { readPieces } from './log-filter.ts';
import { createPace } from './pace.ts';

/** How much of the end of a log is read. The reason for a failure is rarely further away. */
const READ_BYTES = 4 * 1024 * 1024;
const PIECE_BYTES = 64 * 1024;
const LINES_OF_TESTS = MAX_ERROR_LINES / 2;
/** More builds with the same line are not counted. */
export const MAX_COUNTED = 1_000;

/**
 * Stores the error lines of a build whose log is complete, and of its failed tests. Replaces what a server that was killed
 * meanwhile had stored.
 */
export async function recordFailureLines(
  db: Db,
  build: { id: bigint; projectId: bigint },
  logPath: string,
): Promise<void> {
  const ofTests = listTestFailures(db, build.id);
  const ofLog = await readErrorLines(logPath, MAX_ERROR_LINES - ofTests.length);
  db.write(() => {
    db.orm.delete(failureLines).where(eq(failureLines.buildId, build.id)).run();
    // The build may have been deleted with its project.
    if (!db.orm.select({ id: builds.id }).from(builds).where(eq(builds.id, build.id)).get()) return;
    for (const found of [...ofTests, ...ofLog])
      insertLine(db, { id: db.newId(), projectId: build.projectId, buildId: build.id, ...found });
  });
}

const insertLine = insertInto(failureLines);

const testFailures = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint], { classname: string; name: string; message: string }>(
    `SELECT tests.classname, tests.name, test_failures.message FROM test_failures JOIN tests ON tests.id = test_failures.test_id
     WHERE test_failures.build_id = ? AND test_failures.result IN ('failed', 'errored')
     ORDER BY test_failures.change = 'new' DESC, test_failures.test_id LIMIT ${LINES_OF_TESTS}`,
  ),
);

function listTestFailures(db: Db, buildId: bigint): ErrorLine[] {
  return testFailures(db)
    .all(buildId)
    .flatMap(({ classname, name, message }) => {
      const [reason = ''] = message.trim().split('\n', 1);
      const title = [classname, name].filter(Boolean).join(' › ');
      return toErrorLine(reason === '' ? title : `${title}: ${reason}`, 0) ?? [];
    });
}

async function readErrorLines(path: string, limit: number): Promise<ErrorLine[]> {
  const lines = createErrorLines(limit);
  const pace = createPace();
  const log = openSync(path, 'r');
  try {
    const from = fstatSync(log).size - READ_BYTES;
    for await (const { bytes, line, end } of readPieces(log, Buffer.allocUnsafe(PIECE_BYTES))) {
      if (end < from) continue;
      for (const [at, text] of bytes.toString('utf8').split('\n').entries()) {
        const found = isErrorLine(text) ? toErrorLine(text, line + at + 1) : undefined;
        if (found) lines.add(found);
        if (pace.isDue()) await pace.wait();
      }
    }
  } finally {
    closeSync(log);
  }
  return lines.list();
}

export type SeenBuild = {
  id: bigint;
  createdAt: number;
  buildState: BuildState;
  suiteName: string;
  branch: string;
  local: boolean;
};

/** An error line of a build, and the other builds of its project that have it too. */
export type SeenLine = {
  line: number;
  text: string;
  /** How many other builds have it; MAX_COUNTED if there are more. */
  otherBuilds: number;
  first: SeenBuild | undefined;
  last: SeenBuild | undefined;
};

const statements = prepared(({ sqlite }) => {
  const other = 'FROM failure_lines WHERE project_id = ? AND hash = ? AND build_id <> ?';
  return {
    ofBuild: sqlite.prepare<[bigint], { hash: Buffer; line: bigint; text: string }>(
      'SELECT hash, line, text FROM failure_lines WHERE build_id = ? ORDER BY id',
    ),
    count: sqlite
      .prepare<[bigint, Buffer, bigint], bigint>(
        `SELECT count(*) FROM (SELECT DISTINCT build_id ${other} LIMIT ${MAX_COUNTED})`,
      )
      .pluck(),
    first: sqlite.prepare<[bigint, Buffer, bigint], bigint>(`SELECT min(build_id) ${other}`).pluck(),
    last: sqlite.prepare<[bigint, Buffer, bigint], bigint>(`SELECT max(build_id) ${other}`).pluck(),
    build: sqlite.prepare<[bigint], Record<keyof SeenBuild, unknown>>(
      `SELECT builds.id, builds.created_at AS createdAt, builds.build_state AS buildState,
         builds.suite_name AS suiteName, build_requests.branch, builds.local
       FROM builds JOIN build_requests ON build_requests.id = builds.build_request_id WHERE builds.id = ?`,
    ),
  };
});

/** The error lines of a build, each with its history in the project. */
export function listSeenLines(db: Db, build: { id: bigint; projectId: bigint }): SeenLine[] {
  const { ofBuild, count, first, last, build: find } = statements(db);
  const findBuild = (id: bigint | undefined): SeenBuild | undefined => {
    const row = id && find.get(id);
    return row
      ? { ...(row as SeenBuild), createdAt: Number(row.createdAt), local: row.local !== 0n }
      : undefined;
  };
  return ofBuild.all(build.id).map(({ hash, line, text }) => {
    const key: [bigint, Buffer, bigint] = [build.projectId, hash, build.id];
    const otherBuilds = Number(count.get(...key));
    return {
      line: Number(line),
      text,
      otherBuilds,
      first: otherBuilds > 0 ? findBuild(first.get(...key)) : undefined,
      last: otherBuilds > 0 ? findBuild(last.get(...key)) : undefined,
    };
  });
}
