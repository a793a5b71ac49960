// Records the test results of a build. What may be long is written in batches before the build's verdict, so that a server
// that was killed can repeat it. What others see is written in the transaction of the verdict.

import { and, desc, eq, gt, ne, sql } from 'drizzle-orm';
import {
  changeAt,
  compareWith,
  countResults,
  findPosition,
  positionsByRank,
  type ResultTable,
  resultAt,
} from '../../domain/result/comparison.ts';
import { createEvidence, type Evidence, FLAKY_MS, isStillFlaky } from '../../domain/result/flakiness.ts';
import {
  isFailure,
  type ReportedTest,
  type ReportedTests,
  type TestChange,
  type TestCounts,
} from '../../domain/result/test-result.ts';
import { type Db, insertInto, prepared } from '../database/db.ts';
import { buildInputs, buildReports, testFailures } from '../database/result-schema.ts';
import { builds } from '../database/schema.ts';
import type { Build } from '../transition.ts';
import { type IdentifiedTests, identifyTests } from './identify-tests.ts';
import { createPace, type Pace, writeInBatches } from './pace.ts';
import { packResults, unpackResults } from './packed-results.ts';

type ReportRow = typeof buildReports.$inferSelect;
type FailureRow = typeof testFailures.$inferSelect;

/** How many failures of a build have a message. */
const MAX_FAILURES = 1_000;
/** If more tests than these behave differently, the machine is to blame rather than each of them. */
const MAX_FLAKY_TESTS = 500;
/** How many earlier builds of the same commit are searched for other results. */
const MAX_SAME_COMMIT = 20;

/** What the reports of a build say. */
export type Report = {
  /** Each test once. */
  tests: ReportedTests;
  /** The time of all test cases, including repeated ones. */
  durationMs: number;
  /** Why a report could not be read to its end; null if all could. */
  malformed: string | null;
};

export type PreparedReport = {
  counts: TestCounts;
  table: ResultTable;
  row: ReportRow;
  /** By the tests' numbers. */
  evidence: Map<number, Evidence>;
  /** Tests that are counted, but not recorded, because the suite has too many. */
  omitted: number;
};

/**
 * Finds or creates the tests, compares their results with those of `baseBuildId`, and writes the messages of failures. Two
 * builds of one suite must not be prepared at the same time, nor one before the other is recorded. May be repeated.
 * A local run only gets its own results: other builds are not compared with it, and it is no evidence of flaky tests.
 */
export async function prepareReport(
  db: Db,
  build: Pick<Build, 'id' | 'projectId' | 'suiteId' | 'commitId' | 'commitRef' | 'local'>,
  branch: string,
  report: Report,
  baseBuildId: bigint | undefined,
): Promise<PreparedReport> {
  const pace = createPace();
  const identified = await identifyTests(db, build, report.tests, pace);
  const { table, omitted } = identified;
  const base = baseBuildId === undefined ? undefined : await findResults(db, baseBuildId, pace);
  if (base) await pace.run(compareWith(table, base));
  const counts = await pace.run(countResults(table));
  for (const result of omitted) counts[result] += 1;
  await writeFailures(db, build.id, identified, report.tests, pace);
  const evidence = createEvidence({ buildId: build.id, table }, MAX_FLAKY_TESTS);
  for (const { buildId } of build.local ? [] : listSameInputs(db, build)) {
    const other = await findResults(db, buildId, pace);
    if (other) await pace.run(evidence.add({ buildId, table: other }));
  }
  const results = await pace.run(packResults(table));
  return {
    table,
    counts,
    omitted: omitted.length,
    evidence: evidence.found,
    row: {
      buildId: build.id,
      suiteId: build.suiteId,
      branch: build.local ? '' : branch,
      baseBuildId: base ? (baseBuildId as bigint) : null,
      durationMs: Math.round(report.durationMs),
      malformed: report.malformed,
      results,
      local: build.local,
    },
  };
}

const insertFailure = insertInto(testFailures);

async function writeFailures(
  db: Db,
  buildId: bigint,
  { table, ids, indexes }: IdentifiedTests,
  tests: ReportedTests,
  pace: Pace,
): Promise<void> {
  const rows: FailureRow[] = [];
  for (const at of await pace.run(positionsByRank(table))) {
    const test = tests.at(indexes[at] as number) as ReportedTest;
    // Those come first.
    if (!isFailure(test.result) && !test.isFlaky) break;
    rows.push({
      buildId,
      testId: ids[at] as bigint,
      result: test.result,
      change: changeAt(table, at) as TestChange,
      durationMs: test.durationMs === undefined ? null : Math.round(test.durationMs),
      retries: test.retries,
      message: test.message,
      details: test.details,
    });
    if (rows.length === MAX_FAILURES) break;
  }
  // A server that was killed may have written some.
  db.write(() => db.orm.delete(testFailures).where(eq(testFailures.buildId, buildId)).run());
  await writeInBatches(db, rows, row => insertFailure(db, row));
}

/** Builds of the same suite and commit, with the same inputs, in which a test is flaky if its result was another. */
function listSameInputs(db: Db, build: Pick<Build, 'id' | 'suiteId' | 'commitId' | 'commitRef'>) {
  const digest = db.orm
    .select({ digest: buildInputs.digest })
    .from(buildInputs)
    .where(eq(buildInputs.buildId, build.id))
    .get()?.digest;
  if (digest === undefined) return [];
  return db.orm
    .select({ buildId: builds.id })
    .from(builds)
    .innerJoin(buildReports, eq(buildReports.buildId, builds.id))
    .innerJoin(buildInputs, eq(buildInputs.buildId, builds.id))
    .where(
      and(
        eq(builds.commitId, build.commitId),
        eq(builds.commitRef, build.commitRef),
        eq(builds.suiteId, build.suiteId),
        eq(buildInputs.digest, digest),
        gt(builds.finishedAt, db.now() - FLAKY_MS),
        ne(builds.id, build.id),
      ),
    )
    .orderBy(desc(builds.id))
    .limit(MAX_SAME_COMMIT)
    .all();
}

const insertReport = insertInto(buildReports);

/** Part of the transaction of the build's verdict. */
export function recordReport(db: Db, { row, table, evidence }: PreparedReport): void {
  db.write(() => {
    insertReport(db, row);
    if (!row.local) updateFlaky(db, row.suiteId, table, evidence);
  });
}

const flakyStatements = prepared(({ sqlite }) => ({
  list: sqlite
    .prepare<[bigint], [id: bigint, number: bigint, flakyAt: bigint, runs: bigint]>(
      'SELECT id, number, flaky_at, flaky_runs FROM tests WHERE suite_id = ? AND flaky_at IS NOT NULL',
    )
    .raw(),
  count: sqlite.prepare<[bigint, bigint]>('UPDATE tests SET flaky_runs = ? WHERE id = ?'),
  end: sqlite.prepare<[bigint]>(
    `UPDATE tests SET flaky_at = NULL, flaky_failed_build_id = NULL, flaky_passed_build_id = NULL, flaky_runs = 0
     WHERE id = ?`,
  ),
  mark: sqlite.prepare<[bigint, bigint, bigint, bigint, bigint]>(
    `UPDATE tests SET flaky_at = ?, flaky_failed_build_id = ?, flaky_passed_build_id = ?, flaky_runs = 0
     WHERE suite_id = ? AND number = ?`,
  ),
}));

function updateFlaky(db: Db, suiteId: bigint, table: ResultTable, evidence: Map<number, Evidence>): void {
  const now = db.now();
  const { list, count, end, mark } = flakyStatements(db);
  const flaky = list.all(suiteId);
  for (const [id, number, flakyAt, earlierRuns] of flaky) {
    if (evidence.has(Number(number))) continue;
    const position = findPosition(table, Number(number));
    const isRun = position >= 0 && resultAt(table, position) !== 'skipped';
    const runs = Number(earlierRuns) + (isRun ? 1 : 0);
    if (!isStillFlaky({ flakyAt: Number(flakyAt), runs }, now)) end.run(id);
    else if (isRun) count.run(BigInt(runs), id);
  }
  const marked = new Set(flaky.map(([, number]) => Number(number)));
  for (const [number, { failedBuildId, passedBuildId }] of evidence) {
    if (!marked.has(number) && marked.size >= MAX_FLAKY_TESTS) continue;
    marked.add(number);
    mark.run(BigInt(now), failedBuildId, passedBuildId, suiteId, BigInt(number));
  }
}

const packedResults = prepared(({ sqlite }) =>
  sqlite.prepare<[bigint], Buffer>('SELECT results FROM build_reports WHERE build_id = ?').pluck(),
);

/** The results of a build; undefined if it has no report. */
export async function findResults(db: Db, buildId: bigint, pace: Pace): Promise<ResultTable | undefined> {
  const packed = packedResults(db).get(buildId);
  return packed && (await pace.run(unpackResults(packed)));
}

const reportOfCommit = prepared(db =>
  db.sqlite
    .prepare<[bigint, string, bigint, bigint], bigint>(
      `SELECT builds.id FROM commits JOIN builds ON builds.commit_id = commits.id
       JOIN build_reports ON build_reports.build_id = builds.id
       WHERE commits.project_id = ? AND commits.ref = ? AND commits.local = 0 AND builds.suite_id = ? AND builds.id <> ?
         AND builds.commit_ref = commits.ref
       ORDER BY builds.id DESC LIMIT 1`,
    )
    .pluck(),
);

/**
 * The build to compare with: the newest one with a report at the nearest of the ancestors, or else the previous one of the
 * branch. Never a local run. `ancestors` are hashes, nearest first.
 */
export function findBaseBuild(
  db: Db,
  build: Pick<Build, 'id' | 'projectId' | 'suiteId'>,
  branch: string,
  ancestors: readonly string[],
): bigint | undefined {
  for (const hash of ancestors) {
    const found = reportOfCommit(db).get(build.projectId, hash, build.suiteId, build.id);
    if (found !== undefined) return found;
  }
  if (branch === '') return undefined;
  return db.orm
    .select({ id: buildReports.buildId })
    .from(buildReports)
    .where(
      and(
        eq(buildReports.suiteId, build.suiteId),
        eq(buildReports.branch, branch),
        sql`${buildReports.buildId} < ${build.id}`,
      ),
    )
    .orderBy(desc(buildReports.buildId))
    .limit(1)
    .get()?.id;
}
