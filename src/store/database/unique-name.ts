// Uniqueness of names within an account or a project, compared by `nameKey`.

import { and, eq, isNull, or } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import { nameKey } from '../../domain/names.ts';
import type { Db } from './db.ts';

type Named = { id: bigint; name: string };
type NamedTable = SQLiteTable & { id: SQLiteColumn; name: SQLiteColumn; nameKey: SQLiteColumn };

/**
 * Whether another row within the same scope has the name. `own` is the row to rename, which may always keep its name.
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

/** The key to store with a new name. A row that keeps its name keeps its key, which may be null. */
export function keyOfChange(own: Named, name: string | undefined): { nameKey?: string } {
  return name === undefined || isSameName(own.name, name) ? {} : { nameKey: nameKey(name) };
}

/** Old names may have surrounding white space. */
const isSameName = (stored: string, name: string) => stored.trim() === name.trim();
