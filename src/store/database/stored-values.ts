// Named values of this data directory, stored in the table `facts`.

import { cached, type Db, prepared } from './db.ts';

const read = prepared(db => db.sqlite.prepare('SELECT value FROM facts WHERE name = ?').pluck());

export function findStoredValue(db: Db, name: string): string | undefined {
  return read(db).get(name) as string | undefined;
}

export function storeValue(db: Db, name: string, value: string): void {
  db.write(() =>
    db.sqlite
      .prepare(
        'INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value',
      )
      .run(name, value),
  );
}

const HOST = 'host';

/** The host name in BASE_URL, stored for the command line. */
export function storeHost(db: Db, host: string): void {
  if (findStoredValue(db, HOST) !== host) storeValue(db, HOST, host);
}

const cachedHost = cached(
  (name: string) => name,
  (db, name) => findStoredValue(db, name),
);

/** Cached because every record of a project contains it. */
export function hostOf(db: Db): string {
  return cachedHost(db, HOST) ?? '';
}

/** The label of this appliance's containers, volumes and networks. */
export function instanceOf(db: Db): string {
  return findStoredValue(db, 'instance') as string;
}
