// Names that are unique within an owner or a project by their key (`nameKey`), for the four tables that have such names.

import { and, eq, isNull, or } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import { nameKey } from '../../domain/names.ts';
import type { Db } from './db.ts';

type Named = { id: bigint; name: string };
type NamedTable = SQLiteTable & { id: SQLiteColumn; name: SQLiteColumn; nameKey: SQLiteColumn };

/**
 * Whether another row within the same scope has the name. `own` is the row that is to get it: what it is called already
 * it may go on being called.
 */
export function isNameTaken(
  db: Db,
  table: NamedTable,
  scope: { column: SQLiteColumn; id: bigint },
  name: string,
  own?: Named,
): boolean {
  if (own && isSameName(own.name, name)) return false;
  const key = nameKey(name);
  const rows = db.orm
    .select({ id: table.id, name: table.name })
    .from(table)
    .where(and(eq(scope.column, scope.id), or(eq(table.nameKey, key), isNull(table.nameKey))))
    .all() as Named[];
  return rows.some(row => row.id !== own?.id && nameKey(row.name) === key);
}

/** What to store for a new name; a row whose name stays keeps its key, which may be none. */
export function keyOfChange(own: Named, name: string | undefined): { nameKey?: string } {
  return name === undefined || isSameName(own.name, name) ? {} : { nameKey: nameKey(name) };
}

/** Names from before white space was removed around them still have it. */
const isSameName = (kept: string, sent: string) => kept.trim() === sent.trim();
