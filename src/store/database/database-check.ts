// Checks whether a database file is intact enough to use. It reads only; data.ts reports what to do about a damaged file.

import { statSync } from 'node:fs';
import { openSqlite, type Sqlite } from './db.ts';

/** A full check of a larger file would delay the start, so only both ends of every table and index are read. */
const FULL_CHECK_MAX_BYTES = 64 * 1024 ** 2;
const ENDS_PER_STATEMENT = 100;

export function checkDatabaseFile(path: string): 'sound' | 'empty' | 'damaged' {
  const { size } = statSync(path);
  if (size === 0) return 'empty';
  using sqlite = openSqlite(path, { readonly: true });
  try {
    // A file without a version was not written by Assay, or was emptied.
    if (sqlite.pragma('user_version', { simple: true }) === 0) return 'empty';
    if (size > FULL_CHECK_MAX_BYTES) readEnds(sqlite);
    else if (sqlite.pragma('quick_check(1)', { simple: true }) !== 'ok') return 'damaged';
    return 'sound';
  } catch (error) {
    if (isDamageError(error)) return 'damaged';
    throw error;
  }
}

export function isDamageError(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  return typeof code === 'string' && /^SQLITE_(NOTADB|CORRUPT)/.test(code);
}

/** Reads the first and the last entry of every table and index. A damaged page throws. */
function readEnds(sqlite: Sqlite): void {
  const queries = queriesOfEnds(sqlite).map(query => `(${query})`);
  // Few statements, because compiling one takes longer than running it.
  while (queries.length > 0)
    sqlite
      .prepare(`SELECT ${queries.splice(0, ENDS_PER_STATEMENT)}`)
      .pluck()
      .get();
}

/** Each query reads one entry of one table or index, however long it is. */
export function queriesOfEnds(sqlite: Sqlite): string[] {
  const trees = sqlite
    .prepare(
      `SELECT type, name, tbl_name AS owner, sql,
         (SELECT column.name FROM pragma_index_info(tree.name) AS column WHERE column.seqno = 0) AS first
       FROM sqlite_schema AS tree WHERE type IN ('table', 'index') AND rootpage > 0`,
    )
    .all() as { type: 'table' | 'index'; name: string; owner: string; sql: string | null; first: string }[];
  return trees.flatMap(({ type, name, owner, sql, first }) => {
    // SQLite uses a partial index only for a query with the same condition.
    const [condition = ''] = /\bWHERE .*$/s.exec(sql ?? '') ?? [];
    const source = type === 'table' ? `"${owner}"` : `"${owner}" INDEXED BY "${name}" ${condition}`;
    const column = type === 'table' ? 'rowid' : first;
    return ['ASC', 'DESC'].map(
      direction => `SELECT 1 FROM ${source} ORDER BY "${column}" ${direction} LIMIT 1`,
    );
  });
}
