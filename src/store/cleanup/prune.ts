// Retention of rows that only grow: events, deliveries, decisions. A pass goes through the old ones from the oldest on, in
// batches. Ids grow with time, so an id says how old a row is.

import { idAt } from '../../domain/id.ts';
import { type Db, prepared } from '../database/db.ts';

/** How long rows are kept, in milliseconds. */
export type Retention = { deliveriesMs: number; eventsMs: number; decisionsMs: number };

const ROWS_AT_ONCE = 100;
/** A batch takes about this long on any machine: everybody else waits meanwhile. */
const BATCH_MS = 8;

const tables = [
  { table: 'deliveries', key: 'id', keptFor: 'deliveriesMs', unless: "state = 'pending'" },
  {
    table: 'events',
    key: 'id',
    keptFor: 'eventsMs',
    // A delivery that is kept can be sent again.
    unless: 'EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)',
  },
  {
    table: 'request_decisions',
    key: 'build_request_id',
    keptFor: 'decisionsMs',
    unless: 'begun IS NOT NULL',
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
    deleteRange: sqlite.prepare<[bigint, bigint]>(
      `DELETE FROM ${table} WHERE ${key} > ? AND ${key} <= ? AND NOT (${unless})`,
    ),
  })),
);

export type Pruner = {
  /** Begins another pass. */
  begin(): void;
  /** Deletes a batch of old rows; false when the pass is over. */
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
      db.write(() => {
        const endsAt = performance.now() + batchMs;
        do {
          const { keptFor } = tables[at.table] as (typeof tables)[number];
          const { endOfRange, deleteRange } = statements(db)[at.table]!;
          const end = endOfRange.get(at.after, idAt(db.now() - retention[keptFor])) ?? undefined;
          if (end !== undefined) deleteRange.run(at.after, end);
          at = end === undefined ? { table: at.table + 1, after: 0n } : { ...at, after: end };
        } while (at.table < tables.length && performance.now() < endsAt);
      });
      return true;
    },
  };
}
