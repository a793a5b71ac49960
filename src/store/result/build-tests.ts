// Reads the tests of a build, with the result of each.

import { and, eq, gt, inArray, lt, sql } from 'drizzle-orm';
import { changeAt, durationAt, positionsByRank, resultAt } from '../../domain/result/comparison.ts';
import type { TestChange, TestResult } from '../../domain/result/test-result.ts';
import { type Db, prepared } from '../database/db.ts';
import type { Page } from '../database/page.ts';
import { buildReports, testFailures, tests } from '../database/result-schema.ts';
import { createPace, type Pace } from './pace.ts';
import { findResults } from './reports.ts';
import { type Found, pageOf, sizeOf, type Test } from './tests.ts';

type BuildReport = Pick<typeof buildReports.$inferSelect, 'baseBuildId' | 'durationMs' | 'malformed'>;

export function findReport(db: Db, buildId: bigint): BuildReport | undefined {
  return db.orm
    .select({
      baseBuildId: buildReports.baseBuildId,
      durationMs: buildReports.durationMs,
      malformed: buildReports.malformed,
    })
    .from(buildReports)
    .where(eq(buildReports.buildId, buildId))
    .get();
}

export type BuildTest = {
  test: Test;
  result: TestResult;
  change: TestChange | undefined;
  durationMs: number | undefined;
  /** Empty for a test that passed at once. Of a build with many failures, only the first have a message. */
  message: string;
  details: string;
  retries: number;
};

export type BuildTestFilter = {
  result?: TestResult | undefined;
  /** Only tests that failed, and did not in the build that it is compared with. */
  isNew?: boolean | undefined;
  /** A part of the name or of the class name. */
  text?: string | undefined;
};

/** New failures first, then the others, then tests that passed. */
export async function listBuildTests(
  db: Db,
  build: { id: bigint; suiteId: bigint },
  filter: BuildTestFilter,
  page: Page,
): Promise<Found<BuildTest>> {
  const pace = createPace();
  const table = await findResults(db, build.id, pace);
  if (!table) return { items: [], next: undefined };
  const named = filter.text === undefined ? undefined : await findNamed(db, build.suiteId, filter.text, pace);
  const wanted: number[] = [];
  for (const at of await pace.run(positionsByRank(table))) {
    if (pace.isDue()) await pace.wait();
    if (filter.result !== undefined && resultAt(table, at) !== filter.result) continue;
    if (filter.isNew && changeAt(table, at) !== 'new') continue;
    if (named === undefined || named.has(table.numbers[at] as number)) wanted.push(at);
  }
  const numberOf = (at: number) => table.numbers[at] as number;
  return pageOf(db, build.suiteId, wanted, numberOf, page, shown => {
    const messages = messagesOf(
      db,
      build.id,
      shown.map(({ test }) => test.id),
    );
    return shown.map(({ item: at, test }) => ({
      test,
      result: resultAt(table, at),
      change: changeAt(table, at),
      durationMs: durationAt(table, at),
      message: messages.get(test.id)?.message ?? '',
      details: messages.get(test.id)?.details ?? '',
      retries: messages.get(test.id)?.retries ?? 0,
    }));
  });
}

function messagesOf(db: Db, buildId: bigint, testIds: readonly bigint[]) {
  const rows = db.orm
    .select({
      testId: testFailures.testId,
      message: testFailures.message,
      details: testFailures.details,
      retries: testFailures.retries,
    })
    .from(testFailures)
    .where(and(eq(testFailures.buildId, buildId), inArray(testFailures.testId, [...testIds])))
    .all();
  return new Map(rows.map(row => [row.testId, row]));
}

const NUMBERS_AT_ONCE = 5_000;

const namesInRange = prepared(db =>
  db.orm
    .select({ number: tests.number, classname: tests.classname, name: tests.name })
    .from(tests)
    .where(
      and(
        eq(tests.suiteId, sql.placeholder('suiteId')),
        gt(tests.number, sql.placeholder('after')),
        lt(tests.number, sql.placeholder('end')),
      ),
    )
    .prepare(),
);

async function findNamed(db: Db, suiteId: bigint, text: string, pace: Pace): Promise<Set<number>> {
  const wanted = text.toLowerCase();
  const found = new Set<number>();
  const end = sizeOf(db, suiteId);
  for (let after = 0; after < end; after += NUMBERS_AT_ONCE) {
    for (const { number, classname, name } of namesInRange(db).all({
      suiteId,
      after,
      end: after + NUMBERS_AT_ONCE + 1,
    }))
      if (`${classname} ${name}`.toLowerCase().includes(wanted)) found.add(number);
    if (pace.isDue()) await pace.wait();
  }
  return found;
}
