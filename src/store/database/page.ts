// Reads rows by id: one, or a page of them, newest first, which costs the same however long the table is.

import { and, type Column, desc, eq, lt, type SQL, sql } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import { type Db, prepared } from './db.ts';

export type Page = { limit: number; before: bigint | undefined };

/** One row more than the page holds: its presence shows that there is a next page. */
export function limitWithNext(page: Page): number {
  return page.limit + 1;
}

export function olderThan(column: Column, page: Page): SQL | undefined {
  return page.before === undefined ? undefined : lt(column, page.before);
}

/** A function that finds a row by its id among those of an owner: `const findSuite = findIn(suites, suites.projectId)`. */
export function findIn<Table extends SQLiteTable & { id: SQLiteColumn }>(
  table: Table,
  owner: SQLiteColumn,
  condition?: SQL,
): (db: Db, ownerId: bigint, id: bigint) => Table['$inferSelect'] | undefined {
  const statement = prepared(db =>
    db.orm
      .select()
      .from(table as SQLiteTable)
      .where(and(eq(table.id, sql.placeholder('id')), eq(owner, sql.placeholder('ownerId')), condition))
      .prepare(),
  );
  return (db, ownerId, id) => statement(db).get({ id, ownerId });
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
