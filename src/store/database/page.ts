// Paging by id, newest first, so that a page costs the same however long the table is.

import { and, type Column, desc, lt, type SQL } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import type { Db } from './db.ts';

export type Page = { limit: number; before: bigint | undefined };

/** One row more than the page holds: its presence shows that there is a next page. */
export function limitWithNext(page: Page): number {
  return page.limit + 1;
}

export function olderThan(column: Column, page: Page): SQL | undefined {
  return page.before === undefined ? undefined : lt(column, page.before);
}

/** The rows of a page, and one more if there is a next page. */
export function listPage<Table extends SQLiteTable & { id: SQLiteColumn }>(
  db: Db,
  table: Table,
  condition: SQL | undefined,
  page: Page,
): Table['$inferSelect'][] {
  return db.orm
    .select()
    .from(table as SQLiteTable)
    .where(and(condition, olderThan(table.id, page)))
    .orderBy(desc(table.id))
    .limit(limitWithNext(page))
    .all();
}
