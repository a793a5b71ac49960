// Paging by id, newest first, so that a page costs the same however long the table is.

import { type Column, lt, type SQL } from 'drizzle-orm';

export type Page = { limit: number; before: bigint | undefined };

/** One row more than the page holds: its presence shows that there is a next page. */
export function limitWithNext(page: Page): number {
  return page.limit + 1;
}

export function olderThan(column: Column, page: Page): SQL | undefined {
  return page.before === undefined ? undefined : lt(column, page.before);
}
