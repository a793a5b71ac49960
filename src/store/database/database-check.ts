// Whether a database file is sound enough to be served from. Looks and touches nothing; what to do about it says data.ts.

import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { openSqlite } from './db.ts';

/** Above it a whole check would hold up the start: then the ends of every table and index are looked at instead. */
const WHOLE_CHECK_BYTES = 64 * 1024 ** 2;

export function checkDatabaseFile(path: string): 'sound' | 'empty' | 'damaged' {
  const { size } = statSync(path);
  if (size === 0) return 'empty';
  const sqlite = openSqlite(path, { readonly: true });
  try {
    // A file without a version was not written by Assay, or somebody has emptied it.
    if (sqlite.pragma('user_version', { simple: true }) === 0) return 'empty';
    if (size > WHOLE_CHECK_BYTES) readEnds(sqlite);
    else if (sqlite.pragma('quick_check(1)', { simple: true }) !== 'ok') return 'damaged';
    return 'sound';
  } catch (cause) {
    if (isDamageError(cause)) return 'damaged';
    throw cause;
  } finally {
    sqlite.close();
  }
}

export function isDamageError(cause: unknown): boolean {
  const code = (cause as { code?: unknown }).code;
  return typeof code === 'string' && /^SQLITE_(NOTADB|CORRUPT)/.test(code);
}

/** Goes down both edges of every table and of every index; a page that is not what it should be throws. */
function readEnds(sqlite: Database.Database): void {
  const trees = sqlite
    .prepare(
      "SELECT type, name, tbl_name AS owner FROM sqlite_schema WHERE type IN ('table', 'index') AND rootpage > 0",
    )
    .all() as { type: 'table' | 'index'; name: string; owner: string }[];
  for (const { type, name, owner } of trees) {
    const columns =
      type === 'table'
        ? ['rowid']
        : (sqlite.pragma(`index_info("${name}")`) as { name: string }[]).map(column => `"${column.name}"`);
    for (const direction of ['ASC', 'DESC'])
      sqlite
        .prepare(
          `SELECT * FROM "${owner}" ORDER BY ${columns.map(column => `${column} ${direction}`).join(', ')} LIMIT 1`,
        )
        .get();
  }
}
