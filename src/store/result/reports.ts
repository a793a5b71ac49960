// Records the test results of a build. What may be long is written in batches before the build's verdict, so that a server
// that was killed can repeat it. What others see is written in the transaction of the verdict.

import { and, desc, eq, gt, isNotNull, ne, sql } from 'drizzle-orm';
import {
  changeAt,
  classifyChange,
  countResults,
  createResultTable,
  findPosition,
  RANKS,
  type ResultTable,
  rankAt,
  resultAt,
  setResult,
} from '../../domain/result/comparison.ts';
import { type Evidence, FLAKY_MS, findEvidence, isStillFlaky } from '../../domain/result/flakiness.ts';
import { type CollectedTest, createTestCollector } from '../../domain/result/test-identity.ts';
import {
  isFailure,
  type ReportedTest,
  type TestChange,
  type TestCounts,
} from '../../domain/result/test-result.ts';
import { type Db, insertInto, prepared } from '../database/db.ts';
import { buildInputs, buildReports, builds, testFailures, tests } from '../database/schema.ts';
import type { Build } from '../transition.ts';
import { createPace, type Pace } from './pace.ts';
import { packResults, unpackResults } from './packed-results.ts';

type ReportRow = typeof buildReports.$inferSelect;
type FailureRow = typeof testFailures.$inferSelect;

/** Names that change with each run could otherwise fill the database. */
export const MAX_TESTS_OF_SUITE = 200_000;
/** How many failures of a build have a message. */
const MAX_FAILURES = 1_000;
/** If more tests than these behave differently, the machine is to blame rather than each of them. */
const MAX_FLAKY_TESTS = 1_000;
const MAX_NAME = 1_000;
/** How many earlier builds of the same commit are searched for other results. */
const MAX_SAME_COMMIT = 20;
const DAY_MS = 24 * 3600_000;
/** How long a batch may take, without the commit. */
const BATCH_MS = 3;

/** What the reports of a build say. */
export type Report = {
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
 */
export async function prepareReport(
  db: Db,
  build: Pick<Build, 'id' | 'projectId' | 'suiteId' | 'commitId' | 'commitRef'>,
  branch: string,
  report: Report,
  baseBuildId: bigint | undefined,
): Promise<PreparedReport> {
  const pace = createPace();
  const collected = await collect(report.tests, pace);
  const { known, omitted } = await identify(db, build, collected, pace);
  const base = baseBuildId === undefined ? undefined : findResults(db, baseBuildId);
  if (pace.isDue()) await pace.wait();
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
  const counts = countResults(table);
  for (const { result } of omitted) counts[result] += 1;
  await writeFailures(db, build.id, table, known);
  const others: { buildId: bigint; table: ResultTable }[] = [];
  for (const { buildId, results } of listSameInputs(db, build)) {
    others.push({ buildId, table: unpackResults(results) });
    await pace.wait();
  }
  return {
    counts,
    omitted: omitted.length,
    evidence: findEvidence({ buildId: build.id, table }, others, MAX_FLAKY_TESTS),
    row: {
      buildId: build.id,
      suiteId: build.suiteId,
      branch,
      baseBuildId: base ? (baseBuildId as bigint) : null,
      durationMs: Math.round(report.durationMs),
      malformed: report.malformed,
      results: packResults(table),
    },
  };
}

async function collect(reported: Iterable<ReportedTest>, pace: Pace): Promise<Iterable<CollectedTest>> {
  const collector = createTestCollector();
  for (const test of reported) {
    collector.add(test);
    if (pace.isDue()) await pace.wait();
  }
  return collector.tests();
}

type KnownTest = { id: bigint; number: number; test: ReportedTest };

const testByKey = prepared(db =>
  db.orm
    .select({ id: tests.id, number: tests.number, seenAt: tests.seenAt })
    .from(tests)
    .where(and(eq(tests.suiteId, sql.placeholder('suiteId')), eq(tests.key, sql.placeholder('key'))))
    .prepare(),
);
const countTests = prepared(db =>
  db.sqlite
    .prepare<[bigint], [bigint, bigint]>(
      'SELECT count(*), coalesce(max(number), 0) FROM tests INDEXED BY tests_number WHERE suite_id = ?',
    )
    .raw(),
);
const setSeen = prepared(db =>
  db.sqlite.prepare<[bigint, bigint]>('UPDATE tests SET seen_at = ? WHERE id = ?'),
);
const insertTest = insertInto(tests);

/** The tests in order of their numbers, and those that the suite has no place for. */
async function identify(
  db: Db,
  { id: buildId, projectId, suiteId }: Pick<Build, 'id' | 'projectId' | 'suiteId'>,
  collected: Iterable<CollectedTest>,
  pace: Pace,
): Promise<{ known: KnownTest[]; omitted: ReportedTest[] }> {
  const known: KnownTest[] = [];
  const unknown: CollectedTest[] = [];
  const unseen: bigint[] = [];
  for (const one of collected) {
    const found = testByKey(db).get({ suiteId, key: one.key });
    if (found) {
      known.push({ id: found.id, number: found.number, test: one.test });
      if (found.seenAt < db.now() - DAY_MS) unseen.push(found.id);
    } else unknown.push(one);
    if (pace.isDue()) await pace.wait();
  }
  const [count, last] = countTests(db).get(suiteId) as [bigint, bigint];
  let number = Number(last);
  const places = Math.max(0, MAX_TESTS_OF_SUITE - Number(count));
  await inBatches(db, unknown.slice(0, places), ({ key, test }) => {
    const id = db.newId();
    number += 1;
    insertTest(db, {
      id,
      projectId,
      suiteId,
      number,
      key,
      classname: cut(test.classname),
      name: cut(test.name),
      file: test.file === undefined ? null : cut(test.file),
      firstBuildId: buildId,
      seenAt: db.now(),
      flakyAt: null,
      flakyFailedBuildId: null,
      flakyPassedBuildId: null,
      flakyRuns: 0,
    });
    known.push({ id, number, test });
  });
  await inBatches(db, unseen, id => setSeen(db).run(BigInt(db.now()), id));
  return { known: inOrder(known), omitted: unknown.slice(places).map(({ test }) => test) };
}

/** By number. Sorts numbers without a function that compares them, which takes a tenth of the time. */
function inOrder(known: readonly KnownTest[]): KnownTest[] {
  const sorted = Float64Array.from(known, ({ number }, at) => number * known.length + at).sort();
  return Array.from(sorted, one => known[one % known.length] as KnownTest);
}

const cut = (name: string) =>
  name.length <= MAX_NAME ? name : `${name.slice(0, MAX_NAME - 1)}…`.toWellFormed();

/** Leaves as much time for requests as each batch took. */
async function inBatches<Item>(db: Db, items: readonly Item[], write: (item: Item) => void): Promise<void> {
  const pace = createPace();
  let at = 0;
  while (at < items.length) {
    await db.checkpoint;
    db.write(() => {
      const endsAt = performance.now() + BATCH_MS;
      do {
        write(items[at] as Item);
        at += 1;
      } while (at < items.length && performance.now() < endsAt);
    });
    await pace.wait();
  }
}

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
    if (!isFailure(test.result) && !test.isFlaky) continue;
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
  await inBatches(db, rows, row => insertFailure(db, row));
}

/** The positions of a table, those that a list shows first at the beginning. */
export function positionsByRank(table: ResultTable): Uint32Array {
  const { length } = table.numbers;
  const counts = new Uint32Array(RANKS + 1);
  const ranks = new Uint8Array(length);
  for (let at = 0; at < length; at += 1) {
    ranks[at] = rankAt(table, at);
    (counts[(ranks[at] as number) + 1] as number) += 1;
  }
  for (let rank = 0; rank < RANKS; rank += 1) (counts[rank + 1] as number) += counts[rank] as number;
  const positions = new Uint32Array(length);
  for (let at = 0; at < length; at += 1) {
    const rank = ranks[at] as number;
    positions[counts[rank] as number] = at;
    (counts[rank] as number) += 1;
  }
  return positions;
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
    .select({ buildId: builds.id, results: buildReports.results })
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
    updateFlaky(db, row, evidence);
  });
}

function updateFlaky(db: Db, { suiteId, results }: ReportRow, evidence: Map<number, Evidence>): void {
  const now = db.now();
  const flaky = db.orm
    .select({ id: tests.id, number: tests.number, flakyAt: tests.flakyAt, runs: tests.flakyRuns })
    .from(tests)
    .where(and(eq(tests.suiteId, suiteId), isNotNull(tests.flakyAt)))
    .all();
  if (flaky.length > 0) {
    const table = unpackResults(results);
    for (const { id, number, flakyAt, runs } of flaky) {
      if (evidence.has(number)) continue;
      const position = findPosition(table, number);
      const isRun = position >= 0 && resultAt(table, position) !== 'skipped';
      const next = { flakyAt: flakyAt as number, runs: runs + (isRun ? 1 : 0) };
      if (isStillFlaky(next, now)) {
        if (isRun) db.orm.update(tests).set({ flakyRuns: next.runs }).where(eq(tests.id, id)).run();
      } else
        db.orm
          .update(tests)
          .set({ flakyAt: null, flakyFailedBuildId: null, flakyPassedBuildId: null, flakyRuns: 0 })
          .where(eq(tests.id, id))
          .run();
    }
  }
  const marked = new Set(flaky.map(({ number }) => number));
  for (const [number, { failedBuildId, passedBuildId }] of evidence) {
    if (!marked.has(number) && marked.size >= MAX_FLAKY_TESTS) continue;
    marked.add(number);
    db.orm
      .update(tests)
      .set({
        flakyAt: now,
        flakyFailedBuildId: failedBuildId,
        flakyPassedBuildId: passedBuildId,
        flakyRuns: 0,
      })
      .where(and(eq(tests.suiteId, suiteId), eq(tests.number, number)))
      .run();
  }
}

/** The results of a build; undefined if it has no report. */
export function findResults(db: Db, buildId: bigint): ResultTable | undefined {
  const row = db.orm
    .select({ results: buildReports.results })
    .from(buildReports)
    .where(eq(buildReports.buildId, buildId))
    .get();
  return row && unpackResults(row.results);
}

const reportOfCommit = prepared(db =>
  db.sqlite
    .prepare<[bigint, string, bigint, bigint], bigint>(
      `SELECT builds.id FROM commits JOIN builds ON builds.commit_id = commits.id
       JOIN build_reports ON build_reports.build_id = builds.id
       WHERE commits.project_id = ? AND commits.ref = ? AND builds.suite_id = ? AND builds.id <> ?
         AND builds.commit_ref = commits.ref
       ORDER BY builds.id DESC LIMIT 1`,
    )
    .pluck(),
);

/**
 * The build to compare with: the newest one with a report at the nearest of the ancestors, or else the previous one of the
 * branch. `ancestors` are hashes, nearest first.
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
