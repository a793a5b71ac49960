// Reads the tests of projects, the history of each, and which are flaky.

import { and, desc, eq, gt, lt, sql } from 'drizzle-orm';
import type { BuildState } from '../../domain/build.ts';
import { changeAt, durationAt, findPosition, resultAt } from '../../domain/result/comparison.ts';
import { FLAKY_MS } from '../../domain/result/flakiness.ts';
import type { TestChange, TestResult } from '../../domain/result/test-result.ts';
import { type Db, jsonOf, prepared } from '../database/db.ts';
import { findIn, type Page } from '../database/page.ts';
import { buildReports, testFailures, tests } from '../database/result-schema.ts';
import { builds } from '../database/schema.ts';
import { createPace } from './pace.ts';
import { findResults } from './reports.ts';

export type Test = typeof tests.$inferSelect;
/** A page of a list, and where the next page begins. */
export type Found<Item> = { items: Item[]; next: bigint | undefined };

export const findTest = findIn(tests, tests.projectId);

/** Whether a test is flaky now. */
export const isFlaky = ({ flakyAt }: Pick<Test, 'flakyAt'>, now: number) =>
  flakyAt !== null && now - flakyAt < FLAKY_MS;

/** The flaky tests of a project, or of one of its suites, those that were flaky last first. */
export function listFlakyTests(db: Db, projectId: bigint, limit: number, suiteId?: bigint): Test[] {
  return db.orm
    .select()
    .from(tests)
    .where(
      and(
        suiteId === undefined ? eq(tests.projectId, projectId) : eq(tests.suiteId, suiteId),
        gt(tests.flakyAt, db.now() - FLAKY_MS),
      ),
    )
    .orderBy(desc(tests.flakyAt), desc(tests.id))
    .limit(limit)
    .all();
}

const flakyCounts = prepared(({ sqlite }) => {
  const count = (owner: string) =>
    sqlite
      .prepare<[bigint, number], bigint>(`SELECT count(*) FROM tests WHERE ${owner} = ? AND flaky_at > ?`)
      .pluck();
  // Each has an index with the time.
  return { project: count('project_id'), suite: count('suite_id') };
});

/** How many flaky tests a project has, or one of its suites. */
export function countFlakyTests(db: Db, of: { projectId: bigint } | { suiteId: bigint }): number {
  const { project, suite } = flakyCounts(db);
  const since = db.now() - FLAKY_MS;
  return Number('suiteId' in of ? suite.get(of.suiteId, since) : project.get(of.projectId, since));
}

/** The page of an ordered list that begins after the test `page.before`. */
export function pageOf<Item, Shown>(
  db: Db,
  suiteId: bigint,
  ordered: readonly Item[],
  numberOf: (item: Item) => number,
  page: Page,
  show: (rows: { item: Item; test: Test }[]) => Shown[],
): Found<Shown> {
  const start = page.before === undefined ? 0 : 1 + positionOf(db, suiteId, ordered, numberOf, page.before);
  const items = start === 0 && page.before !== undefined ? [] : ordered.slice(start, start + page.limit);
  const rows = findByNumbers(db, suiteId, items.map(numberOf));
  // A test that was not seen for long is deleted; the results of old builds may still have it.
  const found = items.flatMap(item => {
    const test = rows.get(numberOf(item));
    return test ? [{ item, test }] : [];
  });
  const hasNext = start + items.length < ordered.length;
  return { items: show(found), next: hasNext ? found.at(-1)?.test.id : undefined };
}

function positionOf<Item>(
  db: Db,
  suiteId: bigint,
  ordered: readonly Item[],
  numberOf: (item: Item) => number,
  testId: bigint,
): number {
  const number = db.orm
    .select({ number: tests.number })
    .from(tests)
    .where(and(eq(tests.id, testId), eq(tests.suiteId, suiteId)))
    .get()?.number;
  return number === undefined ? -1 : ordered.findIndex(item => numberOf(item) === number);
}

/** The tests of a suite by their numbers. */
export function findByNumbers(db: Db, suiteId: bigint, numbers: readonly number[]): Map<number, Test> {
  const rows = db.orm
    .select()
    .from(tests)
    .where(
      and(
        eq(tests.suiteId, suiteId),
        sql`${tests.number} IN (SELECT value FROM json_each(${JSON.stringify(numbers)}))`,
      ),
    )
    .all();
  return new Map(rows.map(row => [row.number, row]));
}

/** One more than the highest number of a test of the suite. */
export function sizeOf(db: Db, suiteId: bigint): number {
  const row = db.orm
    .select({ last: sql<bigint | null>`max(${tests.number})` })
    .from(tests)
    .where(eq(tests.suiteId, suiteId))
    .get();
  return Number(row?.last ?? 0n) + 1;
}

type TestOutcome = {
  buildId: bigint;
  result: TestResult;
  change: TestChange | undefined;
  durationMs: number | undefined;
};
export type TestRun = TestOutcome & {
  commitId: bigint;
  commitRef: string;
  branch: string;
  buildState: BuildState;
  createdAt: number;
  finishedAt: number | null;
  /** Empty for a test that passed at once. */
  message: string;
  details: string;
};

/** A test may be missing in most reports of its suite. */
const MAX_REPORTS_READ = 200;

/** The builds in which the test ran, newest first, without local runs. A page may have fewer items than its limit although there is a next one. */
export async function listTestHistory(db: Db, test: Test, page: Page): Promise<Found<TestRun>> {
  const pace = createPace();
  const ids = db.orm
    .select({ id: buildReports.buildId })
    .from(buildReports)
    .where(
      and(
        eq(buildReports.suiteId, test.suiteId),
        eq(buildReports.local, false),
        page.before === undefined ? undefined : lt(buildReports.buildId, page.before),
      ),
    )
    .orderBy(desc(buildReports.buildId))
    .limit(MAX_REPORTS_READ + 1)
    .all();
  const found: TestOutcome[] = [];
  let last: bigint | undefined;
  for (const { id } of ids.slice(0, MAX_REPORTS_READ)) {
    last = id;
    const table = await findResults(db, id, pace);
    const at = table ? findPosition(table, test.number) : -1;
    if (table && at >= 0)
      found.push({
        buildId: id,
        result: resultAt(table, at),
        change: changeAt(table, at),
        durationMs: durationAt(table, at),
      });
    if (pace.isDue()) await pace.wait();
    if (found.length === page.limit) break;
  }
  const hasNext = last !== ids.at(-1)?.id;
  return { items: addBuilds(db, test, found), next: hasNext ? last : undefined };
}

function addBuilds(db: Db, test: Test, outcomes: readonly TestOutcome[]): TestRun[] {
  const rows = db.orm
    .select({
      buildId: builds.id,
      commitId: builds.commitId,
      commitRef: builds.commitRef,
      branch: buildReports.branch,
      buildState: builds.buildState,
      createdAt: builds.createdAt,
      finishedAt: builds.finishedAt,
      message: testFailures.message,
      details: testFailures.details,
    })
    .from(builds)
    .innerJoin(buildReports, eq(buildReports.buildId, builds.id))
    .leftJoin(testFailures, and(eq(testFailures.buildId, builds.id), eq(testFailures.testId, test.id)))
    .where(
      sql`${builds.id} IN (SELECT value FROM json_each(${jsonOf(outcomes.map(({ buildId }) => buildId))}))`,
    )
    .all();
  const byId = new Map(rows.map(row => [row.buildId, row]));
  return outcomes.flatMap(outcome => {
    const row = byId.get(outcome.buildId);
    return row ? [{ ...row, ...outcome, message: row.message ?? '', details: row.details ?? '' }] : [];
  });
}
