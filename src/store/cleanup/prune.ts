// Deletes events, deliveries, firings, rule decisions and test results after their retention time, oldest first and in batches. Ids increase
// with time, so an id tells the age of a row.

import { idAt } from '../../domain/id.ts';
import { type Db, prepared } from '../database/db.ts';

/** How long rows are kept, in milliseconds. */
export type Retention = {
  deliveriesMs: number;
  eventsMs: number;
  firingsMs: number;
  decisionsMs: number;
  testsMs: number;
};

const ROWS_AT_ONCE = 100;
/** How long a batch may take, without the commit. Everything else waits meanwhile. */
const BATCH_MS = 3;

const tables = [
  { table: 'deliveries', key: 'id', keptFor: 'deliveriesMs', unless: "state = 'pending'" },
  {
    table: 'events',
    key: 'id',
    keptFor: 'eventsMs',
    // A stored delivery can be sent again, which needs the event.
    unless: 'EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)',
  },
  {
    table: 'firings',
    key: 'id',
    keptFor: 'firingsMs',
    // A schedule compares the branch with the commit that it last built.
    unless: `outcome = 'looking' OR (outcome = 'requested' AND planned_at IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM firings AS newer WHERE newer.trigger_id = firings.trigger_id AND newer.id > firings.id
        AND newer.outcome = 'requested' AND newer.after IS NOT NULL))`,
  },
  {
    table: 'request_decisions',
    key: 'build_request_id',
    keptFor: 'decisionsMs',
    unless: 'begun IS NOT NULL',
  },
  {
    table: 'build_reports',
    key: 'build_id',
    keptFor: 'testsMs',
    // The next build of the branch is compared with it.
    unless: `NOT EXISTS (SELECT 1 FROM build_reports AS newer WHERE newer.suite_id = build_reports.suite_id
      AND newer.branch = build_reports.branch AND newer.build_id > build_reports.build_id)`,
  },
  {
    table: 'test_failures',
    key: 'build_id',
    keptFor: 'testsMs',
    unless: 'EXISTS (SELECT 1 FROM build_reports WHERE build_reports.build_id = test_failures.build_id)',
  },
  {
    table: 'tests',
    key: 'id',
    keptFor: 'testsMs',
    // `seen_at` may be a day late. The highest number stays, so that it is not given to another test.
    unless: `seen_at >= @before - 86400000 OR NOT EXISTS (
      SELECT 1 FROM tests AS higher WHERE higher.suite_id = tests.suite_id AND higher.number > tests.number)`,
  },
] as const;

const statements = prepared(({ sqlite }) =>
  tables.map(({ table, key, unless }) => ({
    endOfRange: sqlite
      .prepare<[bigint, bigint], bigint | null>(
        `SELECT max(key) FROM (
           SELECT ${key} AS key FROM ${table} WHERE ${key} > ? AND ${key} < ? ORDER BY ${key} LIMIT ${ROWS_AT_ONCE}
         )`,
      )
      .pluck(),
    deleteRange: sqlite.prepare<[{ after: bigint; end: bigint; before: number }]>(
      `DELETE FROM ${table} WHERE ${key} > @after AND ${key} <= @end AND NOT (${unless})`,
    ),
  })),
);

type Pruner = {
  /** Starts another pass. */
  begin(): void;
  /** Deletes a batch of old rows. False if the pass is complete. */
  pruneSomeRows(db: Db, batchMs?: number): boolean;
};

export function createPruner(retention: Retention): Pruner {
  let at = { table: 0, after: 0n };
  return {
    begin() {
      at = { table: 0, after: 0n };
    },
    pruneSomeRows: (db, batchMs = BATCH_MS) => {
      if (at.table >= tables.length) return false;
      db.writeUnsynced(() => {
        const endsAt = performance.now() + batchMs;
        do {
          const { keptFor } = tables[at.table] as (typeof tables)[number];
          const { endOfRange, deleteRange } = statements(db)[at.table]!;
          const before = db.now() - retention[keptFor];
          const end = endOfRange.get(at.after, idAt(before)) ?? undefined;
          if (end !== undefined) deleteRange.run({ after: at.after, end, before });
          at = end === undefined ? { table: at.table + 1, after: 0n } : { ...at, after: end };
        } while (at.table < tables.length && performance.now() < endsAt);
      });
      return true;
    },
  };
}
