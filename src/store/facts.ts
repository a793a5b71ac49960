// Single facts about this data directory.

import { type Db, prepared } from './db.ts';

const read = prepared(db => db.sqlite.prepare('SELECT value FROM facts WHERE name = ?').pluck());

export function findFact(db: Db, name: string): string | undefined {
  return read(db).get(name) as string | undefined;
}

export function writeFact(db: Db, name: string, value: string): void {
  db.write(() =>
    db.sqlite
      .prepare(
        'INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value',
      )
      .run(name, value),
  );
}

/** Tells this appliance's containers, volumes and networks from anybody else's. */
export function instanceOf(db: Db): string {
  return findFact(db, 'instance') as string;
}
