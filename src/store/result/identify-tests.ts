// Finds the tests of a build's reports among those of its suite, and adds the new ones. There may be 100,000, so what is
// kept of them are numbers in arrays: objects would make garbage collection stop the server.

import {
  classifyChange,
  createResultTable,
  type ResultTable,
  resultAt,
  setResult,
} from '../../domain/result/comparison.ts';
import { inSteps, type Steps } from '../../domain/result/steps.ts';
import { createTestKeys, KEY_BYTES } from '../../domain/result/test-identity.ts';
import type { ReportedTest, ReportedTests, TestResult } from '../../domain/result/test-result.ts';
import { type Db, prepared } from '../database/db.ts';
import type { Build } from '../transition.ts';
import { type Pace, writeInBatches } from './pace.ts';

/** Names that change with each run could otherwise fill the database. */
export const MAX_TESTS_OF_SUITE = 200_000;
/** The rest is for the tests of the repository. */
const MAX_TESTS_OF_LOCAL_RUNS = MAX_TESTS_OF_SUITE / 2;
const MAX_NAME = 1_000;
const DAY_MS = 24 * 3600_000;

export type IdentifiedTests = {
  /** The results. They are compared with no other build. */
  table: ResultTable;
  /** By position in the table. */
  ids: BigInt64Array;
  /** By position in the table: where the test is in the report. */
  indexes: Uint32Array;
  /** The results of those that the suite has no place for. */
  omitted: TestResult[];
};

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

/** May be repeated. Two builds of one suite must not be identified at the same time. */
export async function identifyTests(
  db: Db,
  { id: buildId, projectId, suiteId, local }: Pick<Build, 'id' | 'projectId' | 'suiteId' | 'local'>,
  tests: ReportedTests,
  pace: Pace,
): Promise<IdentifiedTests> {
  const { length } = tests;
  // By index in the report. The number of an unknown test is 0.
  const reported = createResultTable(length);
  const ids = new BigInt64Array(length);
  const unknown: number[] = [];
  const unknownKeys = Buffer.alloc(length * KEY_BYTES);
  const unseen: bigint[] = [];
  const find = testByKey(db);
  const staleAt = db.now() - DAY_MS;
  const keyOf = createTestKeys();
  for (let index = 0; index < length; index += 1) {
    const test = tests.at(index) as ReportedTest;
    const key = keyOf(test);
    const [id = 0n, number = 0n, seenAt = 0n] = find.get(suiteId, key) ?? [];
    ids[index] = id;
    const change = classifyChange(test, undefined);
    setResult(reported, index, {
      number: Number(number),
      result: test.result,
      change,
      durationMs: test.durationMs,
    });
    if (number === 0n) {
      unknownKeys.set(key, unknown.length * KEY_BYTES);
      unknown.push(index);
    } else if (seenAt < staleAt && !local) unseen.push(id);
    if (pace.isDue()) await pace.wait();
  }
  const [count, last] = countTests(db).get(suiteId) as [bigint, bigint];
  const places = Math.max(0, (local ? MAX_TESTS_OF_LOCAL_RUNS : MAX_TESTS_OF_SUITE) - Number(count));
  const omitted = unknown.splice(places);
  let added = 0;
  await writeInBatches(db, unknown, index => {
    const { classname, name, file } = tests.at(index) as ReportedTest;
    const key = unknownKeys.subarray(added * KEY_BYTES, (added + 1) * KEY_BYTES);
    const id = db.newId();
    added += 1;
    const number = Number(last) + added;
    insertTest(db).run(
      id,
      projectId,
      suiteId,
      BigInt(number),
      key,
      cut(classname),
      cut(name),
      file === undefined ? null : cut(file),
      buildId,
      local ? 0n : BigInt(db.now()),
    );
    ids[index] = id;
    reported.numbers[index] = number;
  });
  await writeInBatches(db, unseen, id => setSeen(db).run({ id, buildId, now: BigInt(db.now()) }));
  return {
    ...(await pace.run(inOrder(reported, ids))),
    omitted: omitted.map(index => resultAt(reported, index)),
  };
}

/** Sorts tests by number, without those that have none. */
function* inOrder(reported: ResultTable, ids: BigInt64Array): Steps<Omit<IdentifiedTests, 'omitted'>> {
  const indexes = yield* indexesByNumber(reported.numbers);
  const { length } = indexes;
  const table = createResultTable(length);
  const orderedIds = new BigInt64Array(length);
  yield* inSteps(length, (from, to) => {
    for (let at = from; at < to; at += 1) {
      const index = indexes[at] as number;
      table.numbers[at] = reported.numbers[index] as number;
      table.results[at] = reported.results[index] as number;
      table.changes[at] = reported.changes[index] as number;
      table.durations[at] = reported.durations[index] as number;
      orderedIds[at] = ids[index] as bigint;
    }
  });
  return { table, ids: orderedIds, indexes };
}

/** Sorts numbers without a function that compares them, which takes a tenth of the time. Most reports need no sorting. */
function* indexesByNumber(numbers: Uint32Array): Steps<Uint32Array> {
  const { length } = numbers;
  const pairs = new Float64Array(length);
  let count = 0;
  let last = 0;
  let isSorted = true;
  yield* inSteps(length, (from, to) => {
    for (let index = from; index < to; index += 1) {
      const number = numbers[index] as number;
      if (number === 0) continue;
      isSorted &&= number > last;
      last = number;
      pairs[count] = number * length + index;
      count += 1;
    }
  });
  const sorted = pairs.subarray(0, count);
  if (!isSorted) sorted.sort();
  const indexes = new Uint32Array(count);
  yield* inSteps(count, (from, to) => {
    for (let at = from; at < to; at += 1) indexes[at] = (sorted[at] as number) % length;
  });
  return indexes;
}

const cut = (name: string) =>
  name.length <= MAX_NAME ? name : `${name.slice(0, MAX_NAME - 1)}…`.toWellFormed();
