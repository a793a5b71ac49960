// The only module that talks to SQLite: opening, pragmas, transactions, ids, and caches of statements and reads.

import { open } from 'node:fs/promises';
import Database from 'better-sqlite3';
import { getTableColumns, getTableName } from 'drizzle-orm';
import { type BetterSQLite3Database, drizzle } from 'drizzle-orm/better-sqlite3';
import type { SQLiteTable } from 'drizzle-orm/sqlite-core';
import { nativeBinding } from '../../asset.ts';
import { nextId } from '../../domain/id.ts';
import { migrate, type OnUpgrade } from './migrations.ts';
import type { Vault } from './vault.ts';

export type Db = {
  orm: BetterSQLite3Database;
  vault: Vault;
  now(): number;
  /** Runs `change` as one durable transaction, or as part of the current one. */
  write<T>(change: () => T): T;
  /**
   * As `write`, but without a wait for the disk: a power failure may undo it. For batches of large changes that would then
   * be made again. Subscribers are notified before it is durable. Callers await `sync` before the next batch, or a durable
   * transaction would wait for all of them.
   */
  writeUnsynced<T>(change: () => T): T;
  /** Resolves when everything that `writeUnsynced` has written is durable. Nobody else waits for it. */
  sync(): Promise<void>;
  /**
   * Runs `change` in one durable transaction with those of other callers that arrive meanwhile: the disk is synced once for
   * all. Resolves when it is durable. If one of them fails, each runs again by itself. `size` is how many changes it counts as.
   */
  writeTogether<T>(change: () => T, size?: number): Promise<T>;
  /** A new id. Allowed only inside `write`, whose transaction stores it. */
  newId(): bigint;
  /** Marks a topic as changed. Its subscribers are notified once the transaction is durable. */
  touch(topic: string): void;
  onCommit: (topics: ReadonlySet<string>) => void;
  /** Called after each transaction of `write`. */
  onWrite: () => void;
  /** Set while the write-ahead log is copied into the database file. Large changes wait for it, so that it stays small. */
  checkpoint: Promise<void> | undefined;
  /** Whether a transaction of `write` is running. */
  readonly writing: boolean;
  /** Increases with every change. A read outside a transaction stays valid while this number is the same. */
  generation(): number;
  sqlite: Database.Database;
  close(): void;
};

const BUSY_TIMEOUT_MS = 10_000;
const MAX_STATEMENTS = 500;
/** How many changes `writeTogether` puts into one transaction, unless a single caller has more. */
const MAX_TOGETHER = 32;

export type Sqlite = Database.Database & Disposable;

export function openSqlite(path: string, options: { readonly?: boolean } = {}): Sqlite {
  const binding = nativeBinding();
  const sqlite = new Database(path, {
    ...options,
    ...(binding && { nativeBinding: binding as unknown as string }),
  });
  sqlite.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
  return Object.assign(sqlite, { [Symbol.dispose]: () => void sqlite.close() });
}

type WaitingChange = {
  change(): unknown;
  size: number;
  resolve(result: unknown): void;
  reject(error: unknown): void;
};

export function openDb(path: string, vault: Vault, now: () => number = Date.now, onUpgrade?: OnUpgrade): Db {
  const sqlite = openSqlite(path);
  sqlite.defaultSafeIntegers(true);
  sqlite.pragma('journal_mode = WAL');
  // NORMAL could lose acknowledged requests in a power failure.
  sqlite.pragma('synchronous = FULL');
  sqlite.pragma('cache_size = -16000');
  sqlite.pragma('temp_store = MEMORY');
  migrate(sqlite, undefined, onUpgrade);
  sqlite.pragma('foreign_keys = ON');

  const readLastId = sqlite
    .prepare<[], bigint>("SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'last_id'")
    .pluck();
  const writeLastId = sqlite.prepare("UPDATE facts SET value = ? WHERE name = 'last_id'");
  const begin = sqlite.prepare('BEGIN IMMEDIATE');
  const commit = sqlite.prepare('COMMIT');
  const rollback = sqlite.prepare('ROLLBACK');
  // SQLite counts the changes of other processes. Neither number ever decreases.
  const readChangesOfOthers = sqlite.prepare<[], bigint>('PRAGMA data_version').pluck();
  let changesOfOthers: number | undefined;
  let ownChanges = 0;

  let touched = new Set<string>();
  let lastId: bigint | undefined;
  let hasNewId = false;
  let writing = false;
  let isUnsynced = false;

  const transact = <T>(change: () => T): T => {
    begin.run();
    writing = true;
    try {
      const result = change();
      // The command line assigns ids too, so the last one is read and stored inside the transaction.
      if (hasNewId) writeLastId.run(String(lastId));
      commit.run();
      ownChanges += 1;
      return result;
    } catch (error) {
      if (sqlite.inTransaction) rollback.run();
      touched = new Set();
      throw error;
    } finally {
      writing = false;
      lastId = undefined;
      hasNewId = false;
    }
  };

  const notify = () => {
    db.onWrite();
    // After the transaction is completely over: subscribers may write.
    if (touched.size === 0) return;
    const topics = touched;
    touched = new Set();
    db.onCommit(topics);
  };

  const waiting: WaitingChange[] = [];
  const writeWaiting = () => {
    let total = 0;
    const end = waiting.findIndex(({ size }, index) => {
      total += size;
      return index > 0 && total > MAX_TOGETHER;
    });
    const group = waiting.splice(0, end === -1 ? waiting.length : end);
    if (waiting.length > 0) setImmediate(writeWaiting);
    let results: unknown[];
    try {
      results = transact(() => group.map(({ change }) => change()));
    } catch {
      // Nothing was written. Each runs by itself, so that only the one that fails is refused.
      for (const { change, resolve, reject } of group)
        try {
          resolve(db.write(change));
        } catch (error) {
          reject(error);
        }
      return;
    }
    try {
      notify();
      for (const [index, { resolve }] of group.entries()) resolve(results[index]);
    } catch (error) {
      // A subscriber failed. The changes are durable and must not run again.
      for (const { reject } of group) reject(error);
    }
  };

  const db: Db = {
    orm: drizzle(cacheStatements(sqlite)),
    vault,
    now,
    sqlite,
    onCommit: () => {},
    onWrite: () => {},
    checkpoint: undefined,
    write(change) {
      if (sqlite.inTransaction) return change();
      const result = transact(change);
      notify();
      return result;
    },
    writeUnsynced(change) {
      if (sqlite.inTransaction) return change();
      sqlite.pragma('synchronous = NORMAL');
      let result: ReturnType<typeof change>;
      try {
        result = transact(change);
      } finally {
        sqlite.pragma('synchronous = FULL');
      }
      isUnsynced = true;
      notify();
      return result;
    },
    async sync() {
      if (!isUnsynced) return;
      isUnsynced = false;
      try {
        // Only the database file and the index of the log have locks, so it does not matter that this file is closed.
        await using log = await open(`${path}-wal`);
        await log.datasync();
      } catch (error) {
        // After a failure, the kernel may treat pages that it could not write as written. Without a checkpoint, later
        // transactions could be lost with them.
        await db.checkpoint;
        sqlite.pragma('wal_checkpoint(TRUNCATE)');
        throw error;
      }
    },
    writeTogether(change, size = 1) {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      waiting.push({ change, size, resolve, reject });
      if (waiting.length === 1) setImmediate(writeWaiting);
      return promise as Promise<ReturnType<typeof change>>;
    },
    get writing() {
      return writing;
    },
    newId() {
      if (!sqlite.inTransaction) throw new Error('newId must be called inside a transaction');
      lastId = nextId(lastId ?? readLastId.get() ?? 0n, now());
      hasNewId = true;
      return lastId;
    },
    touch(topic) {
      touched.add(topic);
    },
    generation() {
      // Read once per turn of the event loop: its requests all arrived before it started.
      if (changesOfOthers === undefined) {
        changesOfOthers = Number(readChangesOfOthers.get() ?? 0n);
        setImmediate(() => {
          changesOfOthers = undefined;
        });
      }
      return changesOfOthers + ownChanges;
    },
    close() {
      sqlite.close();
    },
  };
  return db;
}

/**
 * A connection for drizzle that caches compiled statements. Drizzle compiles a query on each run, which costs more than
 * running it. The cache is limited because queries with lists have many variants.
 */
function cacheStatements(sqlite: Database.Database): Database.Database {
  const compiled = new Map<string, Database.Statement>();
  const prepare = (query: string) => {
    let statement = compiled.get(query);
    if (!statement) {
      if (compiled.size >= MAX_STATEMENTS) compiled.delete(compiled.keys().next().value as string);
      statement = sqlite.prepare(query);
      compiled.set(query, statement);
    }
    return statement.reader ? statement.raw(false) : statement;
  };
  return { prepare } as unknown as Database.Database;
}

/** Prepares a statement once per database: `const find = prepared(db => db.orm.select()….prepare())`. */
export function prepared<T>(make: (db: Db) => T): (db: Db) => T {
  const statements = new WeakMap<Db, T>();
  return db => {
    let statement = statements.get(db);
    if (statement === undefined) {
      statement = make(db);
      statements.set(db, statement);
    }
    return statement;
  };
}

/** Reads a row by its id, in half the time that drizzle takes. */
export function readRowOf<Table extends SQLiteTable>(
  table: Table,
): (db: Db, id: bigint) => Table['$inferSelect'] | undefined {
  const columns = Object.entries(getTableColumns(table));
  const names = columns.map(([, column]) => column.name).join(', ');
  const select = prepared(db =>
    db.sqlite.prepare<[bigint], unknown[]>(`SELECT ${names} FROM ${getTableName(table)} WHERE id = ?`).raw(),
  );
  return (db, id) => {
    const values = select(db).get(id);
    if (!values) return undefined;
    const row: Record<string, unknown> = {};
    for (const [at, [key, column]] of columns.entries())
      row[key] = values[at] === null ? null : column.mapFromDriverValue(values[at]);
    return row as Table['$inferSelect'];
  };
}

/** Inserts complete rows with one prepared statement, for transactions that insert hundreds of rows. */
export function insertInto<Table extends SQLiteTable>(
  table: Table,
): (db: Db, row: Table['$inferSelect']) => void {
  const columns = Object.entries(getTableColumns(table));
  const names = columns.map(([, column]) => column.name).join(', ');
  const query = `INSERT INTO ${getTableName(table)} (${names}) VALUES (${columns.map(() => '?').join(', ')})`;
  const insert = prepared(db => db.sqlite.prepare(query));
  return (db, row) => {
    const values = columns.map(([key, column]) => {
      const value = (row as Record<string, unknown>)[key];
      return value === null ? null : column.mapToDriverValue(value);
    });
    insert(db).run(values);
  };
}

/** Changes columns of a row while its state is that of `row`. Returns the changed row, or undefined if the state is another. */
export function updateIn<Table extends SQLiteTable, Row extends Table['$inferSelect'] & { id: bigint }>(
  table: Table,
  stateKey: keyof Row & string,
): (db: Db, row: Row, changes: Partial<Row>) => Row | undefined {
  const columns = getTableColumns(table);
  const columnOf = (key: string) => columns[key] as (typeof columns)[string];
  const statements = prepared(() => new Map<string, Database.Statement>());
  return (db, row, changes) => {
    const changed = Object.entries(changes).filter(([, value]) => value !== undefined);
    const set = changed.map(([key]) => `${columnOf(key).name} = ?`).join(', ');
    let statement = statements(db).get(set);
    if (!statement) {
      statement = db.sqlite.prepare(
        `UPDATE ${getTableName(table)} SET ${set} WHERE id = ? AND ${columnOf(stateKey).name} = ?`,
      );
      statements(db).set(set, statement);
    }
    const values = changed.map(([key, value]) =>
      value === null ? null : columnOf(key).mapToDriverValue(value),
    );
    const { changes: count } = statement.run(...values, row.id, row[stateKey]);
    return count === 1 ? { ...row, ...Object.fromEntries(changed) } : undefined;
  };
}

/** Caches a read that nearly every request makes, until anything in the database changes. Does not cache undefined. */
export function cached<Argument, Result>(
  keyOf: (argument: Argument) => unknown,
  read: (db: Db, argument: Argument) => Result,
  maxEntries = 1000,
): (db: Db, argument: Argument) => Result {
  const caches = prepared(() => ({ generation: -1, results: new Map<unknown, Result>() }));
  return (db, argument) => {
    if (db.writing) return read(db, argument);
    const cache = caches(db);
    const generation = db.generation();
    if (cache.generation !== generation || cache.results.size >= maxEntries) {
      cache.results.clear();
      cache.generation = generation;
    }
    const key = keyOf(argument);
    const known = cache.results.get(key);
    if (known !== undefined) return known;
    const result = read(db, argument);
    if (result !== undefined) cache.results.set(key, result);
    return result;
  };
}

/** Ids as a parameter of json_each. */
export const jsonOf = (ids: readonly bigint[]) => `[${ids.join(',')}]`;

/** Whether a unique index already has the value. */
export function isUniqueViolation(error: unknown): boolean {
  return error instanceof Database.SqliteError && error.code === 'SQLITE_CONSTRAINT_UNIQUE';
}
