// The one door to SQLite: opening, pragmas, transactions, and the ids that are given out inside them.

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
  /** Runs `change` as one durable transaction; inside another one, as part of it. */
  write<T>(change: () => T): T;
  /** A new id; only inside `write`, whose transaction remembers it. */
  newId(): bigint;
  /** Says which rows changed, for those who watch; told after the transaction is durable. */
  touch(topic: string): void;
  onCommit: (topics: ReadonlySet<string>) => void;
  /** Whether a transaction of `write` is under way. */
  readonly writing: boolean;
  /** Another number after every change: what was read outside of transactions under the same one still holds. */
  generation(): number;
  sqlite: Database.Database;
  close(): void;
};

const BUSY_TIMEOUT_MS = 10_000;
const MOST_STATEMENTS = 500;

export function openSqlite(path: string, options: { readonly?: boolean } = {}): Database.Database {
  const binding = nativeBinding();
  const sqlite = new Database(path, {
    ...options,
    ...(binding && { nativeBinding: binding as unknown as string }),
  });
  sqlite.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
  return sqlite;
}

export function openDb(path: string, vault: Vault, now: () => number = Date.now, onUpgrade?: OnUpgrade): Db {
  const sqlite = openSqlite(path);
  sqlite.defaultSafeIntegers(true);
  sqlite.pragma('journal_mode = WAL');
  // NORMAL would lose answered requests when the power goes.
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
  // What other processes change, which SQLite counts, and what this one does. Neither number ever goes back.
  const readChangesOfOthers = sqlite.prepare<[], bigint>('PRAGMA data_version').pluck();
  let changesOfOthers: bigint | undefined;
  let ownChanges = 0;

  let touched = new Set<string>();
  let lastId: bigint | undefined;
  let givenOut = false;
  let writing = false;

  const transact = <T>(change: () => T): T => {
    begin.run();
    writing = true;
    try {
      const result = change();
      // The command line gives out ids beside the server: the last one is read and kept inside the transaction.
      if (givenOut) writeLastId.run(String(lastId));
      commit.run();
      ownChanges += 1;
      return result;
    } catch (cause) {
      if (sqlite.inTransaction) rollback.run();
      touched = new Set();
      throw cause;
    } finally {
      writing = false;
      lastId = undefined;
      givenOut = false;
    }
  };

  const db: Db = {
    orm: drizzle(rememberingStatements(sqlite)),
    vault,
    now,
    sqlite,
    onCommit: () => {},
    write(change) {
      if (sqlite.inTransaction) return change();
      const result = transact(change);
      // After the transaction is over in every respect: who is told may write in turn.
      if (touched.size > 0) {
        const topics = touched;
        touched = new Set();
        db.onCommit(topics);
      }
      return result;
    },
    get writing() {
      return writing;
    },
    newId() {
      if (!sqlite.inTransaction) throw new Error('ids are given out inside a transaction');
      lastId = nextId(lastId ?? readLastId.get() ?? 0n, now());
      givenOut = true;
      return lastId;
    },
    touch(topic) {
      touched.add(topic);
    },
    generation() {
      // Read once in a turn of the event loop, whose requests had all arrived before it began.
      if (changesOfOthers === undefined) {
        changesOfOthers = readChangesOfOthers.get() ?? 0n;
        setImmediate(() => {
          changesOfOthers = undefined;
        });
      }
      return Number(changesOfOthers) + ownChanges;
    },
    close() {
      sqlite.close();
    },
  };
  return db;
}

/**
 * What drizzle needs of a connection. It has a query compiled each time that it is run, which costs more than to run it:
 * here the same words are compiled once. Queries with lists in them come in many lengths, so only so many are kept.
 */
function rememberingStatements(sqlite: Database.Database): Database.Database {
  const compiled = new Map<string, Database.Statement>();
  const prepare = (words: string) => {
    let statement = compiled.get(words);
    if (!statement) {
      if (compiled.size >= MOST_STATEMENTS) compiled.delete(compiled.keys().next().value as string);
      statement = sqlite.prepare(words);
      compiled.set(words, statement);
    }
    return statement.reader ? statement.raw(false) : statement;
  };
  return { prepare } as unknown as Database.Database;
}

/** A prepared statement made once for each database: `const find = prepared(db => db.orm.select()….prepare())`. */
export function prepared<T>(make: (db: Db) => T): (db: Db) => T {
  const made = new WeakMap<Db, T>();
  return db => {
    let statement = made.get(db);
    if (statement === undefined) {
      statement = make(db);
      made.set(db, statement);
    }
    return statement;
  };
}

/** Inserts whole rows, with a statement made once: for what is written by the hundred in one transaction. */
export function insertInto<Table extends SQLiteTable>(
  table: Table,
): (db: Db, row: Table['$inferSelect']) => void {
  const columns = Object.entries(getTableColumns(table));
  const names = columns.map(([, column]) => column.name).join(', ');
  const words = `INSERT INTO ${getTableName(table)} (${names}) VALUES (${columns.map(() => '?').join(', ')})`;
  const insert = prepared(db => db.sqlite.prepare(words));
  return (db, row) => {
    const values = columns.map(([key, column]) => {
      const value = (row as Record<string, unknown>)[key];
      return value === null ? null : column.mapToDriverValue(value);
    });
    insert(db).run(values);
  };
}

/** A read whose result is kept until anything in the database changes; for what nearly every request asks. */
export function cached<Asked, Found>(
  keyOf: (asked: Asked) => unknown,
  read: (db: Db, asked: Asked) => Found | undefined,
  most = 1000,
): (db: Db, asked: Asked) => Found | undefined {
  const memories = prepared(() => ({ generation: -1, found: new Map<unknown, Found>() }));
  return (db, asked) => {
    if (db.writing) return read(db, asked);
    const memory = memories(db);
    const generation = db.generation();
    if (memory.generation !== generation || memory.found.size >= most) {
      memory.found.clear();
      memory.generation = generation;
    }
    const key = keyOf(asked);
    const known = memory.found.get(key);
    if (known !== undefined) return known;
    const found = read(db, asked);
    if (found !== undefined) memory.found.set(key, found);
    return found;
  };
}

/** Whether an error says that a unique index holds the value already. */
export function isUniqueViolation(cause: unknown): boolean {
  return cause instanceof Database.SqliteError && cause.code === 'SQLITE_CONSTRAINT_UNIQUE';
}
