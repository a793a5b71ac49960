// Records the test results of a build. What may be long is written in batches before the build's verdict, so that a server
// that was killed can repeat it. What others see is written in the transaction of the verdict.

import { and, desc, eq, gt, ne, sql } from 'drizzle-orm';
import {
  changeAt,
  classifyChange,
  countResults,
  createResultTable,
  findPosition,
  positionsByRank,
  type ResultTable,
  resultAt,
  setResult,
} from '../../domain/result/comparison.ts';
import { createEvidence, type Evidence, FLAKY_MS, isStillFlaky } from '../../domain/result/flakiness.ts';
import { createTestKeys } from '../../domain/result/test-identity.ts';
import {
  isFailure,
  type ReportedTest,
  type TestChange,
  type TestCounts,
} from '../../domain/result/test-result.ts';
import { type Db, insertInto, prepared } from '../database/db.ts';
import { buildInputs, buildReports, testFailures } from '../database/result-schema.ts';
import { builds } from '../database/schema.ts';
import type { Build } from '../transition.ts';
import { createPace, type Pace, writeInBatches } from './pace.ts';
import { packResults, unpackResults } from './packed-results.ts';

type ReportRow = typeof buildReports.$inferSelect;
type FailureRow = typeof testFailures.$inferSelect;

/** Names that change with each run could otherwise fill the database. */
export const MAX_TESTS_OF_SUITE = 200_000;
/** How many failures of a build have a message. */
const MAX_FAILURES = 1_000;
/** If more tests than these behave differently, the machine is to blame rather than each of them. */
const MAX_FLAKY_TESTS = 500;
/** The rest is for the tests of the repository. */
const MAX_TESTS_OF_LOCAL_RUNS = MAX_TESTS_OF_SUITE / 2;
const MAX_NAME = 1_000;
/** How many earlier builds of the same commit are searched for other results. */
const MAX_SAME_COMMIT = 20;
const DAY_MS = 24 * 3600_000;

/** What the reports of a build say. */
export type Report = {
  /** Each test once. */
  tests: Iterable<ReportedTest>;
  /** The time of all test cases, including repeated ones. */
  durationMs: number;
  /** Why a report could not be read to its end; null if all could. */
  malformed: string | null;
};

export type PreparedReport = {
  counts: TestCounts;
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
  const { known, omitted } = await identify(db, build, report.tests, pace);
  await pace.wait();
  const base = baseBuildId === undefined ? undefined : findResults(db, baseBuildId);
  const table = createResultTable(known.length);
  for (const [at, { number, test }] of known.entries()) {
    const position = base ? findPosition(base, number) : -1;
    const before = base && position >= 0 ? resultAt(base, position) : undefined;
    setResult(table, at, {
      number,
      result: test.result,
      change: classifyChange(test, before),
      durationMs: test.durationMs,
    });
    if (pace.isDue()) await pace.wait();
  }
  await pace.wait();
  const counts = countResults(table);
  for (const { result } of omitted) counts[result] += 1;
  await writeFailures(db, build.id, table, known);
  const evidence = createEvidence({ buildId: build.id, table }, MAX_FLAKY_TESTS);
  for (const { buildId } of build.local ? [] : listSameInputs(db, build)) {
    await pace.wait();
    const other = findResults(db, buildId);
    if (other) evidence.add({ buildId, table: other });
  }
  await pace.wait();
  return {
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
      results: packResults(table),
      local: build.local,
    },
  };
}

type KnownTest = { id: bigint; number: number; test: ReportedTest };

// Written without drizzle: they run for each of up to 100,000 tests.
const testByKey = prepared(db =>
  db.sqlite
    .prepare<[bigint, Buffer], [id: bigint, number: bigint, seenAt: bigint]>(
      'SELECT id, number, seen_at FROM tests WHERE suite_id = ? AND key = ?',
    )
    .raw(),
);
const insertTest = prepared(db =>
  db.sqlite.prepare<[bigint, bigint, bigint, bigint, Buffer, string, string, string | null, bigint, bigint]>(
    `INSERT INTO tests (id, project_id, suite_id, number, key, classname, name, file, first_build_id, seen_at, flaky_runs)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)`,
  ),
);
const countTests = prepared(db =>
  db.sqlite
    .prepare<[bigint], [bigint, bigint]>(
      'SELECT count(*), coalesce(max(number), 0) FROM tests INDEXED BY tests_number WHERE suite_id = ?',
    )
    .raw(),
);
const setSeen = prepared(db =>
  db.sqlite.prepare<[{ id: bigint; buildId: bigint; now: bigint }]>(
    `UPDATE tests SET seen_at = @now, first_build_id = CASE seen_at WHEN 0 THEN @buildId ELSE first_build_id END
     WHERE id = @id`,
  ),
);

/** The tests in order of their numbers, and those that the suite has no place for. */
async function identify(
  db: Db,
  { id: buildId, projectId, suiteId, local }: Pick<Build, 'id' | 'projectId' | 'suiteId' | 'local'>,
  reported: Iterable<ReportedTest>,
  pace: Pace,
): Promise<{ known: KnownTest[]; omitted: ReportedTest[] }> {
  const known: KnownTest[] = [];
  const unknown: { key: Buffer; test: ReportedTest }[] = [];
  const unseen: bigint[] = [];
  const find = testByKey(db);
  const staleAt = db.now() - DAY_MS;
  const keyOf = createTestKeys();
  for (const test of reported) {
    const key = keyOf(test);
    const found = find.get(suiteId, key);
    if (found) {
      const [id, number, seenAt] = found;
      known.push({ id, number: Number(number), test });
      if (seenAt < staleAt && !local) unseen.push(id);
    } else unknown.push({ key, test });
    if (pace.isDue()) await pace.wait();
  }
  const [count, last] = countTests(db).get(suiteId) as [bigint, bigint];
  let number = Number(last);
  const places = Math.max(0, (local ? MAX_TESTS_OF_LOCAL_RUNS : MAX_TESTS_OF_SUITE) - Number(count));
  await writeInBatches(db, unknown.slice(0, places), ({ key, test }) => {
    const id = db.newId();
    number += 1;
    insertTest(db).run(
      id,
      projectId,
      suiteId,
      BigInt(number),
      key,
      cut(test.classname),
      cut(test.name),
      test.file === undefined ? null : cut(test.file),
      buildId,
      local ? 0n : BigInt(db.now()),
    );
    known.push({ id, number, test });
  });
  await writeInBatches(db, unseen, id => setSeen(db).run({ id, buildId, now: BigInt(db.now()) }));
  await pace.wait();
  return { known: inOrder(known), omitted: unknown.slice(places).map(({ test }) => test) };
}

/** By number. Sorts numbers without a function that compares them, which takes a tenth of the time. */
function inOrder(known: readonly KnownTest[]): KnownTest[] {
  const { length } = known;
  const sorted = new Float64Array(length);
  for (let at = 0; at < length; at += 1) sorted[at] = (known[at] as KnownTest).number * length + at;
  sorted.sort();
  const ordered = new Array<KnownTest>(length);
  for (let at = 0; at < length; at += 1) ordered[at] = known[(sorted[at] as number) % length] as KnownTest;
  return ordered;
}

const cut = (name: string) =>
  name.length <= MAX_NAME ? name : `${name.slice(0, MAX_NAME - 1)}…`.toWellFormed();

const insertFailure = insertInto(testFailures);

async function writeFailures(
  db: Db,
  buildId: bigint,
  table: ResultTable,
  known: readonly KnownTest[],
): Promise<void> {
  const rows: FailureRow[] = [];
  for (const at of positionsByRank(table)) {
    const { id, test } = known[at] as KnownTest;
    // Those come first.
    if (!isFailure(test.result) && !test.isFlaky) break;
    rows.push({
      buildId,
      testId: id,
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
export function recordReport(db: Db, { row, evidence }: PreparedReport): void {
  db.write(() => {
    insertReport(db, row);
    if (!row.local) updateFlaky(db, row, evidence);
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

function updateFlaky(db: Db, { suiteId, results }: ReportRow, evidence: Map<number, Evidence>): void {
  const now = db.now();
  const { list, count, end, mark } = flakyStatements(db);
  const flaky = list.all(suiteId);
  const table = flaky.length === 0 ? undefined : unpackResults(results);
  for (const [id, number, flakyAt, earlierRuns] of flaky) {
    if (!table || evidence.has(Number(number))) continue;
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
export function findResults(db: Db, buildId: bigint): ResultTable | undefined {
  const packed = packedResults(db).get(buildId);
  return packed && unpackResults(packed);
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
