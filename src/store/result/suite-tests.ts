// Reads the tests of a suite with their statistics over its latest builds.

import { and, desc, eq, gt } from 'drizzle-orm';
import { createResultTable, findPosition, type ResultTable } from '../../domain/result/comparison.ts';
import { FLAKY_MS, SCORE_BUILDS, scoreOf } from '../../domain/result/flakiness.ts';
import {
  createSuiteStatistics,
  type SuiteStatistics,
  type TestStatistics,
} from '../../domain/result/suite-statistics.ts';
import { isFailure } from '../../domain/result/test-result.ts';
import type { Db } from '../database/db.ts';
import type { Page } from '../database/page.ts';
import { buildReports, tests } from '../database/result-schema.ts';
import { projects } from '../database/schema.ts';
import { findRepositoryBranch } from '../trigger/firings.ts';
import { createPace, type Pace } from './pace.ts';
import { findResults } from './reports.ts';
import { type Found, pageOf, sizeOf, type Test } from './tests.ts';

/** How many builds the statistics of a suite cover. */
export const STATISTICS_BUILDS = SCORE_BUILDS;

export type SuiteTest = TestStatistics & { test: Test; score: number };
export const testOrders = ['flaky', 'slowest', 'failing', 'newest'] as const;
export type TestOrder = (typeof testOrders)[number];

/** The tests of the suite's latest builds, of `branch` if given. */
export async function listSuiteTests(
  db: Db,
  suite: { id: bigint; projectId: bigint },
  options: { order: TestOrder; branch?: string | undefined },
  page: Page,
): Promise<Found<SuiteTest>> {
  const size = sizeOf(db, suite.id);
  const pace = createPace();
  const reports = listReportIds(db, suite.id, options.branch, STATISTICS_BUILDS);
  const scored = listReportIds(db, suite.id, findDefaultBranch(db, suite), STATISTICS_BUILDS);
  const [statistics, scores] = await statisticsOf(db, [reports, scored], size, pace);
  const flaky = flakyNumbers(db, suite.id);
  const of = (number: number) => statistics.of(number) as TestStatistics;
  const weighBy: Record<TestOrder, (number: number) => number> = {
    flaky: number => (flaky.has(number) ? 2 * STATISTICS_BUILDS : 0) + scores.transitionsOf(number),
    slowest: number => (of(number).medianMs ?? -1) + 1,
    failing: number => {
      const { failures, result } = of(number);
      return failures * 2 + (isFailure(result) ? 1 : 0);
    },
    newest: number => number,
  };
  const weigh = weighBy[options.order];
  const numbers = statistics.numbers();
  const weights = new Float64Array(numbers.length);
  for (const [at, number] of numbers.entries()) {
    weights[at] = weigh(number);
    if (pace.isDue()) await pace.wait();
  }
  const ordered = heaviestFirst(numbers, weights);
  await pace.wait();
  return pageOf(
    db,
    suite.id,
    ordered,
    number => number,
    page,
    shown =>
      shown.map(({ item: number, test }) => ({
        test,
        score: scoreOf(scores.transitionsOf(number)),
        ...of(number),
      })),
  );
}

const MAX_POSITIONS = 2 ** 21;

/**
 * Numbers by weight, heaviest first, equal ones in order. Weights are whole numbers of at most 32 bits. There may be 100,000
 * numbers, and a typed array of keys is sorted much faster than they are with a function.
 */
function heaviestFirst(numbers: readonly number[], weights: Float64Array): number[] {
  const keys = new Float64Array(weights.length);
  for (let at = 0; at < keys.length; at += 1)
    keys[at] = (weights[at] as number) * MAX_POSITIONS + MAX_POSITIONS - 1 - at;
  keys.sort();
  const ordered: number[] = [];
  for (let at = keys.length - 1; at >= 0; at -= 1)
    ordered.push(numbers[MAX_POSITIONS - 1 - ((keys[at] as number) % MAX_POSITIONS)] as number);
  return ordered;
}

function flakyNumbers(db: Db, suiteId: bigint): Set<number> {
  const rows = db.orm
    .select({ number: tests.number })
    .from(tests)
    .where(and(eq(tests.suiteId, suiteId), gt(tests.flakyAt, db.now() - FLAKY_MS)))
    .all();
  return new Set(rows.map(({ number }) => number));
}

/** The statistics of one test; undefined if it is not in the latest builds. */
export async function findStatistics(
  db: Db,
  test: Test,
): Promise<(TestStatistics & { score: number }) | undefined> {
  const pace = createPace();
  const onlyTest = (table: ResultTable) => {
    const at = findPosition(table, test.number);
    return at < 0 ? createResultTable(0) : { ...sliceAt(table, at), numbers: new Uint32Array(1) };
  };
  const branch = findDefaultBranch(db, { id: test.suiteId, projectId: test.projectId });
  const latest = (of: string | undefined) => listReportIds(db, test.suiteId, of, STATISTICS_BUILDS);
  const [all, scored] = await statisticsOf(db, [latest(undefined), latest(branch)], 1, pace, onlyTest);
  const found = all.of(0);
  return found && { ...found, score: scoreOf(scored.transitionsOf(0)) };
}

const sliceAt = (table: ResultTable, at: number): ResultTable => ({
  numbers: table.numbers.slice(at, at + 1),
  results: table.results.slice(at, at + 1),
  changes: table.changes.slice(at, at + 1),
  durations: table.durations.slice(at, at + 1),
});

/** The statistics of two lists of builds, each newest first. Most builds are in both, and are read once. */
async function statisticsOf(
  db: Db,
  [first, second]: readonly [readonly bigint[], readonly bigint[]],
  size: number,
  pace: Pace,
  select = (table: ResultTable) => table,
): Promise<[SuiteStatistics, SuiteStatistics]> {
  const sides = [first, second].map(ids => ({ ids: new Set(ids), statistics: createSuiteStatistics(size) }));
  const newestFirst = [...new Set([...first, ...second])].sort((a, b) => (a < b ? 1 : -1));
  for (const buildId of newestFirst) {
    const table = await findResults(db, buildId, pace);
    const selected = table && select(table);
    if (selected) for (const { ids, statistics } of sides) if (ids.has(buildId)) statistics.add(selected);
    if (pace.isDue()) await pace.wait();
  }
  return sides.map(({ statistics }) => statistics) as [SuiteStatistics, SuiteStatistics];
}

/** Newest first, without local runs. */
function listReportIds(db: Db, suiteId: bigint, branch: string | undefined, limit: number): bigint[] {
  return db.orm
    .select({ id: buildReports.buildId })
    .from(buildReports)
    .where(
      and(
        eq(buildReports.suiteId, suiteId),
        eq(buildReports.local, false),
        branch === undefined ? undefined : eq(buildReports.branch, branch),
      ),
    )
    .orderBy(desc(buildReports.buildId))
    .limit(limit)
    .all()
    .map(({ id }) => id);
}

/** The repository's default branch if a look has found it; else the likeliest one with a report, or that of the newest. */
export function findDefaultBranch(db: Db, suite: { id: bigint; projectId: bigint }): string | undefined {
  const project = db.orm.select().from(projects).where(eq(projects.id, suite.projectId)).get();
  const known = project && findRepositoryBranch(db, project);
  if (known) return known;
  const likely = ['main', 'master'].find(name => listReportIds(db, suite.id, name, 1).length > 0);
  if (likely !== undefined) return likely;
  return db.orm
    .select({ branch: buildReports.branch })
    .from(buildReports)
    .where(
      and(eq(buildReports.suiteId, suite.id), eq(buildReports.local, false), gt(buildReports.branch, '')),
    )
    .orderBy(desc(buildReports.buildId))
    .limit(1)
    .get()?.branch;
}
