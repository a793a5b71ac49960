// The one door to SQLite: opening, pragmas, transactions, and the ids that are given out inside them.

import Database from 'better-sqlite3';
import { type BetterSQLite3Database, drizzle } from 'drizzle-orm/better-sqlite3';
import { nativeBinding } from '../asset.ts';
import { nextId } from '../domain/id.ts';
import { migrate } from './migrations.ts';
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
  sqlite: Database.Database;
  close(): void;
};

const BUSY_TIMEOUT_MS = 10_000;

export function openSqlite(path: string): Database.Database {
  const binding = nativeBinding();
  const sqlite = new Database(path, binding ? { nativeBinding: binding as unknown as string } : {});
  sqlite.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
  return sqlite;
}

export function openDb(path: string, vault: Vault, now: () => number = Date.now): Db {
  const sqlite = openSqlite(path);
  sqlite.defaultSafeIntegers(true);
  sqlite.pragma('journal_mode = WAL');
  // NORMAL would lose answered requests when the power goes.
  sqlite.pragma('synchronous = FULL');
  sqlite.pragma('cache_size = -16000');
  sqlite.pragma('temp_store = MEMORY');
  migrate(sqlite);
  sqlite.pragma('foreign_keys = ON');

  const readLastId = sqlite
    .prepare<[], bigint>("SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'last_id'")
    .pluck();
  const writeLastId = sqlite.prepare("UPDATE facts SET value = ? WHERE name = 'last_id'");
  const begin = sqlite.prepare('BEGIN IMMEDIATE');
  const commit = sqlite.prepare('COMMIT');
  const rollback = sqlite.prepare('ROLLBACK');

  let touched = new Set<string>();
  let lastId: bigint | undefined;
  let givenOut = false;

  const db: Db = {
    orm: drizzle(sqlite),
    vault,
    now,
    sqlite,
    onCommit: () => {},
    write(change) {
      if (sqlite.inTransaction) return change();
      begin.run();
      try {
        const result = change();
        // The command line gives out ids beside the server: the last one is read and kept inside the transaction.
        if (givenOut) writeLastId.run(String(lastId));
        commit.run();
        if (touched.size > 0) {
          const topics = touched;
          touched = new Set();
          db.onCommit(topics);
        }
        return result;
      } catch (cause) {
        if (sqlite.inTransaction) rollback.run();
        touched = new Set();
        throw cause;
      } finally {
        lastId = undefined;
        givenOut = false;
      }
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
    close() {
      sqlite.close();
    },
  };
  return db;
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

/** Whether an error says that a unique index holds the value already. */
export function isUniqueViolation(cause: unknown): boolean {
  return cause instanceof Database.SqliteError && cause.code === 'SQLITE_CONSTRAINT_UNIQUE';
}
